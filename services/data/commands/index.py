"""`rookery data index`: writes an index beside each file, so that services can read any game directly."""

import argparse
import sys

from rookery.errors import InvalidInput
from rookery.masking import mask_setting
from services.data.commands.flags import command_parser, positive
from services.data.pgn.index import index_location
from services.data.pgn.sources import find_sources
from services.data.store.files import STANDARD_INPUT

EXAMPLES = """  rookery data index lichess_db_standard_rated_2024-08.pgn.zst --jobs 8
  rookery data index games/
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    from services.data.pgn.indexing import write_index

    options = _parser().parse_args(argv)
    for location in find_sources(options.files):
        if location == STANDARD_INPUT:
            raise InvalidInput("an index is written beside its file, but '-' is standard input: name a file")
        header = write_index(location, jobs=options.jobs)
        broken = header.games - sum(header.train) - sum(header.heldout)
        sys.stderr.write(
            f"{mask_setting(index_location(location))}: {header.games} games, {broken} of them broken\n"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "index",
        "Writes FILE.index.parquet beside each file: where every game begins, its id and its tags. The\n"
        "service and the feed then start at once on files of any size and read only the games they need.\n"
        "This is fastest with plain text, fast with files of pzstd, and slow with other compression.",
        examples=EXAMPLES,
    )
    parser.add_argument("files", nargs="+", metavar="PGN", help="files, folders, patterns or URLs")
    parser.add_argument("--jobs", type=positive, default=1, help="number of processes (1)")
    return parser

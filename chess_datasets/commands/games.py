"""`rookery data index`, `games` and `moves`: what is written from files of games as a whole."""

import argparse
import sys
from typing import Any

from chess_datasets.commands.flags import (
    add_box,
    add_exams,
    add_games,
    add_jobs,
    add_number,
    add_style,
    command_parser,
    positive,
    recipe_of,
    report_exams,
    share,
)
from chess_datasets.commands.sample import add_filters, filters_of
from chess_datasets.pgn.index import index_location
from chess_datasets.pgn.indexing import write_index
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import write_games
from chess_datasets.positions.recipe import GamesRecipe
from chess_datasets.store.files import STANDARD_INPUT
from chess_datasets.tasks.moves import MovesRecipe, write_moves
from rookery.errors import InvalidInput
from rookery.masking import mask_setting, printable
from rookery.prompt import GAME_STYLES, notation_of


def index(argv: list[str]) -> int:
    """Writes an index beside each file, so that services can read any game directly."""
    parser = command_parser(
        "index",
        "Writes FILE.index.parquet beside each file: where every game begins, its id and its tags. The\n"
        "service and the feed then start at once on files of any size and read only the games they need.\n"
        "This is fastest with plain text, fast with files of pzstd, and slow with other compression.",
        examples="""  rookery data index lichess_db_standard_rated_2024-08.pgn.zst --jobs 8
  rookery data index games/
""",
    )
    parser.add_argument("files", nargs="+", metavar="PGN", help="files, folders, patterns or URLs")
    add_jobs(parser)
    options = parser.parse_args(argv)
    for location in find_sources(options.files):
        if location == STANDARD_INPUT:
            raise InvalidInput("an index is written beside its file, but '-' is standard input: name a file")
        header = write_index(location, jobs=options.jobs)
        broken = header.games - sum(header.train) - sum(header.heldout)
        name = printable(mask_setting(index_location(location)))
        sys.stderr.write(f"{name}: {header.games} games, {broken} of them broken\n")
    return 0


def games(argv: list[str]) -> int:
    """Writes whole games and their manifest."""
    parser = command_parser(
        "games",
        "Writes whole games, each once, in an order that the seed determines: as PGN, or as a JSON list of\n"
        "PGN strings. Both are sources of games, too. The same seed gives the same bytes. Training data of\n"
        "whole games are written by `rookery data moves --style game-san`.",
        examples="""  rookery data games --elo-min 1800 --count 1000 --out runs/games
  rookery data games --form json --compress --out runs/list
  rookery data games --speed rapid classical --count 100000 --jobs 8 --out runs/slow
  rookery data moves --source runs/slow --style game-san --split all --count 100000 --out runs/sequences
""",
    )
    add_games(parser)
    parser.add_argument("--count", type=positive, default=1 << 40, help="number of games (all)")
    parser.add_argument("--out", required=True, help="folder or URL for the games and manifest.json")
    parser.add_argument(
        "--form",
        choices=("pgn", "json"),
        default="pgn",
        help="games.pgn, or games.json, a list of strings (pgn)",
    )
    parser.add_argument("--compress", action="store_true", help="compress the games with zstd")
    add_number(parser, "--games", share, 1.0, "share of the games that is read")
    add_jobs(parser)
    add_filters(parser)
    options = parser.parse_args(argv)
    _write_games(options, recipe_of(GamesRecipe, options, filters=filters_of(options)))
    return 0


def _write_games(options: argparse.Namespace, recipe: GamesRecipe) -> None:
    manifest = write_games(options.source, options.out, recipe, jobs=options.jobs, compress=options.compress)
    skipped, left_out = manifest["skipped"], {k: n for k, n in manifest["rejected"].items() if k != "split"}
    sys.stderr.write(
        f"{manifest['games']} games of {manifest['sound']}, {skipped['games']} skipped"
        + f", left out by filters: {left_out}" * bool(left_out)
        + "\n"
    )
    sys.stderr.writelines(printable(f"  skipped {line}\n") for line in skipped["first"])


def moves(argv: list[str]) -> int:
    """Writes a supervised data set and its manifest."""
    parser = _moves_parser()
    options = parser.parse_args(argv)
    if options.style in GAME_STYLES:
        if options.exam:
            parser.error(f"--exam leaves out positions: with --style {options.style} a line is a whole game")
        unused = ("box", "candidates", "legal_share")
        if any(getattr(options, name) != parser.get_default(name) for name in unused):
            parser.error(f"--box, --candidates and --legal-share have no effect with --style {options.style}")
        _write_games(options, recipe_of(GamesRecipe, options, form="moves"))
        return 0
    manifest = write_moves(
        find_sources(options.source),
        options.out,
        recipe_of(MovesRecipe, options, box=options.box or notation_of(options.style)),
        exams=options.exam,
        jobs=options.jobs,
        compress=options.compress,
    )
    _report_moves(manifest, wanted=options.count)
    return 0


def _report_moves(manifest: dict[str, Any], *, wanted: int) -> None:
    lines, skipped = manifest["lines"], manifest["skipped"]
    sys.stderr.write(f"{lines} lines from {manifest['games']} games, {skipped['games']} games skipped\n")
    if manifest["terms"]["exams"]:
        report_exams(manifest["in_exams"])
    if lines < wanted:
        sys.stderr.write(f"{wanted} were asked for; there are {manifest['by_phase']}\n")
    sys.stderr.writelines(printable(f"  skipped {line}\n") for line in skipped["first"])


def _moves_parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "moves",
        "Writes a supervised data set from games. The answer to a position is a few candidate moves and the\n"
        "move that was played, or the list of legal moves. With --style game-san or game-uci, a line is a\n"
        "whole game, and the answer is all of its moves. The same seed gives the same bytes.",
        examples="""  rookery data moves --count 5000 --out runs/moves
  rookery data moves --source games/*.pgn.zst --count 1000000 --jobs 8 --compress --out runs/moves
  rookery data moves --count 100000 --style fen --legal-share 0 --out runs/fen
  rookery data moves --count 100000 --style game-san --out runs/games
""",
    )
    add_games(parser)
    parser.add_argument("--count", type=positive, required=True, help="number of lines")
    parser.add_argument("--out", required=True, help="folder or URL for moves.jsonl and manifest.json")
    add_exams(parser)
    add_style(parser, default="mover-squares")
    add_box(parser, "that of the style, uci where it shows no moves")
    add_number(parser, "--candidates", positive, 3, "candidate moves in an answer")
    add_number(parser, "--legal-share", share, 0.4, "share of the lines whose answer lists the legal moves")
    add_jobs(parser)
    parser.add_argument("--compress", action="store_true", help="write moves.jsonl.zst")
    return parser

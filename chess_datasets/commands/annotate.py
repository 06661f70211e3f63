"""`rookery data annotate`: writes analyses in prose and checks every claim. Can be stopped and continued."""

import argparse
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

from chess_datasets.annotate import Effort, Manner
from chess_datasets.annotate.annotating import (
    ANNOTATIONS,
    AnnotationRecipe,
    annotate_shard,
    write_annotations,
)
from chess_datasets.annotate.compose import ANY
from chess_datasets.commands.engines import add_workers, made_parts
from chess_datasets.commands.flags import (
    add_number,
    add_positions,
    add_style,
    command_parser,
    positive,
)
from commentary import LENGTHS, VOICES

EXAMPLES = """  rookery data annotate --count 20 --out runs/annotations
  rookery data annotate --count 5000 --source games/*.pgn.zst --engines 8 --out s3://bucket/start
  rookery data annotate --count 1000000 --ray auto --out s3://bucket/start
  rookery data annotate --count 500 --voice coach --length 300 --style pgn --out runs/coach
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    options = options_of(argv)
    manifest = _run(options)
    count = manifest["annotations"]
    sys.stderr.write(f"{count} annotations, {manifest['claims']} claims, all true; {manifest['by_voice']}\n")
    if count < options.count:
        sys.stderr.write(f"{options.count} were asked for; there are no more positions\n")
    return 0


def _run(options: argparse.Namespace) -> dict[str, Any]:
    manner = Manner(options.voice, options.length, options.box, options.seed)
    recipe = AnnotationRecipe(options.style, manner, Effort.of(options.nodes, lines=options.lines))
    work = partial(annotate_shard, recipe)
    with made_parts(options, ANNOTATIONS, work, stage="annotate", terms=asdict(recipe)) as (parts, terms):
        return write_annotations(parts, parts.folder, terms=terms)


def options_of(argv: list[str]) -> argparse.Namespace:
    """The command's flags."""
    parser = command_parser(
        "annotate",
        "Writes analyses in the voice of a strong player: what a position is about, candidate moves, the\n"
        "lines that refute the worse ones, and the choice in \\boxed{}. Every claim is read back and\n"
        "checked on the board. Texts with a false claim are not used. A stopped command continues when it\n"
        "is called again with the same flags.",
        examples=EXAMPLES,
    )
    parser.add_argument("--count", type=positive, required=True, help="number of annotations")
    parser.add_argument(
        "--out",
        required=True,
        help="folder or URL for annotations.parquet, .jsonl, analysis.json, manifest.json",
    )
    position_flags = add_positions(parser)
    add_style(position_flags, default="fen")
    _add_manner(parser)
    _add_effort(parser)
    return parser.parse_args(argv)


def _add_manner(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the text")
    group.add_argument(
        "--voice", choices=(*VOICES, ANY), default=ANY, help="whose voice (any: a random one for each text)"
    )
    group.add_argument(
        "--length", default=ANY, help=f"{', '.join(LENGTHS)}, {ANY}, or 30 and more tokens ({ANY})"
    )
    group.add_argument("--box", choices=("san", "uci"), default="san", help="notation of the answer (san)")


def _add_effort(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the work")
    add_number(
        group,
        "--nodes",
        positive,
        100_000,
        "nodes of the search for the best move; other moves get half",
    )
    add_number(group, "--lines", positive, 3, "engine lines to consider")
    add_workers(group)

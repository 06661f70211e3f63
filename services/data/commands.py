"""The commands beside serving: `moves` writes a supervised data set, `sample` prints positions."""

import argparse
import json
import signal
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from rookery.errors import InvalidInput
from rookery.prompt import STYLES
from rookery.trace import Position
from services.data.settings import SAMPLE

_SPLITS = ("train", "heldout", "all")


def moves(argv: list[str]) -> int:
    """`python -m services.data moves`; the exit status."""
    from services.data.moves import Recipe, write_moves

    options = _moves_parser().parse_args(argv)
    recipe = Recipe(
        count=options.count,
        seed=options.seed,
        style=options.style,
        candidates=options.candidates,
        legal_share=options.legal_share,
        split=options.split,
    )
    manifest = write_moves(options.source, options.out, recipe, jobs=options.jobs, compress=options.compress)
    _report(manifest, wanted=options.count)
    return 0


def sample(argv: list[str]) -> int:
    """`python -m services.data sample`; the exit status."""
    from services.data.archive import Archive
    from services.data.order import Order
    from services.data.sampler import Shares

    options = _sample_parser().parse_args(argv)
    # A reader that has enough, as in `| head`, ends the command without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with closing(Archive(options.source)) as archive:
        order = Order(archive, shares=Shares(), split=options.split)
        if options.distinct:
            drawn: Iterable[Position] = order.distinct(seed=options.seed)
        else:
            drawn = (order.position(n, seed=options.seed) for n in range(options.offset, sys.maxsize))
        written = _print(islice(drawn, options.count))
    if written < options.count:
        raise InvalidInput(f"{options.count} positions asked for, only {written} distinct ones there")
    return 0


def _report(manifest: dict[str, Any], *, wanted: int) -> None:
    lines, skipped = manifest["lines"], manifest["skipped"]
    sys.stderr.write(f"{lines} lines from {manifest['games']} games, {skipped['games']} games skipped\n")
    if lines < wanted:
        sys.stderr.write(f"{wanted} were asked for; there are {manifest['by_phase']}\n")
    sys.stderr.writelines(f"  skipped {line}\n" for line in skipped["first"])


def _print(positions: Iterable[Position]) -> int:
    written = 0
    for position in positions:
        sys.stdout.write(json.dumps(asdict(position)) + "\n")
        written += 1
    return written


def _moves_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.data moves",
        description="Writes a supervised data set: the move played, or the list of legal moves.",
    )
    _add_sources(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for moves.jsonl and manifest.json")
    parser.add_argument("--style", choices=sorted(STYLES), default="mover-squares", help="prompt style")
    parser.add_argument("--candidates", type=_positive, default=3, help="moves named before the choice")
    parser.add_argument("--legal-share", type=_share, default=0.4, help="part of lines that list legal moves")
    parser.add_argument("--jobs", type=_positive, default=1, help="processes")
    parser.add_argument("--compress", action="store_true", help="write moves.jsonl.zst")
    return parser


def _sample_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.data sample", description="Prints positions, one JSON object a line."
    )
    _add_sources(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--offset", type=int, default=0, help="positions of the order to leave out first")
    start.add_argument("--distinct", action="store_true", help="no position twice, mirrored ones included")
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source", type=Path, nargs="+", default=[Path(SAMPLE)], help=f".pgn, .zst, .gz, .bz2 ({SAMPLE})"
    )
    parser.add_argument("--count", type=_positive, required=True, help="positions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--split", choices=_SPLITS, default="train", help="a twentieth of games is held out")


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _share(text: str) -> float:
    if not 0 <= (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value

"""Flags that several commands share, and parsers whose help ends with examples."""

import argparse
import math
from collections.abc import Callable
from typing import TypeVar, cast, get_args

from rookery.prompt import STYLES
from services.data.pgn.games import Split
from services.data.settings import SAMPLE
from services.data.store.manifest import MANIFEST
from services.data.store.tables import SUFFIX

N = TypeVar("N", int, float)


def parser(name: str, description: str, *, examples: str) -> argparse.ArgumentParser:
    """The parser of `rookery data NAME`. `examples` are shell lines, shown unchanged."""
    return argparse.ArgumentParser(
        prog=f"rookery data {name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_games(parser: argparse.ArgumentParser) -> None:
    """Adds --source, --seed and --split: the games, and the order of positions."""
    parser.add_argument(
        "--source",
        nargs="+",
        default=[SAMPLE],
        metavar="PGN",
        help=f"games: files, folders, patterns, URLs, compressed or not ({SAMPLE})",
    )
    parser.add_argument("--seed", type=int, default=0, help="another seed, another order (0)")
    parser.add_argument(
        "--split",
        choices=get_args(Split),
        default="train",
        help="games to draw from; a twentieth is held out, by a hash of the moves (train)",
    )


def split_of(options: argparse.Namespace) -> Split:
    """The value of --split."""
    return cast(Split, options.split)


def add_exams(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds --exam: files whose positions are left out because an evaluation asks them."""
    parser.add_argument(
        "--exam",
        nargs="+",
        default=(),
        metavar="FILE",
        help="files whose positions are left out: an evaluation's FEN, EPD, JSON lines, PGN tags, puzzles",
    )


def add_style(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: str) -> None:
    """Adds --style: the prompt style of positions."""
    parser.add_argument(
        "--style",
        choices=sorted(STYLES),
        default=default,
        metavar="STYLE",
        help=f"how they are shown: {', '.join(sorted(STYLES))} ({default})",
    )


def add_reward(parser: argparse.ArgumentParser) -> None:
    """Adds --reward: the address of the reward service."""
    parser.add_argument(
        "--reward",
        metavar="TARGET",
        help="gRPC address of a reward service, such as dns:///reward:50051; without it one is started",
    )


def positive(text: str) -> int:
    """Parses an integer above 0. Like the parsers below, raises `ArgumentTypeError` for anything else."""
    if (value := _number(text, int)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def natural(text: str) -> int:
    """Parses an integer that is 0 or more."""
    if (value := _number(text, int)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def share(text: str) -> float:
    """Parses a number between 0 and 1, inclusive."""
    if not 0 <= (value := _number(text, float)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def above_zero(text: str) -> float:
    """Parses a finite number above 0."""
    if not 0 < (value := _number(text, float)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def file_name(text: str) -> str:
    """Parses a file name without a folder. Names that the data set uses itself are refused."""
    if text in ("", ".", "..") or {"/", "\\", "\0"} & set(text) or text.startswith("."):
        raise argparse.ArgumentTypeError(f"{text!r} is no plain name of a file")
    if text.endswith(SUFFIX) or text == MANIFEST:
        raise argparse.ArgumentTypeError(f"{text!r} is the name of another file of the data set")
    return text


def _number(text: str, kind: Callable[[str], N]) -> N:
    try:
        return kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error

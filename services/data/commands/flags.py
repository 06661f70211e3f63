"""The flags that commands share, and parsers whose help ends with examples."""

import argparse
from typing import cast, get_args

from services.data.pgn.games import Split
from services.data.settings import SAMPLE


def parser(name: str, description: str, *, examples: str) -> argparse.ArgumentParser:
    """A parser of `rookery data NAME`. `examples` are shell lines, shown as they stand."""
    return argparse.ArgumentParser(
        prog=f"rookery data {name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_games(parser: argparse.ArgumentParser) -> None:
    """Where positions come from, and in which order."""
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
    """The games to draw from."""
    return cast(Split, options.split)


def add_reward(parser: argparse.ArgumentParser) -> None:
    """Who judges."""
    parser.add_argument(
        "--reward",
        metavar="TARGET",
        help="gRPC address of a reward service, such as dns:///reward:50051; without it one is started",
    )


def positive(text: str) -> int:
    """An integer above 0."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def share(text: str) -> float:
    """A number between 0 and 1."""
    if not 0 <= (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value

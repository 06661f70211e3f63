"""Flags that several commands share, with their parsers, and the positions that the flags choose."""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar, cast, get_args

import chess

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import read_positions
from chess_datasets.positions.distinct import PositionKeys
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.positions.numbered import (
    RARE_KINDS,
    NumberedPositions,
    PositionOrder,
    RareKind,
    after_random_moves,
)
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.datasets import MANIFEST
from chess_datasets.store.folders import open_file
from chess_datasets.store.parquet import SUFFIX
from rookery.config.data import SAMPLE
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.masking import mask_setting, printable
from rookery.prompt import STYLES, Notation
from rookery.trace import Position, Split

N = TypeVar("N", int, float)
R = TypeVar("R")


def command_parser(name: str, description: str, *, examples: str) -> argparse.ArgumentParser:
    """The parser of `rookery data NAME`. `examples` are shell lines, which the help shows unchanged."""
    return argparse.ArgumentParser(
        prog=f"rookery data {name}",
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def recipe_of(kind: type[R], options: argparse.Namespace, **more: Any) -> R:
    """A dataclass whose fields have the values of the flags of their names, or those of `more`."""
    names = {field.name for field in fields(cast(Any, kind))} & vars(options).keys()
    values = {name: getattr(options, name) for name in names}
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()} | more)


def add_number(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup,
    flag: str,
    kind: Callable[[str], float],
    default: float,
    text: str,
) -> None:
    """Adds a flag with a number. Its help is `text` and the default."""
    parser.add_argument(flag, type=kind, default=default, help=f"{text} ({default:g})")


def add_jobs(
    parser: argparse.ArgumentParser | argparse._ArgumentGroup, text: str = "number of processes"
) -> None:
    """Adds --jobs: in how many processes the work is done."""
    add_number(parser, "--jobs", positive, 1, text)


def add_jsonl(parser: argparse.ArgumentParser, what: str) -> None:
    """Adds --jsonl: a second file with `what`."""
    text = f"also write {what} to NAME.jsonl or NAME.jsonl.zst"
    parser.add_argument("--jsonl", type=file_name, metavar="NAME", help=text)


class _Collect(argparse.Action):
    """Collects the values of all uses of a flag. They replace the default."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, flag: Any = None) -> None:
        earlier = getattr(namespace, self.dest)
        setattr(namespace, self.dest, [*(() if earlier is self.default else earlier), *values])


def add_games(parser: argparse.ArgumentParser) -> None:
    """Adds --source, --seed and --split: the games, and the order of positions."""
    parser.add_argument(
        "--source",
        nargs="+",
        action=_Collect,
        default=[SAMPLE],
        metavar="PGN",
        help=f"games: files, folders, patterns, URLs, compressed or not ({SAMPLE})",
    )
    add_number(parser, "--seed", int, 0, "determines the order of the positions")
    parser.add_argument(
        "--split",
        choices=get_args(Split),
        default="train",
        help="games to draw from; one game in twenty is held out, by a hash of its moves (train)",
    )


def add_exams(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds --exam: files whose positions are left out because an evaluation asks them."""
    parser.add_argument(
        "--exam",
        nargs="+",
        action=_Collect,
        default=(),
        metavar="FILE",
        help="files of evaluations whose positions are left out: FEN, EPD, CSV, JSON, PGN or Parquet",
    )


def report_exams(count: int) -> None:
    """Says on stderr how many positions are left out for --exam."""
    sys.stderr.write(f"left out because --exam files have them: {count}\n")


def add_style(parser: argparse.ArgumentParser | argparse._ArgumentGroup, *, default: str) -> None:
    """Adds --style: the prompt style of positions."""
    parser.add_argument(
        "--style",
        choices=sorted(STYLES),
        default=default,
        metavar="STYLE",
        help=f"how positions are shown: {', '.join(sorted(STYLES))} ({default})",
    )


def add_box(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str) -> None:
    """Adds --box: the notation of the moves in answers. `default` says what it is without the flag."""
    text = f"notation of moves in answers ({default})"
    parser.add_argument("--box", choices=get_args(Notation), help=text)


def positive(text: str) -> int:
    """Parses an integer above 0. Like the parsers below, raises `ArgumentTypeError` otherwise."""
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a plain file name")
    if text.endswith(SUFFIX) or text == MANIFEST:
        raise argparse.ArgumentTypeError(f"{text!r} is the name of another file of the data set")
    return text


def _number(text: str, kind: Callable[[str], N]) -> N:
    try:
        return kind(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error


def add_positions(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds the flags that choose positions. Without them, positions are generated."""
    group = parser.add_argument_group(
        "positions", "generated by random moves from openings, unless --source or --positions is given"
    )
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--source",
        nargs="+",
        action=_Collect,
        default=(),
        metavar="PGN",
        help="files of games to sample from",
    )
    either.add_argument("--positions", metavar="FILE", help="a file of positions, Parquet or JSON lines")
    group.add_argument(
        "--split",
        choices=("train", "heldout", "all"),
        default="train",
        help="which games of --source to use (train)",
    )
    add_number(group, "--seed", int, 0, "determines the positions and all random choices")
    add_exams(group)
    add_number(
        group,
        "--random-moves",
        share,
        0.0,
        "share of positions in which one to three random moves are played first",
    )
    group.add_argument(
        "--only",
        choices=tuple(RARE_KINDS),
        help="take only positions in which the side to move can mate at once, or is in check: of the games "
        "of --source, or after a random move in one; not with --random-moves",
    )
    return group


@contextmanager
def chosen_positions(options: argparse.Namespace) -> Iterator[tuple[NumberedPositions, dict[str, Any]]]:
    """Yields the positions that the flags of `add_positions` choose, and their origin for the manifest.

    Raises:
        SetupError: a file cannot be read.
        InvalidInput: a file has the wrong content, or contains an impossible position.
    """
    if options.only and not options.source:
        raise InvalidInput(f"--only {options.only} needs --source")
    if options.only and options.random_moves:
        raise InvalidInput(f"--only {options.only} and --random-moves {options.random_moves}: choose one")
    excluded, exam_files = read_evaluation_files(options.exam)
    with _open_positions(options, excluded) as (positions, origin):
        origin |= {"exams": [exam.summary for exam in exam_files]} if exam_files else {}
        if moved_share := options.random_moves:
            origin |= {"random_moves": moved_share}
            drawn = positions.position
            positions = replace(
                positions,
                position=lambda number: after_random_moves(
                    drawn(number), share=moved_share, seed=options.seed
                ),
                picklable=False,
            )
        origin |= {"only": options.only} if options.only else {}
        yield positions, origin


@contextmanager
def _open_positions(
    options: argparse.Namespace, excluded: PositionKeys
) -> Iterator[tuple[NumberedPositions, dict[str, Any]]]:
    if options.positions:
        folder, name = open_file(options.positions)
        report = FenReport()
        positions = list(_unfinished_positions(options.positions, report))
        faults = {"read": report.facts} if report.skipped_count or report.dropped else {}
        yield (
            NumberedPositions(positions.__getitem__, len(positions), excluded=excluded),
            {"sha256": folder.sha256(name), **faults},
        )
    elif options.source:
        with closing(GameCollection(find_sources(options.source))) as games:
            order = PositionOrder(games, shares=Shares(), split=options.split)
            sources = [{"size": source.size, "sha256": source.sha256} for source in games.sources]
            yield (
                NumberedPositions(
                    partial(_rare_position, order, options.only, options.seed)
                    if options.only
                    else partial(order.position, seed=options.seed),
                    excluded=excluded,
                ),
                {"sources": sources, "split": options.split},
            )
    else:
        generator = PositionGenerator(options.seed, least_moves=2)
        yield (
            NumberedPositions(generator.position, picklable=True, excluded=excluded),
            {"generated": options.seed},
        )


def _rare_position(order: PositionOrder, kind: RareKind, seed: int, number: int) -> Position:
    if position := order.rare(kind, number, seed=seed):
        return position
    raise InvalidInput(
        f"the games of --source have too few positions for --only {kind}: none found for number {number}"
    )


def _unfinished_positions(place: str, report: FenReport) -> Iterator[Position]:
    """Yields the positions of a file in which the game is not over. Reports on stderr what is left out.

    Raises:
        InvalidInput: the file has no possible position.
    """
    over = sound = 0
    for position in read_positions(*open_file(place), report):
        sound += 1
        if chess.Board(position.fen).is_game_over():
            over += 1
        else:
            yield position
    if report.skipped_count and not sound:
        raise InvalidInput(f"no position in {place!r}: {'; '.join(report.skipped[:3])}")
    name = mask_setting(place)
    sys.stderr.writelines(printable(f"{line}\n") for line in report.lines(str(name)))
    if over:
        sys.stderr.write(f"{over} positions of {name!r} are left out because the game is over\n")

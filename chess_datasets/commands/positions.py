"""The positions that the settings of a command choose."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import chess

from chess_datasets.commands.settings.shared import PositionSourceSettings
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import read_positions
from chess_datasets.positions.distinct import PositionKeys
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.positions.numbered import NumberedPositions, PositionOrder, RareKind, after_random_moves
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.folders import open_file
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.masking import mask_setting, printable
from rookery.trace import Position


def report_exams(count: int) -> None:
    """Says on stderr how many positions are left out for --exam."""
    sys.stderr.write(f"left out because --exam files have them: {count}\n")


@contextmanager
def chosen_positions(settings: PositionSourceSettings) -> Iterator[tuple[NumberedPositions, dict[str, Any]]]:
    """Yields the positions that the settings choose, and their origin for the manifest. Raises `SetupError`
    if a file cannot be read; `InvalidInput` if a file has the wrong content, or contains an impossible
    position."""
    excluded, exam_files = read_evaluation_files(settings.exam)
    with _open_positions(settings, excluded) as (positions, origin):
        origin |= {"exams": [exam.summary for exam in exam_files]} if exam_files else {}
        if moved_share := settings.random_moves:
            origin |= {"random_moves": moved_share}
            drawn = positions.position
            positions = replace(
                positions,
                position=lambda number: after_random_moves(
                    drawn(number), share=moved_share, seed=settings.seed
                ),
                picklable=False,
            )
        origin |= {"only": settings.only} if settings.only else {}
        yield positions, origin


@contextmanager
def _open_positions(
    settings: PositionSourceSettings, excluded: PositionKeys
) -> Iterator[tuple[NumberedPositions, dict[str, Any]]]:
    if settings.positions:
        folder, name = open_file(settings.positions)
        report = FenReport()
        positions = list(_unfinished_positions(settings.positions, report))
        faults = {"read": report.facts} if report.skipped_count or report.dropped else {}
        yield (
            NumberedPositions(positions.__getitem__, len(positions), excluded=excluded),
            {"sha256": folder.sha256(name), **faults},
        )
    elif settings.source:
        with closing(GameCollection(find_sources(settings.source))) as games:
            order = PositionOrder(games, shares=Shares(), split=settings.split)
            sources = [{"size": source.size, "sha256": source.sha256} for source in games.sources]
            yield (
                NumberedPositions(
                    partial(_rare_position, order, settings.only, settings.seed)
                    if settings.only
                    else partial(order.position, seed=settings.seed),
                    excluded=excluded,
                ),
                {"sources": sources, "split": settings.split},
            )
    else:
        generator = PositionGenerator(settings.seed, least_moves=2)
        yield (
            NumberedPositions(generator.position, picklable=True, excluded=excluded),
            {"generated": settings.seed},
        )


def _rare_position(order: PositionOrder, kind: RareKind, seed: int, number: int) -> Position:
    if position := order.rare(kind, number, seed=seed):
        return position
    raise InvalidInput(
        f"the games of --source have too few positions for --only {kind}: none found for number {number}"
    )


def _unfinished_positions(place: str, report: FenReport) -> Iterator[Position]:
    """Yields the positions of a file in which the game is not over. Reports on stderr what is left out.
    Raises `InvalidInput` if the file has no possible position."""
    over = sound = 0
    for position in read_positions(*open_file(place), report):
        sound += 1
        if chess.Board(position.fen).is_game_over():
            over += 1
        else:
            yield position
    if report.skipped_count and not sound:
        raise InvalidInput(f"no position in {place!r}: {report.reasons}")
    name = mask_setting(place)
    sys.stderr.writelines(printable(f"{line}\n") for line in report.lines(str(name)))
    if over:
        sys.stderr.write(f"{over} positions of {name!r} are left out because the game is over\n")

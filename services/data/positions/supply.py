"""Numbered positions for work that is done in parts, and the filter for new ones among them."""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import chess

from rookery.trace import Position
from services.data.pgn.games import LAST_MOVES, phase_of
from services.data.positions.distinct import Questions, key_of

PART = 128
"""The number of positions in a part."""

BARREN_POSITIONS = 2000
"""`fresh` ends after more than this many repeated positions in a row."""


@dataclass(frozen=True)
class Supply:
    """Numbered positions. `size` is None if they never end. Portable ones can be made in any process.

    Positions whose key is in `exams` are reserved for evaluations.
    """

    position: Callable[[int], Position]
    size: int | None = None
    portable: bool = False
    exams: Questions = field(default_factory=Questions)

    def part(self, number: int) -> range:
        """The position numbers of a part; empty beyond the end."""
        first, last = number * PART, (number + 1) * PART
        return range(first, last if self.size is None else min(last, self.size))


def fresh(supply: Supply, *, done: Container[int], seen: set[int]) -> Iterator[tuple[int, Position]]:
    """Yields the numbered positions of unfinished parts, without repeated questions or exam questions.

    `seen` contains the keys of earlier questions; new ones are added to it. Ends with the supply, or when
    there are hardly any new positions.
    """
    old = 0
    for part in count():
        numbers = supply.part(part)
        if not numbers:
            return
        for number in numbers if part not in done else ():
            position = supply.position(number)
            key = key_of(position.fen)
            if key in seen or key in supply.exams:
                old += 1
                if old > BARREN_POSITIONS:
                    return
                continue
            old = 0
            seen.add(key)
            yield number, position


def strayed(position: Position, *, share: float, seed: int) -> Position:
    """The position after one to three random legal moves, in `share` of all cases.

    This shows a model hanging pieces and missed mates, which good games rarely have. The moves never end the
    game. They depend only on the seed and the position.
    """
    rng = random.Random(f"{seed}:{position.id}:strayed")
    if rng.random() >= share:
        return position
    board = chess.Board(position.fen)
    for _ in range(1 + int(rng.random() * 3)):
        moves = list(board.legal_moves)
        board.push(moves[int(rng.random() * len(moves))])
        if board.is_game_over():
            board.pop()
            break
    played = tuple(move.uci() for move in board.move_stack)
    return replace(
        position,
        fen=board.fen(),
        ply=position.ply + len(played),
        phase=phase_of(board),
        last_moves=(position.last_moves + played)[-LAST_MOVES:],
    )

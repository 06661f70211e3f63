"""Numbered positions for work that is done in parts, and the ones among them that nobody has asked yet."""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import chess

from rookery.trace import Position
from services.data.pgn.games import LAST_MOVES, phase_of
from services.data.positions.distinct import Questions, key_of

PART = 128
"""Positions of a part."""

BARREN_POSITIONS = 2000
"""So many old positions in a row: there are hardly any new ones."""


@dataclass(frozen=True)
class Supply:
    """Numbered positions; `size` is None where they never end. Portable ones can be made in any process.

    Those whose key is in `exams` are asked in an evaluation, and for nothing else.
    """

    position: Callable[[int], Position]
    size: int | None = None
    portable: bool = False
    exams: Questions = field(default_factory=Questions)

    def part(self, number: int) -> range:
        """The numbers of a part; empty beyond the end."""
        first, last = number * PART, (number + 1) * PART
        return range(first, last if self.size is None else min(last, self.size))


def fresh(supply: Supply, *, done: Container[int], seen: set[int]) -> Iterator[tuple[int, Position]]:
    """The positions of the parts that are not done, by number, no question twice and none of an exam.

    `seen` holds the keys of the questions that came before, and grows. Ends with the supply, or where
    there are hardly any new ones.
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

    So a model sees pieces left to be taken and mates left to be given, which good games hardly have. It
    never ends the game. What is played depends on the seed and the position alone.
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

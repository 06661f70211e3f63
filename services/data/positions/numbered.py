"""The endless order of positions for a seed. Position number i is the same in every process.

HTTP, gRPC and the feed all number positions this way, so a client can stop anywhere and resume with another
of them. Each number has its own random generator, so nothing depends on what was drawn before.
"""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import chess

from rookery.metrics import POSITIONS_SAMPLED
from rookery.trace import Phase, Position
from services.data.pgn.collection import GameCollection
from services.data.pgn.games import LAST_MOVES, Game, Split, phase_of
from services.data.pgn.sources import nothing_to_sample
from services.data.positions.distinct import PositionKeys, distinct, position_key
from services.data.positions.recipe import Shares

_GAMES_TRIED = 50
"""Games searched for a ply of the drawn phase. After that, a ply of any phase is taken."""


class PositionOrder:
    """Numbered positions of an archive. Thread-safe.

    Raises:
        SetupError: the split has nothing to sample; the message names the files and the skipped games.
    """

    def __init__(self, archive: GameCollection, *, shares: Shares, split: Split) -> None:
        self.split = split
        self.archive = archive
        self._shares = shares
        self._draw(0, 0, split)

    def position(self, number: int, *, seed: int, split: Split | None = None) -> Position:
        """Position number `number` for a seed. `split` overrides the order's own.

        If the drawn phase hardly occurs in the games, a position of another phase is returned.

        Raises:
            SetupError: no game of the split has a suitable position.
        """
        position = self._draw(number, seed, split or self.split)
        POSITIONS_SAMPLED.labels(position.phase.value).inc()
        return position

    def distinct(self, *, seed: int) -> Iterator[Position]:
        """Positions in order, each question once. Ends when there are hardly any new ones."""
        return distinct(self.position(number, seed=seed) for number in count())

    def _draw(self, number: int, seed: int, split: Split) -> Position:
        rng = random.Random(f"{seed}:{number}")
        return self._of_phase(self._shares.draw(rng), rng, split) or self._of_any(rng, split)

    def _of_phase(self, phase: Phase, rng: random.Random, split: Split) -> Position | None:
        members = self.archive.game_numbers(split)
        for _ in range(_GAMES_TRIED if members else 0):
            game = self.archive.game(members[int(rng.random() * len(members))])
            position = _ply_of(game, game.plies(phase), rng) if game else None
            if position:
                return position
        return None

    def _of_any(self, rng: random.Random, split: Split) -> Position:
        members = self.archive.game_numbers(split)
        first = int(rng.random() * len(members))
        for step in range(len(members)):
            game = self.archive.game(members[(first + step) % len(members)])
            plies = [ply for phase in Phase for ply in game.plies(phase)] if game else []
            position = _ply_of(game, plies, rng) if game else None
            if position:
                return position
        raise nothing_to_sample(self.archive.sources, split, list(self.archive.skipped.values()))


def _ply_of(game: Game, plies: list[int], rng: random.Random) -> Position | None:
    return game.position(plies[int(rng.random() * len(plies))]) if plies else None


PART_SIZE = 128
"""The number of positions in a part."""

MAX_REPEATED = 2000
"""`new_positions` ends after more than this many repeated positions in a row."""


@dataclass(frozen=True)
class NumberedPositions:
    """Numbered positions. `size` is None if they never end. Portable ones can be made in any process.

    Positions whose key is in `excluded` are reserved for evaluations.
    """

    position: Callable[[int], Position]
    size: int | None = None
    picklable: bool = False
    excluded: PositionKeys = field(default_factory=PositionKeys)

    def part(self, number: int) -> range:
        """The position numbers of a part; empty beyond the end."""
        first, last = number * PART_SIZE, (number + 1) * PART_SIZE
        return range(first, last if self.size is None else min(last, self.size))


def new_positions(
    supply: NumberedPositions, *, done: Container[int], seen: set[int]
) -> Iterator[tuple[int, Position]]:
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
            key = position_key(position.fen)
            if key in seen or key in supply.excluded:
                old += 1
                if old > MAX_REPEATED:
                    return
                continue
            old = 0
            seen.add(key)
            yield number, position


def after_random_moves(position: Position, *, share: float, seed: int) -> Position:
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

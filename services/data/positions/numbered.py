"""Numbered positions: drawn from games in an endless order, or any others for work that is done in parts.

In the order of a seed, position number i is the same in every process. HTTP, gRPC and the feed all use this
order, so a client can stop anywhere and resume with another of them. Each number has its own random
generator, so nothing depends on what was drawn before.
"""

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from itertools import count

import chess

from rookery.errors import InvalidInput
from rookery.metrics import POSITIONS_SAMPLED
from rookery.trace import Phase, Position
from services.data.pgn.collection import GameCollection
from services.data.pgn.games import Game, Split, phase_of
from services.data.pgn.sources import nothing_to_sample
from services.data.positions.distinct import PositionKeys, distinct, position_key
from services.data.positions.recipe import Shares

_GAMES_TRIED = 50
"""Games searched for a ply of the drawn phase. After that, a ply of any phase is taken."""

PART_SIZE = 128
"""The number of positions in a part."""

MATE_TRIES = 1000
"""Positions looked at for one with a mate in one. About one in a hundred has it."""

MAX_REPEATED = 2000
"""`new_positions` ends after more than this many repeated positions in a row."""


class PositionOrder:
    """The numbered positions of some games. Thread-safe.

    Raises:
        SetupError: the split has nothing to sample; the message names the files and the skipped games.
    """

    def __init__(self, games: GameCollection, *, shares: Shares, split: Split) -> None:
        self.split = split
        self.games = games
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
        numbers = self.games.game_numbers(split)
        for _ in range(_GAMES_TRIED if numbers else 0):
            game = self.games.game(numbers[int(rng.random() * len(numbers))])
            position = _ply_of(game, game.plies(phase), rng) if game else None
            if position:
                return position
        return None

    def _of_any(self, rng: random.Random, split: Split) -> Position:
        numbers = self.games.game_numbers(split)
        first = int(rng.random() * len(numbers))
        for step in range(len(numbers)):
            game = self.games.game(numbers[(first + step) % len(numbers)])
            plies = [ply for phase in Phase for ply in game.plies(phase)] if game else []
            position = _ply_of(game, plies, rng) if game else None
            if position:
                return position
        raise nothing_to_sample(self.games.sources, split, list(self.games.skipped.values()))


def _ply_of(game: Game, plies: list[int], rng: random.Random) -> Position | None:
    return game.position(plies[int(rng.random() * len(plies))]) if plies else None


@dataclass(frozen=True)
class NumberedPositions:
    """Numbered positions from any source, for work in parts.

    `size` is None if they never end. `picklable` means that another process can compute them, too.

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
    positions: NumberedPositions, *, done: Container[int], seen: set[int]
) -> Iterator[tuple[int, Position]]:
    """Yields the positions of unfinished parts with their numbers, without repeated and excluded ones.

    `seen` contains the keys of earlier positions; those of new ones are added to it. Ends with the positions,
    or when there are hardly any new ones.
    """
    old = 0
    for part in count():
        numbers = positions.part(part)
        if not numbers:
            return
        for number in numbers if part not in done else ():
            position = positions.position(number)
            key = position_key(position.fen)
            if key in seen or key in positions.excluded:
                old += 1
                if old > MAX_REPEATED:
                    return
                continue
            old = 0
            seen.add(key)
            yield number, position


def with_mate_in_one(position: Callable[[int], Position], number: int) -> Position:
    """The first position from `number * MATE_TRIES` on in which the side to move can mate at once.

    Raises:
        InvalidInput: none of them has a mate in one.
    """
    first = number * MATE_TRIES
    for candidate in map(position, range(first, first + MATE_TRIES)):
        board = chess.Board(candidate.fen)
        for move in filter(board.gives_check, board.legal_moves):
            board.push(move)
            if board.is_checkmate():
                return candidate
            board.pop()
    raise InvalidInput(f"none of {MATE_TRIES} positions from number {first} on has a mate in one")


def after_random_moves(position: Position, *, share: float, seed: int) -> Position:
    """The position after one to three random legal moves; in 1 - `share` of all cases, the position itself.

    A model thus sees hanging pieces and possible mates, which good games rarely have. The moves never end the
    game. They depend only on the seed and the position.
    """
    rng = random.Random(f"{seed}:{position.id}:strayed")  # other words would draw other moves
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
        last_moves=position.last_moves + played,
    )

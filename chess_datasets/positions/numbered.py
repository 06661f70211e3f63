"""Numbered positions: drawn from games in an endless order, or any others for work that is done in parts.

In the order of a seed, position number i is the same in every process. HTTP, gRPC and the feed all use this
order, so a client can stop anywhere and resume with another of them. Each number has its own random
generator, so nothing depends on what was drawn before.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, count, groupby, islice
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import chess
import numpy as np
from numpy.typing import NDArray

from chess_datasets.jobs import WorkerEngine, batched
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.games import Game, phase_of
from chess_datasets.pgn.sources import nothing_to_sample
from chess_datasets.positions.distinct import MAX_REPEATED, PositionKeys, distinct_positions, position_key
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.datasets import Parts
from rookery.engines import EnginePool
from rookery.errors import SetupError
from rookery.metrics import POSITIONS_SAMPLED
from rookery.trace import Phase, Position, Split

_GAMES_TRIED = 50
"""Games searched for a ply of the drawn phase. After that, a ply of any phase is taken."""

PART_SIZE = 128
"""The number of positions in a part."""

SHARD_SIZE = 8
"""The number of positions that a worker gets at a time, and does again if it dies."""

RareKind: TypeAlias = Literal["mate-in-one", "check"]


class PositionOrder:
    """The numbered positions of some games. Thread-safe. Raises `SetupError` if the split has nothing to
    sample; the message names the files and the skipped games."""

    def __init__(self, games: GameCollection, *, shares: Shares, split: Split) -> None:
        self.split = split
        self.games = games
        self._shares = shares
        self._draw(0, 0, split)

    def position(self, number: int, *, seed: int, split: Split | None = None) -> Position:
        """Position number `number` for a seed. `split` overrides the order's own.

        If the drawn phase hardly occurs in the games, a position of another phase is returned. Raises
        `SetupError` if no game of the split has a suitable position.
        """
        position = self._draw(number, seed, split or self.split)
        POSITIONS_SAMPLED.labels(position.phase.value).inc()
        return position

    def rare(self, kind: RareKind, number: int, *, seed: int) -> Position | None:
        """Position number `number` of a kind that games rarely have. It is one of a game, or after a random
        move in a game. None if the games hardly have any."""
        # Another text would draw other positions.
        rng = random.Random(f"{seed}:{number}:{kind.partition('-')[0]}")
        count = self.games.count(self.split)
        for _ in range(_GAMES_TRIED if count else 0):
            game = self.games.game(self.games.number(self.split, int(rng.random() * count)))
            if game and (positions := _rare_positions(game, RARE_KINDS[kind], rng)):
                position = positions[int(rng.random() * len(positions))]
                POSITIONS_SAMPLED.labels(position.phase.value).inc()
                return position
        return None

    def distinct(self, *, seed: int) -> Iterator[Position]:
        """Positions in order, each question once. Ends when there are hardly any new ones."""
        return distinct_positions(self.position(number, seed=seed) for number in count())

    def _draw(self, number: int, seed: int, split: Split) -> Position:
        rng = random.Random(f"{seed}:{number}")
        return self._draw_of_phase(self._shares.draw(rng), rng, split) or self._draw_of_any_phase(rng, split)

    def _draw_of_phase(self, phase: Phase, rng: random.Random, split: Split) -> Position | None:
        count = self.games.count(split)
        for _ in range(_GAMES_TRIED if count else 0):
            game = self.games.game(self.games.number(split, int(rng.random() * count)))
            position = _random_position(game, game.plies(phase), rng) if game else None
            if position:
                return position
        return None

    def _draw_of_any_phase(self, rng: random.Random, split: Split) -> Position:
        count = self.games.count(split)
        first = int(rng.random() * count)
        for step in range(count):
            game = self.games.game(self.games.number(split, (first + step) % count))
            plies = [ply for phase in Phase for ply in game.plies(phase)] if game else []
            position = _random_position(game, plies, rng) if game else None
            if position:
                return position
        raise nothing_to_sample(self.games.sources, split, list(self.games.skipped.values()))


def _random_position(game: Game, plies: list[int], rng: random.Random) -> Position | None:
    return game.position(plies[int(rng.random() * len(plies))]) if plies else None


def _rare_positions(game: Game, is_rare: Callable[[chess.Board], bool], rng: random.Random) -> list[Position]:
    """Positions for which `is_rare` is true: of a game, and after one random move at each ply."""
    plies = {ply for phase in Phase for ply in game.plies(phase)}
    positions = []
    for ply, board, _ in game.replay():
        if ply not in plies:
            continue
        if is_rare(board):
            positions.append(game.position(ply, fen=board.fen()))
        moves = list(board.legal_moves)
        board.push(moves[int(rng.random() * len(moves))])
        if is_rare(board):
            positions.append(_after_moves(game.position(ply, fen=board.fen()), board, 1))
        board.pop()
    return positions


RARE_KINDS: dict[RareKind, Callable[[chess.Board], bool]] = {
    "mate-in-one": lambda board: any(
        _mates(board, move) for move in filter(board.gives_check, board.legal_moves)
    ),
    "check": lambda board: board.is_check() and not board.is_checkmate(),
}
"""The side to move can mate at once, or is in check. The game is not over."""


def _mates(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    mates = board.is_checkmate()
    board.pop()
    return mates


class Rounds:
    """Finitely many positions, in endless rounds. Each round has every position once, in an order of its own.
    The orders depend only on the seed and the number of positions."""

    def __init__(self, position: Callable[[int], Position], size: int, *, seed: int) -> None:
        self._position, self._size, self._seed = position, size, seed
        self._order = lru_cache(2)(self._shuffled)

    def __call__(self, number: int) -> Position:
        """Position number `number`, counted from 0 over all rounds."""
        rounds, place = divmod(number, self._size)
        return self._position(int(self._order(rounds)[place]))

    def _shuffled(self, number: int) -> NDArray[np.int64]:
        # NumPy guarantees that a RandomState gives the same numbers in every version, not so its successor.
        seed = [self._seed & 0xFFFFFFFF, self._seed >> 32, number & 0xFFFFFFFF]
        return np.random.RandomState(seed).permutation(self._size)


def fixed_pool(position: Callable[[int], Position], size: int, *, seed: int) -> Rounds:
    """The first `size` different positions, in endless rounds. Mirrored positions count as the same. Raises
    `SetupError` if there are not so many."""
    pool = list(islice(distinct_positions(map(position, count())), size))
    if len(pool) < size:
        raise SetupError(
            f"there are only {len(pool)} different positions: --max-positions {size} is too many"
        )
    return Rounds(pool.__getitem__, size, seed=seed)


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
    positions: NumberedPositions, *, done: Container[int], seen: set[int], in_exams: Counter[int]
) -> Iterator[tuple[int, Position]]:
    """Yields the positions of unfinished parts with their numbers, without repeated and excluded ones.

    `seen` contains the keys of earlier positions; those of new ones are added to it. `in_exams` counts the
    excluded ones by part. Ends with the positions or, if they never end, when there are hardly any new ones.
    """
    repeated = 0
    for part in count():
        numbers = positions.part(part)
        if not numbers:
            return
        for number in numbers if part not in done else ():
            position = positions.position(number)
            key = position_key(position.fen)
            is_excluded = key in positions.excluded
            if is_excluded or key in seen:
                in_exams[part] += is_excluded
                repeated += 1
                if repeated > MAX_REPEATED and positions.size is None:
                    return
                continue
            repeated = 0
            seen.add(key)
            yield number, position


_IN_EXAMS = "in_exams"


class PositionRecord(Protocol):
    """A record about a position."""

    @property
    def fen(self) -> str:
        """The position, or its mirror image."""


R = TypeVar("R", bound=PositionRecord)
Shard: TypeAlias = list[tuple[int, Position]]
RecordMaker: TypeAlias = Callable[[Position, Any], Awaitable[R | None]]
"""Makes the record of a position, or none, with a `Searcher` if the records need one."""
Work: TypeAlias = Callable[[Iterable[Shard]], Iterator[list[tuple[int, R | None]]]]
"""Makes the record of each position of each shard, in order; None where a position has none."""


def make_records(
    make: RecordMaker[R], engine: WorkerEngine | None, shard: Shard
) -> list[tuple[int, R | None]]:
    """The records of a shard, made with this process's engine, if they need one. Raises `Unavailable` if the
    engine is away."""

    async def work(engines: EnginePool | None) -> list[tuple[int, R | None]]:
        return [(number, await make(position, engines)) for number, position in shard]

    return engine.run(work) if engine else asyncio.run(work(None))


def make_parts(
    supply: NumberedPositions, parts: Parts[R], work: Work[R], *, wanted: int, advance: Callable[[int], None]
) -> int:
    """Makes the missing parts until there are `wanted` records, or no more new positions.

    No position has two records. The records depend only on the positions and the work, so work that was
    interrupted continues from the finished parts and ends the same. A part's counts are its `positions`,
    `records` and `in_exams`: positions left out because they are excluded. Returns these of all parts.
    `advance` is called with the number of new records, those of finished parts first.
    """
    record_count = sum(parts.counts(part)["records"] for part in parts.done)
    advance(record_count)
    keys = {position_key(fen) for part in parts.done for fen in _fens(supply, parts, part)}
    in_exams = Counter({part: parts.counts(part).get(_IN_EXAMS, 0) for part in parts.done})
    new = new_positions(supply, done=parts.done, seen=keys, in_exams=in_exams)
    results = _work_until(wanted - record_count, new, work)
    for part, group in groupby(results, key=lambda result: result[0] // PART_SIZE):
        records, counts = list[R](), Counter(positions=0, records=0)
        for _, record in group:
            counts["positions"] += 1
            if record is not None:
                records.append(record)
                counts["records"] += 1
                advance(1)
        counts[_IN_EXAMS] = in_exams[part]
        parts.write(part, records, counts=counts)
    return in_exams.total()


def _fens(supply: NumberedPositions, parts: Parts[R], part: int) -> Iterator[str]:
    """The positions of a finished part, also those without a record: they are not tried again."""
    counts = parts.counts(part)
    if counts["positions"] == counts["records"]:  # to read them is faster than to draw rare positions again
        return (record.fen for record in parts.read(part))
    return (supply.position(number).fen for number in supply.part(part))


def _work_until(
    missing: int, positions: Iterator[tuple[int, Position]], work: Work[R]
) -> Iterator[tuple[int, R | None]]:
    """Results in order, of no more positions than are needed for the `missing` records."""
    while missing > 0 and (first := next(positions, None)):
        shards = batched(chain([first], islice(positions, missing - 1)), SHARD_SIZE)
        for number, record in chain.from_iterable(work(shards)):
            missing -= record is not None
            yield number, record


def after_random_moves(position: Position, *, share: float, seed: int) -> Position:
    """The position after one to three random legal moves; in 1 - `share` of all cases, the position itself.

    A model thus sees hanging pieces and possible mates, which good games rarely have. The moves never end the
    game. They depend only on the seed and the position.
    """
    rng = random.Random(f"{seed}:{position.id}:strayed")  # another text would draw other moves
    if rng.random() >= share:
        return position
    board = chess.Board(position.fen)
    for _ in range(1 + int(rng.random() * 3)):
        moves = list(board.legal_moves)
        board.push(moves[int(rng.random() * len(moves))])
        if board.is_game_over():
            board.pop()
            break
    return _after_moves(position, board, len(board.move_stack))


def _after_moves(position: Position, board: chess.Board, count: int) -> Position:
    """The position on `board`, whose last `count` moves were played after `position`."""
    played = tuple(move.uci() for move in board.move_stack[len(board.move_stack) - count :])
    return replace(
        position,
        fen=board.fen(),
        ply=position.ply + count,
        phase=phase_of(board),
        last_moves=position.last_moves + played,
    )

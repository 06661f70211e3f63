"""Counts games and positions by phase, rating, result and time control, and counts duplicates.

Games are counted by their tags, which takes microseconds. A share of them is replayed to count phases.
Memory use does not depend on the size of the files.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import chess

from chess_datasets.pgn.games import PHASES, SkippedGame
from chess_datasets.pgn.native import read_games
from chess_datasets.pgn.tags import Facts, read_facts
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.recipe import splitmix64
from chess_datasets.store.files import Source
from rookery.pgn.rawgame import RawGame
from rookery.trace import Position

ELO_STEP = 200
PLY_STEP = 20

KEYS_KEPT = 1 << 18
"""The most keys stored to count duplicates, about 100 bytes each."""

_IDS = 1 << 64


@dataclass(slots=True)
class DuplicateCounter:
    """Counts duplicates among any number of 64-bit keys, in bounded memory.

    When more than `limit` keys are stored, half of the key space is dropped, `level` times in all, and the
    rest serves as a sample. All copies of a thing have the same key, so the share of copies is estimated
    correctly. Up to the limit, the numbers are exact. (Adaptive sampling, after M. Wegman; Flajolet 1990.)
    """

    limit: int = KEYS_KEPT
    level: int = 0
    _seen: dict[int, int] = field(default_factory=dict)

    def add(self, key: int) -> None:
        self._count(key, 1)
        self._shrink()

    def merge(self, other: Self) -> None:
        if other.level > self.level:
            self._raise(other.level)
        for key, times in other._seen.items():
            self._count(key, times)
        self._shrink()

    @property
    def exact(self) -> bool:
        return self.level == 0

    def summary(self) -> dict[str, Any]:
        """How many distinct things there are, and further copies of them. `exact` is false for estimates."""
        distinct = len(self._seen)
        copies = sum(self._seen.values()) - distinct
        return {"distinct": distinct << self.level, "copies": copies << self.level, "exact": self.exact}

    def _count(self, key: int, times: int) -> None:
        if not key & ((1 << self.level) - 1):
            self._seen[key] = self._seen.get(key, 0) + times

    def _shrink(self) -> None:
        while len(self._seen) > self.limit:
            self._raise(self.level + 1)

    def _raise(self, level: int) -> None:
        self.level = level
        mask = (1 << level) - 1
        self._seen = {key: times for key, times in self._seen.items() if not key & mask}


@dataclass(slots=True)
class Statistics:
    """Counts by name: of games, of positions in replayed games, and of positions from data sets."""

    games: int = 0
    replayed: int = 0
    positions: int = 0
    by: dict[str, Counter[str]] = field(default_factory=dict)
    duplicates: DuplicateCounter = field(default_factory=DuplicateCounter)

    def rebase(self, *, games: int, size: int) -> None:
        """Does nothing: no count depends on the games before."""

    def merge(self, later: Self, /) -> None:
        self.games += later.games
        self.replayed += later.replayed
        self.positions += later.positions
        for name, counts in later.by.items():
            self.by.setdefault(name, Counter()).update(counts)
        self.duplicates.merge(later.duplicates)

    def count(self, name: str, value: str, times: int = 1) -> None:
        self.by.setdefault(name, Counter())[value] += times

    def summary(self) -> dict[str, Any]:
        """The counts, most frequent first; ratings and plies in numerical order."""
        return {
            "games": self.games,
            "replayed": self.replayed,
            "positions": self.positions,
            **{name: _ordered(name, counts) for name, counts in sorted(self.by.items())},
            "duplicates": self.duplicates.summary(),
        }


@dataclass(frozen=True, slots=True)
class GameCounter:
    """Counts the games of the file at `location`. `replay` is the share of games whose moves are read."""

    location: str
    replay: float

    @property
    def keep(self) -> None:
        """None, because every game is counted."""

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, Statistics]:
        """Yields the games to replay. Counts all games by their tags."""
        statistics, below = Statistics(), round(self.replay * _IDS)
        for raw in games:
            statistics.games += 1
            raw = raw.checked()
            if raw.defect:
                statistics.count("broken", raw.defect.value)
                continue
            _count_facts(statistics, read_facts(raw))
            id = int(raw.id, 16)
            statistics.duplicates.add(id)
            if splitmix64(0, id) < below:
                yield raw
        return statistics

    def handle(self, raws: Sequence[RawGame]) -> Statistics:
        """Counts the positions of some games by phase, and the defects that only the moves show."""
        statistics = Statistics()
        for played in read_games(raws, Source(self.location, 0, ""), chess960=True):
            if isinstance(played, SkippedGame):
                statistics.count("broken", played.defect.value)
                continue
            statistics.replayed += 1
            phases = Counter(played.game.phases)
            for code, phase in enumerate(PHASES):
                statistics.positions += phases[code]
                statistics.count("phase", phase.value, phases[code])
        return statistics


def count_positions(
    positions: Iterable[Position], *, advance: Callable[[int], None] = lambda count: None
) -> Statistics:
    """A statistics of positions without their games. `advance` is called with 1 for each."""
    statistics = Statistics()
    for position in positions:
        advance(1)
        statistics.positions += 1
        board = chess.BaseBoard(position.fen.split()[0])
        statistics.count("phase", position.phase.value)
        statistics.count("to_move", "white" if position.fen.split()[1] == "w" else "black")
        statistics.count("elo", _elo_range(position.white_elo, position.black_elo))
        statistics.count("ply", _range_of(position.ply, PLY_STEP))
        statistics.count("men", _range_of(board.occupied.bit_count(), 4))
        statistics.duplicates.add(position_key(position.fen))
    return statistics


def _count_facts(statistics: Statistics, facts: Facts) -> None:
    statistics.count("result", facts.result or "unknown")
    statistics.count("time_control", facts.speed.value if facts.speed else "unknown")
    statistics.count("elo", _elo_range(facts.white_elo, facts.black_elo))
    statistics.count("variant", facts.variant or "standard")
    if facts.termination:
        statistics.count("termination", facts.termination)
    if facts.bot:
        statistics.count("with", "a bot")
    if facts.evals:
        statistics.count("with", "evaluations")


def _elo_range(white: int | None, black: int | None) -> str:
    """The mean rating of both players, or the only known one, as a label."""
    ratings = [elo for elo in (white, black) if elo is not None]
    return _range_of(sum(ratings) // len(ratings), ELO_STEP) if ratings else "unknown"


def _range_of(value: int, step: int) -> str:
    """The range of `step` numbers in which a value is, as a label.

    >>> _range_of(1834, 200)
    '1800-1999'
    """
    first = value // step * step
    return f"{first}-{first + step - 1}"


def _ordered(name: str, counts: Counter[str]) -> dict[str, int]:
    if name not in ("elo", "ply", "men"):
        return dict(counts.most_common())
    numbers = {label: label.partition("-")[0] for label in counts}
    return {
        label: counts[label]
        for label in sorted(counts, key=lambda name: int(numbers[name]) if numbers[name].isdecimal() else -1)
    }

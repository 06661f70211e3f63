"""Finds the candidates for a set of positions, or of games, in raw games.

`choose` filters games by bytes and tags; `handle` reads the chosen ones and takes a few positions of each.
Random choices depend only on the seed and the game, so the result is the same for any order of the games and
any number of processes.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from chess_datasets.pgn.games import PHASES, SkippedGame, SoundGame, in_split
from chess_datasets.pgn.native import read_games
from chess_datasets.pgn.tags import CHESS960, read_facts
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.recipe import GamesRecipe, PositionRecipe, splitmix64
from chess_datasets.store.files import Source
from rookery.pgn.rawgame import RawGame
from rookery.trace import Position

SKIPPED_NAMED = 20
"""The most skipped games that a manifest names; the others are only counted."""

_WORD = 1 << 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SamplingCandidate(Generic[T]):
    """A position or a game that may be taken, what identifies it, and the number of its game in the file.
    `key` is the `position_key` of a position, and the id of a game."""

    key: int
    number: int
    value: T


@dataclass(slots=True)
class CandidateFindings(Generic[T]):
    """The candidates in some games, and counts of these games."""

    games: int = 0
    sound: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    """How many games each filter rejected."""
    skipped: Counter[str] = field(default_factory=Counter)
    """How many games were skipped for each defect."""
    first_skipped: list[SkippedGame] = field(default_factory=list)
    candidates: list[SamplingCandidate[T]] = field(default_factory=list)

    def rebase(self, *, games: int, size: int) -> None:
        self.first_skipped = [
            SkippedGame(game.path, game.number + games, game.defect, game.detail, game.offset + size)
            for game in self.first_skipped
        ]
        self.candidates = [
            replace(candidate, number=candidate.number + games) for candidate in self.candidates
        ]

    def merge(self, later: Self, /) -> None:
        self.games += later.games
        self.sound += later.sound
        self.rejected += later.rejected
        self.skipped += later.skipped
        self.first_skipped = (self.first_skipped + later.first_skipped)[:SKIPPED_NAMED]
        self.candidates += later.candidates


class GameSubset:
    """Chooses a share of all games by their tickets (see `tickets_of`). Multiply-shift hashing
    (Dietzfelbinger and others, 1997) chooses different games for each seed."""

    def __init__(self, part: float, seed: int) -> None:
        self._factor = np.uint64(splitmix64(seed, 0) | 1)
        self._limit = np.uint64(round(part * _WORD))

    def __call__(self, tickets: NDArray[np.uint64]) -> list[int]:
        places: list[int] = np.flatnonzero(tickets * self._factor < self._limit).tolist()
        return places


class CandidateFinder(ABC, Generic[T]):
    """Finds the candidates in those games of the file at `location` that are chosen."""

    def __init__(self, choice: PositionRecipe | GamesRecipe, location: str) -> None:
        self.location = location
        self._choice = choice
        self._source = Source(location, 0, "")
        self._chess960 = CHESS960 in choice.filters.variants
        self.keep = GameSubset(choice.games, choice.seed) if choice.games < 1 else None

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, CandidateFindings[T]]:
        """Yields the games that pass the filters. Counts the others by filter."""
        rest = CandidateFindings[T]()
        for raw in games:
            reason = None if raw.defect else self._choice.filters.rejects(read_facts(raw))
            if reason:
                rest.rejected[reason] += 1
            else:
                yield raw
        return rest

    def handle(self, raws: Sequence[RawGame]) -> CandidateFindings[T]:
        findings = CandidateFindings[T]()
        if self._choice.split == "heldout":  # most games are dropped here, before their moves are read
            members = [raw for raw in raws if raw.defect or in_split(raw.id, "heldout")]
            findings.rejected["split"] += len(raws) - len(members)
            raws = members
        games = read_games(raws, self._source, chess960=self._chess960)
        for raw, game in zip(raws, games, strict=True):
            if isinstance(game, SkippedGame):
                findings.skipped[game.defect.value] += 1
                findings.first_skipped.append(game)
            elif not in_split(game.game.id, self._choice.split):
                findings.rejected["split"] += 1
            else:
                findings.sound += 1
                findings.candidates.extend(self.candidates(game, raw))
        findings.first_skipped = findings.first_skipped[:SKIPPED_NAMED]
        return findings

    @abstractmethod
    def candidates(self, played: SoundGame, raw: RawGame) -> Iterator[SamplingCandidate[T]]:
        """The candidates of one sound game."""


class PositionFinder(CandidateFinder[Position]):
    """Finds the candidates of a recipe for positions."""

    def __init__(self, recipe: PositionRecipe, location: str) -> None:
        super().__init__(recipe, location)
        self._recipe = recipe

    def candidates(self, played: SoundGame, raw: RawGame) -> Iterator[SamplingCandidate[Position]]:
        game, recipe = played.game, self._recipe
        random_number = splitmix64(recipe.seed, int(game.id, 16))
        for phase in range(len(PHASES)):
            drawn = _shuffled(self._plies_of(game.phases, phase), splitmix64(random_number, phase))
            if recipe.choices_min > 1:
                drawn = (ply for ply in drawn if played.choices(ply) >= recipe.choices_min)
            for ply in islice(drawn, recipe.per_game):
                fen = played.fen(ply)
                yield SamplingCandidate(position_key(fen), game.number, game.position(ply, fen=fen))

    def _plies_of(self, phases: bytes, phase: int) -> Sequence[int]:
        """The plies of a phase, between `ply_min` and `ply_max`."""
        first, last = self._recipe.ply_min, self._recipe.ply_max
        end = len(phases) if last is None else min(len(phases), last + 1)
        start, count = phases.find(phase, first, end), phases.count(phase, first, end)
        if phases[start : start + count] == bytes([phase]) * count:  # contiguous, except after promotions
            return range(start, start + count)
        return [ply for ply in range(first, end) if phases[ply] == phase]


def _shuffled(plies: Sequence[int], random_number: int) -> Iterator[int]:
    """Yields all plies in an order set by `random_number`. The first is fast: often only it is used."""
    if plies:
        yield plies[random_number * len(plies) // _WORD]
    remaining = list(plies)
    while remaining:
        remaining.pop(random_number * len(remaining) // _WORD)
        random_number = splitmix64(random_number, len(remaining))
        if remaining:
            yield remaining[random_number * len(remaining) // _WORD]

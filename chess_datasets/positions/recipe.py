"""The settings that determine a set of positions or games, besides the files that it is drawn from."""

import math
import random
from dataclasses import astuple, dataclass, field
from typing import Literal

from chess_datasets.pgn.tags import Filters
from rookery.errors import InvalidInput
from rookery.prompt import GAME_STYLES
from rookery.trace import Phase, Split


@dataclass(frozen=True, slots=True)
class Shares:
    """The weight of each phase among the positions drawn. The weights need not add up to one. Raises
    `InvalidInput` if a weight is negative or not finite, or all are 0."""

    opening: float = 0.2
    middlegame: float = 0.6
    endgame: float = 0.2

    def __post_init__(self) -> None:
        weights = astuple(self)
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
            raise InvalidInput(f"shares {weights}: none may be negative, and one must be above 0")

    def of(self, phase: Phase) -> float:
        """The share of a phase among all positions, in [0, 1]."""
        weights = {
            Phase.OPENING: self.opening,
            Phase.MIDDLEGAME: self.middlegame,
            Phase.ENDGAME: self.endgame,
        }
        return weights[phase] / sum(weights.values())

    def draw(self, rng: random.Random) -> Phase:
        # Python only guarantees that `random()` stays the same in every version.
        point = rng.random()
        for phase in (Phase.OPENING, Phase.MIDDLEGAME):
            point -= self.of(phase)
            if point < 0:
                return phase
        return Phase.ENDGAME

    def split(self, count: int) -> dict[Phase, int]:
        """Splits `count` among the phases: rounded down, then the rest by the largest remainders.

        >>> list(Shares().split(3).values())
        [1, 2, 0]
        """
        parts = {phase: math.floor(count * self.of(phase)) for phase in Phase}
        rest = sorted(Phase, key=lambda phase: parts[phase] - count * self.of(phase))
        for phase in rest[: count - sum(parts.values())]:
            parts[phase] += 1
        return parts


@dataclass(frozen=True, slots=True)
class PositionRecipe:
    """What determines the positions, besides the files: settings of `rookery data sample`. Whether a game is
    read depends only on the seed and the game."""

    count: int
    seed: int = 0
    games: float = 1.0
    per_game: int = 1
    split: Split = "train"
    shares: Shares = field(default_factory=Shares)
    filters: Filters = field(default_factory=Filters)
    ply_min: int = 0
    ply_max: int | None = None
    choices_min: int = 1

    def __post_init__(self) -> None:
        if self.count < 1 or self.per_game < 1 or self.choices_min < 1:
            raise InvalidInput(f"count, per_game and choices_min are at least 1: {self!r}")
        if not 0 < self.games <= 1:
            raise InvalidInput(f"games {self.games!r} is not in (0, 1]")
        if self.ply_max is not None and self.ply_max < self.ply_min:
            raise InvalidInput(f"plies from {self.ply_min} to {self.ply_max}: the first is after the last")


Form = Literal["pgn", "json", "moves"]


@dataclass(frozen=True, slots=True)
class GamesRecipe:
    """The settings that determine a set of games, besides its files. `style` is for the form `moves`. Raises
    `InvalidInput` if the style is not one of whole games."""

    count: int = 1 << 40
    seed: int = 0
    form: Form = "pgn"
    style: str = "game-san"
    split: Split = "train"
    filters: Filters = field(default_factory=Filters)
    games: float = 1.0

    def __post_init__(self) -> None:
        if self.style not in GAME_STYLES:
            raise InvalidInput(f"style {self.style!r} shows no whole games: {', '.join(GAME_STYLES)} do")


def splitmix64(seed: int, number: int) -> int:
    """A pseudo-random 64-bit number. For each seed, it is a permutation of the 64-bit numbers. The finalizer
    of SplitMix64 (Steele, Lea and Flood, 2014), after an odd step for the seed."""
    mixed = (number + (2 * seed + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed ^ mixed >> 31

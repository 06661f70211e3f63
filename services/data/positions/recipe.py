"""The settings that determine a set of positions, besides the files it is drawn from."""

from dataclasses import dataclass, field

from rookery.errors import InvalidInput
from services.data.pgn.filters import Filters
from services.data.pgn.games import Split
from services.data.positions.sampler import Shares

_BITS = 64


@dataclass(frozen=True, slots=True)
class PositionRecipe:
    """How many positions to draw, and from which games. Same files, recipe and versions, same bytes."""

    count: int
    seed: int = 0
    games: float = 1.0
    """The share of games that is read. Whether a game is read depends only on the seed and the game."""
    per_game: int = 1
    """The most positions of one phase from one game."""
    split: Split = "train"
    shares: Shares = field(default_factory=Shares)
    filters: Filters = field(default_factory=Filters)
    ply_min: int = 0
    """The least number of half-moves before a position."""
    ply_max: int | None = None
    choices_min: int = 1
    """The least number of legal moves; 2 leaves out positions with a forced move."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.per_game < 1 or self.choices_min < 1:
            raise InvalidInput(f"count, per_game and choices_min are at least 1: {self!r}")
        if not 0 < self.games <= 1:
            raise InvalidInput(f"games {self.games!r} is not in (0, 1]")
        if self.ply_max is not None and self.ply_max < self.ply_min:
            raise InvalidInput(f"plies from {self.ply_min} to {self.ply_max}: there are none")


def chance(seed: int, number: int) -> int:
    """A pseudo-random 64-bit number. For each seed, it is a permutation of the 64-bit numbers.

    The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), after an odd step for the seed.
    """
    mixed = (number + (2 * seed + 1) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed ^ mixed >> 31

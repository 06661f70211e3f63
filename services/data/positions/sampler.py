"""Chooses the positions to draw from games, by phase and seed. Terminal positions are never drawn.

`pick` chooses plies of games in memory, without replacement.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from rookery.errors import InvalidInput
from rookery.trace import Phase
from services.data.pgn.games import Game


@dataclass(frozen=True, slots=True)
class Shares:
    """The weight of each phase among the positions drawn. The weights need not add up to one.

    Raises:
        InvalidInput: a weight is negative or not finite, or all are 0.
    """

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


def pick(games: Sequence[Game], *, count: int, seed: int, shares: Shares) -> list[list[int]]:
    """For each game, the plies drawn from it, in order. Fewer than `count` in all if a phase runs out.

    Every ply of a phase is equally likely, whatever game it is in.
    """
    picked: list[list[int]] = [[] for _ in games]
    for phase, wanted in shares.split(count).items():
        plies = [game.plies(phase) for game in games]
        total = sum(map(len, plies))
        chosen = sorted(random.Random(f"{seed}:{phase}").sample(range(total), min(total, wanted)))
        _deal(chosen, plies, picked)
    return [sorted(plies) for plies in picked]


def _deal(chosen: Sequence[int], plies: Sequence[Sequence[int]], picked: Sequence[list[int]]) -> None:
    """Maps numbers that count the plies of all games to their game and ply, and adds these to `picked`."""
    game = first = 0
    for number in chosen:
        while number >= first + len(plies[game]):
            first += len(plies[game])
            game += 1
        picked[game].append(plies[game][number - first])

"""How a judged answer becomes a number: the schemes, by name, and the price of an answer without a move.

A scheme sees the regret only; every outcome but a legal move costs the same under all of them, and
more than the worst legal move under any.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rookery.errors import InvalidInput
from rookery.trace import Outcome

WRONG_MOVE = -1.2
"""A move was named, but it is not one legal move. Below -1, the worst a legal move can earn."""

NO_MOVE = -1.5
"""No move was named, so naming an illegal one is already progress."""

PENALTIES: Mapping[Outcome, float] = MappingProxyType(
    {
        Outcome.ILLEGAL: WRONG_MOVE,
        Outcome.AMBIGUOUS: WRONG_MOVE,
        Outcome.NULL_MOVE: WRONG_MOVE,
        Outcome.UNPARSABLE: NO_MOVE,
        Outcome.EMPTY_BOX: NO_MOVE,
        Outcome.TOO_LONG: NO_MOVE,
        Outcome.NO_BOX: NO_MOVE,
        Outcome.TRUNCATED: NO_MOVE,
    }
)

DEFAULT = "delta"


@dataclass(frozen=True, slots=True)
class Scheme:
    """A named quality of a legal move. `version` rises whenever a number it gives changes."""

    name: str
    version: int
    quality: Callable[[float], float]

    @property
    def id(self) -> str:
        """As it stands in `reward_version`: `delta-1`."""
        return f"{self.name}-{self.version}"


def _delta(regret: float) -> float:
    return 0.0 - regret  # not -regret: the best move earns 0.0, never -0.0


def _best(regret: float) -> float:
    return 1.0 if regret == 0.0 else 0.0


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {scheme.name: scheme for scheme in (Scheme("delta", 1, _delta), Scheme("best", 1, _best))}
)
"""`delta`: the change in win probability, in [-1, 0]. `best`: 1 for a move no worse than the best, else 0."""


def find_scheme(name: str) -> Scheme:
    """The scheme called `name`.

    Raises:
        InvalidInput: there is none.
    """
    try:
        return SCHEMES[name]
    except KeyError:
        raise InvalidInput(f"no scheme {name!r}: choose from {', '.join(SCHEMES)}") from None

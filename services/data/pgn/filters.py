"""Filters games by their tags, without reading their moves."""

from collections.abc import Callable
from dataclasses import dataclass

from rookery.errors import InvalidInput
from services.data.pgn.facts import Facts, Speed
from services.data.pgn.games import CHESS960_NAMES, STANDARD_NAMES

STANDARD = "standard"
CHESS960 = "chess960"


@dataclass(frozen=True, slots=True)
class Filters:
    """Bounds are inclusive; None or an empty value is no bound. A game whose tag is missing fails a bound.

    Raises:
        InvalidInput: a lower bound is above its upper bound.
    """

    elo_min: int | None = None
    """Bounds for the rating of each player."""
    elo_max: int | None = None
    elo_gap_max: int | None = None
    """The largest difference between the players' ratings."""
    base_s_min: int | None = None
    base_s_max: int | None = None
    increment_s_min: int | None = None
    increment_s_max: int | None = None
    speeds: tuple[Speed, ...] = ()
    results: tuple[str, ...] = ()
    """As in the tag: 1-0, 0-1, 1/2-1/2, *."""
    terminations: tuple[str, ...] = ()
    """As in the tag, in lower case: normal, time forfeit, abandoned, ..."""
    variants: tuple[str, ...] = (STANDARD,)
    """Any of standard and chess960."""
    events: str = ""
    """Text that the Event tag must contain, such as `rated`; case is ignored."""
    bots: bool = True
    """Whether games with a player whose title is BOT are wanted."""
    evals: bool = False
    """Whether only games with `[%eval ...]` are wanted."""

    def __post_init__(self) -> None:
        for name in ("elo", "base_s", "increment_s"):
            least, most = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if least is not None and most is not None and least > most:
                raise InvalidInput(f"{name} from {least} to {most}: no game has it")

    def rejects(self, facts: Facts) -> str | None:
        """The name of the first filter that a game fails, or None if it passes all."""
        return next((name for name, passes in _TESTS.items() if not passes(self, facts)), None)


def _elo(filters: Filters, facts: Facts) -> bool:
    bounds = filters.elo_min, filters.elo_max
    return _within(facts.white_elo, *bounds) and _within(facts.black_elo, *bounds)


def _elo_gap(filters: Filters, facts: Facts) -> bool:
    if filters.elo_gap_max is None:
        return True
    if facts.white_elo is None or facts.black_elo is None:
        return False
    return abs(facts.white_elo - facts.black_elo) <= filters.elo_gap_max


def _variant(filters: Filters, facts: Facts) -> bool:
    name = STANDARD if facts.variant in STANDARD_NAMES else facts.variant
    return (CHESS960 if name in CHESS960_NAMES else name) in filters.variants


def _within(value: int | None, least: int | None, most: int | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


_TESTS: dict[str, Callable[[Filters, Facts], bool]] = {
    "variant": _variant,
    "elo": _elo,
    "elo_gap": _elo_gap,
    "base": lambda filters, facts: _within(facts.base_s, filters.base_s_min, filters.base_s_max),
    "increment": lambda filters, facts: _within(
        facts.increment_s, filters.increment_s_min, filters.increment_s_max
    ),
    "speed": lambda filters, facts: not filters.speeds or facts.speed in filters.speeds,
    "result": lambda filters, facts: not filters.results or facts.result in filters.results,
    "termination": lambda filters, facts: (
        not filters.terminations or facts.termination in filters.terminations
    ),
    "event": lambda filters, facts: filters.events.lower() in facts.event.lower(),
    "bot": lambda filters, facts: filters.bots or not facts.bot,
    "eval": lambda filters, facts: not filters.evals or facts.evals,
}

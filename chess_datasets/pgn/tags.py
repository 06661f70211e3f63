"""Reads the tags of a game from its bytes, and filters games by them without reading their moves."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from rookery.encoding import decode
from rookery.errors import InvalidInput
from rookery.pgn.rawgame import RawGame
from rookery.pgn.reader import CHESS960_NAMES, STANDARD_NAMES

MAX_ELO = 5000
"""No player is rated this high, so larger numbers are not taken for ratings."""

# As in python-chess, other lines in brackets are ignored. The pattern begins with a character and then checks
# with a lookbehind that it starts a line: this is several times as fast as a pattern that begins with "^".
_TAG_PAIR = re.compile(
    rb'\[(?<![^\n]\[)([A-Za-z0-9][A-Za-z0-9_+#=:-]*)[ \t]+"([^\r\n]*)"\][ \t\r]*$', re.MULTILINE
)
_CLOCK = re.compile(r"(\d{1,6})(?:\+(\d{1,4}))?")
_MOVES_OF_A_GAME = 40
_CACHED = 1024
_SHORT_BYTES = 1 << 14


class Speed(StrEnum):
    """Lichess's classes of time control, by the seconds that one player has for forty moves. Source:
    scalachess, `core/src/main/scala/Speed.scala`."""

    ULTRABULLET = "ultrabullet"
    BULLET = "bullet"
    BLITZ = "blitz"
    RAPID = "rapid"
    CLASSICAL = "classical"
    CORRESPONDENCE = "correspondence"


_SPEED_LIMITS_S = (
    (30, Speed.ULTRABULLET),
    (180, Speed.BULLET),
    (480, Speed.BLITZ),
    (1500, Speed.RAPID),
    (21_600, Speed.CLASSICAL),
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a game from its tags. Fields are None or empty if the tags do not say."""

    white_elo: int | None = None
    black_elo: int | None = None
    base_s: int | None = None
    increment_s: int | None = None
    speed: Speed | None = None
    result: str = ""
    termination: str = ""
    """In lower case."""
    variant: str = ""
    """In lower case."""
    event: str = ""
    bot: bool = False
    """Whether a player has the title BOT."""
    evals: bool = False
    """Whether the moves carry `[%eval ...]`."""

    @property
    def elo_gap(self) -> int | None:
        return self.white_elo and self.black_elo and abs(self.white_elo - self.black_elo)


def read_facts(raw: RawGame) -> Facts:
    """The facts of a game. Recent results are cached, because filter and parser ask for the same games.

    >>> read_facts(RawGame(1, b'[WhiteElo "1500"]\\n[TimeControl "180+2"]\\n\\n1. e4 *')).speed.value
    'blitz'
    """
    return _read_cached(raw) if len(raw.data) < _SHORT_BYTES else _read(raw)


def _read(raw: RawGame) -> Facts:
    tags, moves = raw.sections()
    values = dict(_TAG_PAIR.findall(tags))

    def tag(name: bytes) -> str:
        return decode(values.get(name, b""))

    base_s, increment_s, speed = _read_clock(tag(b"TimeControl"))
    return Facts(
        white_elo=read_elo(tag(b"WhiteElo")),
        black_elo=read_elo(tag(b"BlackElo")),
        base_s=base_s,
        increment_s=increment_s,
        speed=speed,
        result=tag(b"Result"),
        termination=tag(b"Termination").lower(),
        variant=tag(b"Variant").lower(),
        event=tag(b"Event"),
        bot=b"BOT" in (values.get(b"WhiteTitle"), values.get(b"BlackTitle")),
        evals=b"[%eval" in moves,
    )


_read_cached = lru_cache(_CACHED)(_read)


def read_elo(tag: str) -> int | None:
    """The rating in a tag, or None if it contains none."""
    digits = len(tag) < 6 and tag.isascii() and tag.isdecimal()
    return int(tag) if digits and 0 < int(tag) < MAX_ELO else None


def speed_of(base_s: int, increment_s: int) -> Speed:
    """The class of a time control.

    >>> speed_of(180, 0).value, speed_of(0, 1).value, speed_of(900, 15).value
    ('blitz', 'bullet', 'classical')
    """
    estimate_s = base_s + _MOVES_OF_A_GAME * increment_s
    return next((speed for limit_s, speed in _SPEED_LIMITS_S if estimate_s < limit_s), Speed.CORRESPONDENCE)


def _read_clock(tag: str) -> tuple[int | None, int | None, Speed | None]:
    """Base, increment and class. Lichess writes `-` for correspondence games."""
    if tag == "-":
        return None, None, Speed.CORRESPONDENCE
    clock = _CLOCK.fullmatch(tag)
    if not clock:
        return None, None, None
    base_s, increment_s = int(clock[1]), int(clock[2] or 0)
    return base_s, increment_s, speed_of(base_s, increment_s)


STANDARD = "standard"
CHESS960 = "chess960"


@dataclass(frozen=True, slots=True)
class Filters:
    """As the settings of `rookery data` say. Bounds are inclusive; None or an empty value is no bound. A game
    whose tag is missing fails a bound. Raises `InvalidInput` if a lower bound is above its upper bound."""

    elo_min: int | None = None
    elo_max: int | None = None
    elo_gap_max: int | None = None
    base_s_min: int | None = None
    base_s_max: int | None = None
    speeds: tuple[Speed, ...] = ()
    results: tuple[str, ...] = ()
    terminations: tuple[str, ...] = ()
    """In lower case."""
    variants: tuple[str, ...] = (STANDARD,)
    events: str = ""
    bots: bool = True
    evals: bool = False

    def __post_init__(self) -> None:
        for name in ("elo", "base_s"):
            least, most = getattr(self, f"{name}_min"), getattr(self, f"{name}_max")
            if least is not None and most is not None and least > most:
                raise InvalidInput(f"{name} from {least} to {most}: no game has it")

    def rejects(self, facts: Facts) -> str | None:
        """The name of the first filter that a game fails, or None if it passes all."""
        return next((name for name, passes in _TESTS.items() if not passes(self, facts)), None)


def _passes_variant(filters: Filters, facts: Facts) -> bool:
    name = STANDARD if facts.variant in STANDARD_NAMES else facts.variant
    return (CHESS960 if name in CHESS960_NAMES else name) in filters.variants


def _within(value: int | None, least: int | None, most: int | None) -> bool:
    if least is None and most is None:
        return True
    return value is not None and (least is None or value >= least) and (most is None or value <= most)


_TESTS: dict[str, Callable[[Filters, Facts], bool]] = {
    "variant": _passes_variant,
    "elo": lambda filters, facts: (
        _within(facts.white_elo, filters.elo_min, filters.elo_max)
        and _within(facts.black_elo, filters.elo_min, filters.elo_max)
    ),
    "elo_gap": lambda filters, facts: _within(facts.elo_gap, None, filters.elo_gap_max),
    "base": lambda filters, facts: _within(facts.base_s, filters.base_s_min, filters.base_s_max),
    "speed": lambda filters, facts: not filters.speeds or facts.speed in filters.speeds,
    "result": lambda filters, facts: not filters.results or facts.result in filters.results,
    "termination": lambda filters, facts: (
        not filters.terminations or facts.termination in filters.terminations
    ),
    "event": lambda filters, facts: filters.events.lower() in facts.event.lower(),
    "bot": lambda filters, facts: filters.bots or not facts.bot,
    "eval": lambda filters, facts: not filters.evals or facts.evals,
}

"""Voices and lengths: what may be set about a text."""

from dataclasses import dataclass
from typing import Self

from commentary.naming import Person

LENGTHS = {"short": 150, "medium": 330, "long": 620}
"""About what a text of each length comes to, in tokens of a common tokenizer."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A way to speak. The numbers are chances in [0, 1]."""

    name: str
    person: Person
    joins: float
    """That two remarks share a sentence."""
    links: float
    """That a remark is tied to the one before it by a connective."""
    asks: float
    """That a move is brought up by a question."""
    owns: float
    """That a piece is named with its owner."""
    numbers: float
    """That a candidate is written with its move number."""


VOICES = {
    voice.name: voice
    for voice in (
        Voice("notebook", "third", joins=0.15, links=0.08, asks=0.05, owns=0.25, numbers=0.15),
        Voice("annotator", "third", joins=0.5, links=0.3, asks=0.05, owns=0.5, numbers=0.6),
        Voice("coach", "we", joins=0.4, links=0.3, asks=0.3, owns=0.55, numbers=0.15),
        Voice("calculator", "i", joins=0.35, links=0.22, asks=0.35, owns=0.5, numbers=0.2),
    )
}
"""By name: jotted notes, a book's annotator, a coach who says we, a player who thinks aloud."""

_LEAST_WITH_CANDIDATES = 60


@dataclass(frozen=True, slots=True)
class Length:
    """How much is said: remarks about the position, candidates, effects of each, moves of a line."""

    remarks: int
    candidates: int
    effects: int
    plies: int

    @classmethod
    def of(cls, length: str | int) -> Self:
        """`short`, `medium`, `long`, or about so many tokens.

        Below 60 tokens no other candidates are weighed: remarks, then what the best move does. Raises
        `ValueError` if it is neither a name of a length nor a sensible number.
        """
        tokens = LENGTHS.get(length) if isinstance(length, str) else length
        if tokens is None and str(length).isdecimal():
            tokens = int(length)
        if tokens is None or not 30 <= tokens <= 2000:
            raise ValueError(f"no length {length!r}: short, medium, long or 30 to 2000 tokens")
        if tokens < _LEAST_WITH_CANDIDATES:
            return cls(remarks=_between(tokens / 15 - 1, 1, 3), candidates=1, effects=1, plies=0)
        share = (tokens - 100) / 500
        return cls(
            remarks=_between(1 + 6 * share, 1, 9),
            candidates=_between(2.2 + 2 * share, 2, 5),
            effects=_between(1 + 1.6 * share, 1, 3),
            plies=_between(4 + 4 * share, 4, 9),
        )


def _between(value: float, least: int, most: int) -> int:
    return max(least, min(most, round(value)))

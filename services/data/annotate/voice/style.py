"""Voices and lengths: what may be set about a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rookery.errors import InvalidInput

Person = Literal["third", "i", "we"]

_TOKENS = {"short": 150, "medium": 330, "long": 620}
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
    contracts: bool
    """Whether it says `it's`."""


VOICES = {
    voice.name: voice
    for voice in (
        Voice(
            "notebook", "third", joins=0.15, links=0.08, asks=0.05, owns=0.25, numbers=0.15, contracts=False
        ),
        Voice("annotator", "third", joins=0.5, links=0.3, asks=0.05, owns=0.5, numbers=0.6, contracts=False),
        Voice("coach", "we", joins=0.4, links=0.3, asks=0.3, owns=0.55, numbers=0.15, contracts=True),
        Voice("calculator", "i", joins=0.35, links=0.22, asks=0.35, owns=0.5, numbers=0.2, contracts=True),
    )
}
"""By name: jotted notes, a book's annotator, a coach who says we, a player who thinks aloud."""


@dataclass(frozen=True, slots=True)
class Length:
    """How much is said: facts about the position, candidates, ideas of each, moves of a line."""

    facts: int
    candidates: int
    ideas: int
    plies: int

    @classmethod
    def of(cls, length: str | int) -> Length:
        """`short`, `medium`, `long`, or about so many tokens.

        Raises:
            InvalidInput: neither a name of a length nor a sensible number.
        """
        if isinstance(length, str) and length in _TOKENS:
            return cls.of(_TOKENS[length])
        if not isinstance(length, int) or not 60 <= length <= 2000:
            raise InvalidInput(f"no length {length!r}: short, medium, long or 60 to 2000 tokens")
        share = (length - 100) / 500
        return cls(
            facts=_between(1 + 6 * share, 1, 9),
            candidates=_between(2.2 + 2 * share, 2, 5),
            ideas=_between(1 + 1.6 * share, 1, 3),
            plies=_between(4 + 4 * share, 4, 9),
        )


def _between(value: float, least: int, most: int) -> int:
    return max(least, min(most, round(value)))

"""Mutates sound texts, to measure whether the checker finds what is false then.

Each mutation differs from a sound one in a single word: a square, a piece, a side, a count, a move, a
file, a degree. Most such changes make a sentence false; the few that happen to stay true lower the rate.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

_SQUARE = re.compile(r"\b(on |the )([a-h])([1-8])\b(?!=)")
_PIECE = re.compile(r"\b(queen|rook|bishop|knight|pawn)(?=s? on [a-h][1-8]\b)")
_SIDE = re.compile(
    r"\b(White|Black)(?= (?:is|has|wins|loses|drops|picks|gets)\b|"
    r"'s (?:king|queen|rook|bishop|knight|pawn)\b)"
)
_COUNT = re.compile(r"\b(one|two|three|four)(?= (?:legal|steps?|pawns?|of|rooks|knights|bishops|minor)\b)")
_MOVE = re.compile(r"(?<=\d\.)(\.\.)?([KQRBN])(x?[a-h][1-8])")
_FILE = re.compile(r"\b([a-h])(?=-file\b)")
_DEGREE = re.compile(r"\b(slightly better|clearly better|much better|winning|lost)\b")
_DEGREES = ("slightly better", "clearly better", "much better", "winning", "lost")
_PIECES = ("queen", "rook", "bishop", "knight", "pawn")
_COUNTS = ("one", "two", "three", "four", "five")


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text with one word changed: what was there, what is there now."""

    kind: str
    text: str
    before: str
    after: str


def mutations(text: str, rng: random.Random) -> Iterator[Mutation]:
    """One falsehood of each kind for which the text has a place."""
    for kind, pattern in _PATTERNS.items():
        places = list(pattern.finditer(text))
        if places:
            place = rng.choice(places)
            after = _changed(kind, place, rng)
            yield Mutation(kind, text[: place.start()] + after + text[place.end() :], place[0], after)


def _changed(kind: str, place: re.Match[str], rng: random.Random) -> str:
    if kind == "square":
        return f"{place[1]}{place[2]}{_other(place[3], '12345678', rng)}"
    if kind == "move":
        return f"{place[1] or ''}{_other(place[2], 'QRBN', rng)}{place[3]}"
    return _other(place[0], _CHOICES[kind], rng)


def _other(word: str, choices: tuple[str, ...] | str, rng: random.Random) -> str:
    return rng.choice([choice for choice in choices if choice != word])


_PATTERNS = {
    "square": _SQUARE,
    "piece": _PIECE,
    "side": _SIDE,
    "count": _COUNT,
    "move": _MOVE,
    "file": _FILE,
    "degree": _DEGREE,
}
_CHOICES: dict[str, tuple[str, ...] | str] = {
    "piece": _PIECES,
    "side": ("White", "Black"),
    "count": _COUNTS,
    "file": "abcdefgh",
    "degree": _DEGREES,
}

"""Mutates sound texts, to measure whether the checker finds what is false then.

Each mutation differs from a sound one in a single word: a square, a piece, a side, a count, a move, a
file, a degree. Most such changes make a sentence false; the few that happen to stay true lower the rate.
"""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_KINDS: dict[str, tuple[re.Pattern[str], Sequence[str]]] = {
    "square": (re.compile(r"\b(on |the )([a-h])([1-8])\b(?!=)"), "12345678"),
    "piece": (
        re.compile(r"\b(queen|rook|bishop|knight|pawn)(?=s? on [a-h][1-8]\b)"),
        ("queen", "rook", "bishop", "knight", "pawn"),
    ),
    "side": (
        re.compile(
            r"\b(White|Black)(?= (?:is|has|wins|loses|drops|picks|gets)\b|"
            r"'s (?:king|queen|rook|bishop|knight|pawn)\b)"
        ),
        ("White", "Black"),
    ),
    "count": (
        re.compile(r"\b(one|two|three|four)(?= (?:legal|steps?|pawns?|of|rooks|knights|bishops|minor)\b)"),
        ("one", "two", "three", "four", "five"),
    ),
    "move": (re.compile(r"(?<=\d\.)(\.\.)?([KQRBN])(x?[a-h][1-8])"), "QRBN"),
    "file": (re.compile(r"\b([a-h])(?=-file\b)"), "abcdefgh"),
    "degree": (
        re.compile(r"\b(slightly better|clearly better|much better|winning|lost)\b"),
        ("slightly better", "clearly better", "much better", "winning", "lost"),
    ),
}
"""Where a text has a word of each kind, and what may stand there."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text with one word changed, of some kind."""

    kind: str
    text: str


def mutations(text: str, rng: random.Random) -> Iterator[Mutation]:
    """One falsehood of each kind for which the text has a place."""
    for kind, (pattern, choices) in _KINDS.items():
        places = list(pattern.finditer(text))
        if not places:
            continue
        place = rng.choice(places)
        begin, end = place.span({"square": 3, "move": 2}.get(kind, 0))
        after = rng.choice([choice for choice in choices if choice != text[begin:end]])
        yield Mutation(kind, text[:begin] + after + text[end:])

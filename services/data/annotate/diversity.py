"""How varied a set of texts is: distinct word sequences, and the share of the commonest.

Counted twice: on the words as they stand, and with every move, square, file and number masked. The
second is the honest one, because a template filled with other squares is still the same template.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(r"[A-Za-z0-9=#+.'-]+")
_MASKS = (
    (re.compile(r"\d+\.(?:\.\.)?\S+|\.\.\.\S+"), "MOVE"),
    (
        re.compile(r"\b(?:O-O-O|O-O|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h]x[a-h][1-8])[+#]?(?:=[QRBN])?\S*"),
        "MOVE",
    ),
    (re.compile(r"\b[a-h][1-8]\b"), "SQUARE"),
    (re.compile(r"\b[a-h](?=-)"), "FILE"),
    (re.compile(r"\b(?:queen|rook|bishop|knight|pawn|king)(?=s?\b)"), "PIECE"),
    (re.compile(r"\b(?:White|Black)\b"), "SIDE"),
)


@dataclass(frozen=True, slots=True)
class Diversity:
    """`distinct` by length of sequence: distinct sequences to all; `commonest` 5-grams with their share."""

    texts: int
    words: int
    distinct: dict[int, float]
    commonest: tuple[tuple[str, float], ...]
    openings: float
    """Texts whose first four words nobody else has."""


def diversity(texts: Iterable[str], *, masked: bool) -> Diversity:
    """The measures of a set of texts.

    >>> diversity(["a b c d e f", "a b c d e g"], masked=False).distinct[1]
    0.583
    """
    tokens = [_words(text, masked=masked) for text in texts]
    grams = {n: Counter(gram for words in tokens for gram in _grams(words, n)) for n in (1, 2, 3, 5)}
    fives = grams[5].total() or 1
    openings = Counter(tuple(words[:4]) for words in tokens)
    return Diversity(
        texts=len(tokens),
        words=sum(map(len, tokens)),
        distinct={n: round(len(counts) / max(1, counts.total()), 3) for n, counts in grams.items()},
        commonest=tuple((" ".join(gram), count / fives) for gram, count in grams[5].most_common(10)),
        openings=sum(count == 1 for count in openings.values()) / max(1, len(tokens)),
    )


def _words(text: str, *, masked: bool) -> list[str]:
    if masked:
        for pattern, mask in _MASKS:
            text = pattern.sub(mask, text)
    return [word.strip(".,") for word in _WORD.findall(text)]


def _grams(words: list[str], length: int) -> Iterable[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(length)), strict=False)

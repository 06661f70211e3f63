"""Clauses into sentences: capitals and full stops, joints between clauses, contractions."""

import re
from itertools import pairwise

from commentary.names import Names

_SHORT_FORMS = (
    (re.compile(r"\b(it|there|that) is(?= \w)", re.IGNORECASE), r"\1's"),
    (re.compile(r"\bI am(?= \w)"), "I'm"),
    (re.compile(r"\bI have (?=lost|won|the right)"), "I've "),
    (re.compile(r"\bcannot\b"), "can't"),
    (re.compile(r"\b(does|do) not\b"), r"\1n't"),
)
_CONTRACTS = 0.6

ALIKE = ("and", "and", ";")
_AGAINST = ("but", "while", "but")
_ALIKE_OPENERS = (
    "also",
    "besides",
    "what is more",
    "on top of that",
    "in addition",
    "moreover",
    "at the same time",
)
_AGAINST_OPENERS = (
    "but",
    "on the other hand",
    "still",
    "then again",
    "against that",
    "in return",
    "that said",
    "even so",
)


def sentence(text: str, *, end: str = ".") -> str:
    """A sentence: capital first unless it begins with a move, and a stop."""
    text = text.strip()
    if text and not re.match(r"[a-h][1-8x]", text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", ":")) else end)


def together(hand: Names, clauses: list[str]) -> str:
    """Clauses of a kind in one sentence; a subject that stays the same is said once."""
    text = clauses[0]
    for before, clause in pairwise(clauses):
        shorter = _without_subject(hand, before, clause)
        text += f" and {shorter}" if shorter else f", and {clause}"
    return text


def _without_subject(hand: Names, before: str, clause: str) -> str | None:
    for party in (hand.us, hand.them):
        subject = f"{party} "
        if before.startswith(subject) and clause.startswith(subject):
            return clause.removeprefix(subject)
    return None


def join_clauses(hand: Names, first: str, second: str, *, against: bool) -> str:
    """Two clauses in one sentence."""
    conditional = first.startswith(("if ", "given "))  # "while if ..." is no English
    if against and not conditional and hand.chance(0.3):
        return f"{hand.rng.choice(('while', 'although', 'though'))} {first}, {second}"
    if not against and (shorter := _without_subject(hand, first, second)):
        return f"{first} and {shorter}"
    word = hand.rng.choice(_AGAINST if against else ALIKE)
    return f"{first}; {second}" if word == ";" else f"{first}, {word} {second}"


def linked(hand: Names, clause: str, *, against: bool) -> str:
    """A clause that begins with a connective to the sentence before."""
    opener = hand.pick(_AGAINST_OPENERS if against else _ALIKE_OPENERS)
    return f"{opener} {clause}" if opener in ("but", "also") else f"{opener}, {clause}"


def contracted(hand: Names, text: str) -> str:
    """The text with some of its words drawn together, if the voice talks like that."""
    if hand.person == "third":
        return text

    def draw_together(match: re.Match[str]) -> str:
        short = next(short for pattern, short in _SHORT_FORMS if pattern is match.re)
        return match.expand(short) if hand.chance(_CONTRACTS) else match[0]

    for pattern, _ in _SHORT_FORMS:
        text = pattern.sub(draw_together, text)
    return text

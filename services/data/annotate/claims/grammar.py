"""The grammar of claims: forms of clauses, each with the test that decides whether it is true.

A form is written as a pattern: `{pinned:p} is pinned to {behind:p}` has two slots for pieces,
`(a|b)` is a choice, `(a )?` may be left out, `~attack` is any form of a verb. A form has a subject of a kind
or none; the subject may be said before it, be a pronoun, or come from the clause before.

The grammar knows no chess; `services.data.annotate.claims.forms` holds the forms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeVar

from services.data.annotate.claims.scene import Scene, Unresolved
from services.data.annotate.claims.token import Token, marks

Subject = Literal["piece", "group", "side", "move", "line", "file"]
Truth = Callable[..., bool]
T = TypeVar("T", bound=Truth)

SUBJECT_OF = {"p": "piece", "g": "group", "s": "side", "m": "move", "l": "line", "f": "file", "q": "move"}
"""What kind of subject a token is; a line of one move also stands for the move."""

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_COUNT = "|".join((*_NUMBERS, "none", "a", "an", "once", "twice", r"\d+"))
_UNIT = rf"(?:{'|'.join(_NUMBERS[1:])}|an?|the) (?:minor piece|piece|queen|rook|bishop|knight|pawn)s?"
_SLOT = re.compile(r"\{(\w+)(?::([a-z]+)(\*)?)?\}")
_GROUP = re.compile(r"\((?!\?)")
_NAME = re.compile(r"\(\?P<(\w+)>")
_VERB = re.compile(r"~([a-z]+)")
_IRREGULAR = {
    "be": "is|are|am|was|be|being",
    "have": "has|have|had|having",
    "win": "win|wins|winning|won",
    "lose": "lose|loses|losing|lost",
    "take": "take|takes|taking|took|taken",
    "give": "give|gives|giving|gave|given",
    "leave": "leave|leaves|leaving|left",
    "stand": "stand|stands|standing|stood",
    "put": "put|puts|putting",
    "get": "get|gets|getting|got",
    "keep": "keep|keeps|keeping|kept",
    "hit": "hit|hits|hitting",
    "let": "let|lets|letting",
    "bring": "bring|brings|bringing|brought",
    "hold": "hold|holds|holding|held",
    "make": "make|makes|making|made",
    "shut": "shut|shuts|shutting",
    "run": "run|runs|running|ran",
    "go": "go|goes|going",
    "come": "come|comes|coming",
    "sit": "sit|sits|sitting",
    "do": "do|does|doing",
    "cut": "cut|cuts|cutting",
    "pin": "pin|pins|pinning|pinned",
    "step": "step|steps|stepping|stepped",
    "drop": "drop|drops|dropping|dropped",
    "swap": "swap|swaps|swapping|swapped",
    "build": "build|builds|building|built",
    "fall": "fall|falls|falling|fell",
    "cost": "cost|costs|costing",
    "break": "break|breaks|breaking|broke",
    "slip": "slip|slips|slipping",
    "set": "set|sets|setting",
    "drive": "drive|drives|driving",
    "allow": "allow|allows|allowing",
    "fight": "fight|fights|fighting",
    "lie": "lie|lies|lying",
    "tie": "tie|ties|tying|tied",
    "stay": "stay|stays|staying",
    "threaten": "threaten|threatens|threatening",
}


@dataclass(frozen=True, slots=True)
class Form:
    """One way to say something, and how to tell whether it is so."""

    subject: Subject | None
    pattern: re.Pattern[str]
    lists: frozenset[str]
    words: frozenset[str]
    keyword: str
    truth: Truth
    kind: str


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause that was read: its form, the tokens in its slots, its subject."""

    form: Form
    words: str
    slots: dict[str, Any]
    subject: Token | None

    @property
    def topic(self) -> Token | None:
        """What `it` means afterwards: the subject, the move that was brought up, the piece that is about."""
        named = self.slots.get("ms") or self.slots.get("pieces") or self.slots.get("pawns") or [None]
        one = named[-1] if len(named) == 1 or "ms" in self.slots else None
        return self.subject or self.slots.get("m") or one or self.slots.get("p")

    def holds(self, scene: Scene) -> bool:
        """Whether it is true where the reader stands; moves the reader on."""
        scene.meet(self.topic)
        arguments = (self.subject,) if self.form.subject else ()
        try:
            return self.form.truth(scene, *arguments, **self.slots)
        except Unresolved:
            return False


@dataclass(slots=True)
class Grammar:
    """All forms, by the kind of their subject."""

    forms: dict[Subject | None, list[Form]] = field(default_factory=dict)

    def says(self, *patterns: str, subject: Subject | None = None) -> Callable[[T], T]:
        """Registers the decorated test for clauses of these patterns."""

        def register(truth: T) -> T:
            for pattern in patterns:
                self.forms.setdefault(subject, []).append(_form(pattern, subject, truth))
            return truth

        return register

    def match(self, text: str, tokens: list[Token], subject: Subject | None) -> Iterator[tuple[Form, Any]]:
        """Forms of a subject that the whole text fits, with what is in their slots."""
        for form in self.forms.get(subject, ()):
            if form.keyword in text and (match := form.pattern.fullmatch(text)):
                yield form, _slots(form, match, tokens)


def count_of(word: str) -> int:
    """The number a word stands for.

    >>> [count_of(word) for word in ("twice", "a", "three", "none", "12")]
    [2, 1, 3, 0, 12]
    """
    word = {"once": "one", "twice": "two", "a": "one", "an": "one", "none": "no"}.get(word, word)
    return int(word) if word.isdecimal() else _NUMBERS.index(word)


def units_of(words: str) -> Counter[str]:
    """Pieces by name; `piece` is a knight or a bishop.

    >>> sorted(units_of("a rook and two pawns").items())
    [('pawn', 2), ('rook', 1)]
    """
    found: Counter[str] = Counter()
    for number, name in re.findall(r"(\w+) ((?:minor )?\w+?)s?(?=,| and |$)", words):
        found[name.removeprefix("minor ")] += 1 if number == "the" else count_of(number)
    return found


def _form(pattern: str, subject: Subject | None, truth: Truth) -> Form:
    lists = frozenset(name for name, _, many in _SLOT.findall(pattern) if many)
    words = frozenset(name for name, kinds, _ in _SLOT.findall(pattern) if (kinds or name) in "nuw")
    pattern = _distribute(pattern)
    pattern = re.sub(r"\bit\b", r"«i\\d+»", pattern)
    regex = _VERB.sub(_verb, _GROUP.sub("(?:", pattern))
    # A slot may stand in several choices; the groups of a pattern must differ.
    number = count()
    regex = _NAME.sub(lambda match: f"(?P<{match[1]}__{next(number)}>", _SLOT.sub(_slot, regex))
    return Form(subject, re.compile(regex), lists, words, _keyword(pattern), truth, truth.__name__)


def _distribute(pattern: str) -> str:
    """A verb mark before a choice goes to each of its branches.

    >>> _distribute("~(look|take aim) at {p}")
    '(~look|~take aim) at {p}'
    """
    while (begin := pattern.find("~(")) >= 0:
        depth, chars = 0, ["(~"]
        for place in range(begin + 2, len(pattern)):
            char = pattern[place]
            depth += (char == "(") - (char == ")")
            if depth < 0:
                break
            chars.append("|~" if char == "|" and depth == 0 else char)
        pattern = pattern[:begin] + "".join(chars) + pattern[place:]
    return pattern


def _keyword(pattern: str) -> str:
    """The longest piece of a pattern that every match contains."""
    depth, plain = 0, []
    for char in re.sub(r"«[^»]*»|~[a-z]+", "|", _SLOT.sub("|", pattern)):
        depth += (char == "(") - (char == ")")
        plain.append("|" if depth or char == ")" else char)
    return max(re.sub(r".\?", "|", "".join(plain)).split("|"), key=len)


_TOKENS = {"t": "p", "b": "m", "p": "pi", "f": "fi", "a": "ml", "m": "mlq"}
"""Tokens that fit a slot of a kind, where not just its own: `it` may be a piece or a file, and so on."""

_WORDS = {
    "n": _COUNT,
    "u": f"{_UNIT}(?:, {_UNIT})*(?: and {_UNIT})?",
    "w": "[a-z-]+",
}


def _slot(match: re.Match[str]) -> str:
    name, kinds, many = match[1], match[2] or match[1], match[3]
    if kinds in _WORDS:
        return f"(?P<{name}>{_WORDS[kinds]})"
    one = rf"«[{_TOKENS.get(kinds, kinds)}]\d+»"
    return rf"(?P<{name}>{one}(?:, {one})*(?:,? (?:and|or) {one})?)" if many else rf"(?P<{name}>{one})"


def _verb(match: re.Match[str]) -> str:
    verb = match[1]
    if verb in _IRREGULAR:
        return f"(?:{_IRREGULAR[verb]})"
    stem = verb.removesuffix("e")
    third = verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeou" else verb + "e?s"
    past = verb[:-1] + "ied" if third.endswith("ies") else f"{stem}ed"
    double = f"{verb[-1]}?"
    return f"(?:{verb}|{third}|{stem}{double}ing|{past}|{verb}{double}ed)"


def _slots(form: Form, match: re.Match[str], tokens: list[Token]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for group, text in match.groupdict().items():
        name = group.split("__")[0]
        if text is None:
            continue
        if name in form.words or "«" not in text:
            filled[name] = text
        else:
            found = [tokens[number] for _, number in marks(text)]
            filled[name] = found if name in form.lists else found[0]
    return filled

"""Templates: written once, they render a claim and read it.

`{pawn} ~be isolated` has a slot and a verb. A slot's type follows a colon where it is not `piece` or its
own name: `{pawns:squares}`. `~be` is put into form: after its subject, in -ing, or bare; it is read in
every form, in the past only of moves. `(a|b)` is a choice; what follows `||` in it is read but not written,
and `(a)?` is read but not written too; a template after `>` is only written, and read as the
two claims that it joins; one after `<` is only read, anywhere in a clause of a sentence
that is not understood as a whole.
`~(win|pick up)` marks the verb of each choice. A slot without a value
rules out what it stands in. `coach|...` is written by one voice only.

Four names say what a slot must hold, so that no truth checks it: `us` and `them` are the side to move in
the position and the other one; `moved` and `here` are the piece that a move has moved, and its square.

A template that begins with a slot for a piece, side, move, line or file has that as its subject, which may
also be said before, be a pronoun, or come from the clause before.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Self

from commentary.naming import Naming, gerund, plural, third
from commentary.slots import TYPES, SlotType, Subject

_VOICES = re.compile(r"^([a-z,]+)\|")
_ITEM = re.compile(r"\{(\w+)(?::(\w+))?\}|~([a-z]+)|(~?\()|(\|\|?)|(\)\??)")
_PASTS = dict(
    re.findall(
        r"(\w+) ([\w|]+)",
        "be was, have had, do did, go went, come came, win won, lose lost, take took|taken, "
        "give gave|given, leave left, stand stood, keep kept, bring brought, hold held, make made, run ran, "
        "fall fell, break broke, build built, fight fought, lie lay, sit sat, get got, meet met",
    )
)
"""Irregular forms of the past, by the infinitive."""

Form = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot and its type."""

    name: str
    type: SlotType


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb by its infinitive."""

    infinitive: str


@dataclass(frozen=True, slots=True)
class Choice:
    """Alternatives, the first `written` of which are used in writing."""

    options: tuple[tuple[Any, ...], ...]
    written: int


@dataclass(frozen=True)
class Template:
    """A template. `clause` reads the whole of it, `predicate` what follows the subject.

    Each is compiled when it is first read with: all of them would take longer than the rest of a start.
    """

    source: str
    items: tuple[Any, ...]
    voices: tuple[str, ...]
    subject: Slot | None
    keyword: str
    slots: Mapping[str, SlotType] = field(repr=False)
    written: bool
    read: bool
    within: bool

    @classmethod
    def of(cls, source: str, start: str = "") -> Self:
        """Parses a template, with `start` before it; after `||` and `<` only read, after `>` only written."""
        voices = _VOICES.match(source)
        items = _parsed(
            start + (source[voices.end() :] if voices else source.removeprefix("||").lstrip("<>"))
        )
        first = items[0]
        subject = first if isinstance(first, Slot) and first.type.subject and items[1:] else None
        rest = items[1:] if subject else items
        return cls(
            source,
            items,
            tuple(voices[1].split(",")) if voices else (),
            subject=subject,
            keyword=_keyword(rest),
            slots={slot.name: slot.type for slot in _slots(items)},
            written=not source.startswith(("||", "<")),
            read=not source.startswith(">"),
            within=source.startswith("<"),
        )

    @cached_property
    def clause(self) -> re.Pattern[str]:
        return re.compile(self._pattern(self.items))

    @cached_property
    def predicate(self) -> re.Pattern[str] | None:
        return re.compile(self._pattern(_trimmed(self.items[1:]))) if self.subject else None

    @cached_property
    def anywhere(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w»-]){self._pattern(self.items)}(?![\w-])")

    @cached_property
    def beginning(self) -> re.Pattern[str]:
        """What follows a subject that stands before the clause."""
        return re.compile(
            r"^(?:(?:this|that|«i\d+»|the)(?: move| option| capture)? )?"
            rf"{self._pattern(_trimmed(self.items[1:]))}(?![\w-])"
        )

    def _pattern(self, items: tuple[Any, ...]) -> str:
        # What a move did, it does. What a position was, it need not be.
        return _pattern(items, count(), past=self.about in ("move", "line"))

    @property
    def about(self) -> Subject | None:
        """What kind of thing its subject is."""
        return self.subject.type.subject if self.subject else None

    def fits(self, naming: Naming, values: Mapping[str, Any]) -> bool:
        """Whether the voice may write it with these values."""
        in_voice = not self.voices or naming.voice in self.voices
        return in_voice and self.written and _possible(self.items, values)

    def write(self, naming: Naming, values: Mapping[str, Any]) -> str:
        """A clause, without capital and full stop."""
        form: Form = third
        if self.subject:
            value = values[self.subject.name]
            if self.subject.type.subject == "side":
                form = naming.side(value).verb
            elif isinstance(value, list | tuple) and self.about in ("pieces", "file") and len(value) > 1:
                form = plural
        return _written(self.items, naming, values, form)

    def do(self, naming: Naming, values: Mapping[str, Any]) -> str:
        """What follows the subject, with its verbs still to be put into form: `~take the pawn`."""
        items = _trimmed(self.items[1:]) if self.subject else self.items
        return _written(items, naming, values, lambda infinitive: f"~{infinitive}")


def finite(verb_phrase: str, form: Form = third) -> str:
    """A verb phrase with its marked verbs in the present: `~take the pawn` becomes `takes the pawn`."""
    return re.sub(r"~([a-z]+)", lambda match: form(match[1]), verb_phrase)


def infinitive(verb_phrase: str) -> str:
    """A verb phrase with its marked verbs in the infinitive."""
    return finite(verb_phrase, str)


def participle(verb_phrase: str) -> str:
    """A verb phrase with its marked verbs in -ing.

    >>> participle("~queen, ~take the pawn and ~give check")
    'queening, taking the pawn and giving check'
    """
    return finite(verb_phrase, gerund)


# -- compiling -----------------------------------------------------------------------------------


def _parsed(text: str) -> tuple[Any, ...]:
    """The items of a template, by recursive descent."""
    if text.count("(") != text.count(")"):
        raise ValueError(f"an unmatched parenthesis in template {text!r}")
    if text.count("?") != text.count(")?"):
        raise ValueError(f"a question mark that follows no parenthesis in template {text!r}")
    return _sequence(text, 0)[0][0][0]


def _sequence(text: str, start: int) -> tuple[tuple[list[tuple[Any, ...]], int], int]:
    """Alternatives from `start` to a closing parenthesis, how many are written, and where they end."""
    options: list[list[Any]] = [[]]
    written, place = 0, start
    while match := _ITEM.search(text, place):
        options[-1] += [text[place : match.start()]] if match.start() > place else []
        place = match.end()
        if match[4]:
            choice, place = _choice(text, place, verbs=match[4] == "~(")
            options[-1].append(choice)
        elif match[5]:
            written = len(options) if match[5] == "||" else written
            options.append([])
        elif match[6]:
            break
        else:
            options[-1].append(_leaf(match))
    else:
        options[-1] += [text[place:]] if text[place:] else []
        place = len(text)
    return ([tuple(option) for option in options], written or len(options)), place


def _choice(text: str, start: int, *, verbs: bool) -> tuple[Choice, int]:
    (options, written), end = _sequence(text, start)
    if verbs:
        options = [_with_verb(option) for option in options]
    if text[end - 2 : end] == ")?":
        options, written = [(), *options], 1
    return Choice(tuple(options), written), end


def _leaf(match: re.Match[str]) -> Slot | Verb:
    if match[3]:
        return Verb(match[3])
    if match[2] and match[2] not in TYPES:
        raise ValueError(f"no slot type {match[2]!r} in template {match.string!r}")
    return Slot(match[1], TYPES.get(match[2] or match[1], TYPES["piece"]))


def _with_verb(option: tuple[Any, ...]) -> tuple[Any, ...]:
    word, space, rest = option[0].partition(" ")
    return (Verb(word), *([space + rest] if space else []), *option[1:])


def _trimmed(items: tuple[Any, ...]) -> tuple[Any, ...]:
    first = items[0].lstrip() if isinstance(items[0], str) else items[0]
    return (first, *items[1:]) if first else items[1:]


def _pattern(items: tuple[Any, ...], numbers: Iterator[int], *, past: bool) -> str:
    parts = []
    for item in items:
        if isinstance(item, str):
            parts.append(re.sub(r"\bit\b", r"«i\\d+»", re.escape(item.lower()).replace(r"\ ", " ")))
        elif isinstance(item, Slot):
            # A slot may stand in several choices; the groups of a pattern must differ.
            parts.append(f"(?P<{item.name}__{next(numbers)}>{item.type.pattern})")
        elif isinstance(item, Verb):
            parts.append(_forms(item.infinitive, past=past))
        else:
            parts.append(f"(?:{'|'.join(_pattern(option, numbers, past=past) for option in item.options)})")
    return "".join(parts)


def _forms(verb: str, *, past: bool) -> str:
    present = "be|are|am|is|being" if verb == "be" else f"{verb}|{third(verb)}|{gerund(verb)}"
    if not past:
        return f"(?:{present})"
    stem = verb.removesuffix("e")
    regular = verb[:-1] + "ied" if third(verb).endswith("ies") else f"{stem}{verb[-1]}?ed"
    return f"(?:{present}|{_PASTS.get(verb) or f'{regular}|{stem}ed'})"


def _keyword(items: tuple[Any, ...]) -> str:
    """The longest word that every match contains."""
    words = [word for item in items if isinstance(item, str) for word in re.findall(r"[a-z-]+", item.lower())]
    return max((word for word in words if word != "it"), key=len, default="")


def _slots(items: tuple[Any, ...]) -> Iterator[Slot]:
    for item in items:
        if isinstance(item, Slot):
            yield item
        elif isinstance(item, Choice):
            for option in item.options:
                yield from _slots(option)


# -- writing -------------------------------------------------------------------------------------


def _possible(items: tuple[Any, ...], values: Mapping[str, Any]) -> bool:
    for item in items:
        if isinstance(item, Slot) and values.get(item.name) is None:
            return False
        if isinstance(item, Choice) and not any(
            _possible(option, values) for option in item.options[: item.written]
        ):
            return False
    return True


def _written(items: tuple[Any, ...], naming: Naming, values: Mapping[str, Any], form: Form) -> str:
    parts = []
    for item in items:
        if isinstance(item, str):
            parts.append(item)
        elif isinstance(item, Slot):
            parts.append(item.type.render(naming, values[item.name]))
            # Later verbs go with what was named last.
            if item.type.name == "side" and form is third:
                form = naming.side(values[item.name]).verb
            elif item.type.subject == "pieces" and form in (third, plural):
                form = plural if len(values[item.name]) > 1 else third
        elif isinstance(item, Verb):
            parts.append(form(item.infinitive))
        else:
            open_to = [n for n in range(item.written) if _possible(item.options[n], values)]
            keys = [f"{id(item)} {n}" for n in open_to]
            chosen = open_to[naming.least_used(keys) if len(keys) > 1 else 0]
            parts.append(_written(item.options[chosen], naming, values, form))
    return "".join(parts)

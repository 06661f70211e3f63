"""From sentences to clauses: openers taken off, sentences split at their joints, subjects handed on.

A sentence is understood when it falls into clauses that all fit a template. What is left over is reported,
never guessed at.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from commentary import wording
from commentary.concept import Concept
from commentary.slots import Subject
from commentary.template import Template
from commentary.token import Lexed, Token, lex, marks

_RELATIVES = ("which ", "who ", "where ")
_UNCLEAR = ("which ", "who ", "that ", "they ", "these ", "those ")
_KINDS: dict[str, tuple[Subject, ...]] = {
    "p": ("piece",),
    "g": ("pieces",),
    "s": ("side",),
    "m": ("move",),
    "q": ("move",),
    "l": ("line",),
    "f": ("file",),
}
_ONE_PIECE = re.compile(r"«[pi]\d+» (?!and )")
_NAMED = ("piece", "pieces", "prey", "before")
_MOST_STEPS = 3000
"""Parts of a sentence that are looked at before it is given up: none that was written here needs 1,000."""

_TEXT_STEPS = 6000
"""Steps of a whole text: a part of it counts one, and one more for each `_STEP_CHARS`; a claim that is
checked counts `_CLAIM_STEPS`. Texts written here need 1,100, replies of models of 15,000 characters 900."""

_UNSURE = ("i", "q")
"""Beginnings of a clause that may be about something else: what "it" is, or where a walk ends."""

_WAYS = {"mention", "origin"}
_PLACED = {"piece", "squares"}
_NEAR = 50
"""Characters before a part of a sentence in which a word may deny it, or make it a goal."""

_STEP_CHARS = 50
_CLAIM_STEPS = 20


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause that was read; `start` and `end` are its place in the sentence."""

    concept: Concept
    template: Template
    words: str
    start: int
    end: int
    slots: tuple[tuple[str, Any], ...]
    subject: Token | None
    doubted: bool = False
    """Whether something before it in the sentence may move it to another position."""

    @property
    def topic(self) -> Token | None:
        """What `it` means afterwards: the subject, the move that was brought up, the piece that is about."""
        types = {name: self.template.slots[name].name for name, _ in self.slots}
        moves = [tokens[-1] for name, tokens in self.slots if types[name] in ("move", "candidates")]
        if self.concept.name == "can move":
            return None  # what follows may be about where it goes
        if moves or self.subject is not None:
            return moves[-1] if moves else None if self.template.about == "line" else self.subject
        single = {
            name: tokens[0] for name, tokens in self.slots if types[name] in _NAMED and len(tokens) == 1
        }
        return single.get("piece") or next(iter(single.values()), None)


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of the lexed sentence, from `start` to `end`; not `exact` after words were changed."""

    text: str
    start: int
    end: int
    exact: bool = True

    def cut(self, begin: int, end: int | None = None) -> "_Part":
        """A shorter stretch, without blanks around it."""
        piece = self.text[begin:end]
        begin += len(piece) - len(piece.lstrip())
        piece = piece.strip()
        if not self.exact:
            return _Part(piece, self.start, self.end, exact=False)
        return _Part(piece, self.start + begin, self.start + begin + len(piece))


Entry = tuple[Concept, Template]


@dataclass(frozen=True)
class Grammar:
    """All templates: those matched with a whole clause, and those about something by its kind. What the
    writer writes comes before what is only read."""

    bare: tuple[Entry, ...]
    about: Mapping[Subject, tuple[Entry, ...]]
    within: tuple[Entry, ...]

    @classmethod
    def of(cls, concepts: Iterable[Concept]) -> Self:
        """Sorts the templates of some concepts."""
        bare: list[Entry] = []
        about: dict[Subject, list[Entry]] = {}
        readable = [
            (concept, template) for concept in concepts for template in concept.templates if template.read
        ]
        within = tuple(entry for entry in readable if entry[1].within)
        for entry in sorted(readable, key=lambda entry: not entry[1].written):
            if entry[1].within:
                continue
            kind = entry[1].about
            if kind in (None, "pieces"):
                bare.append(entry)
            for subject in ("piece", "pieces") if kind == "pieces" else (kind,):
                if subject is not None:
                    about.setdefault(subject, []).append(entry)
        return cls(tuple(bare), {kind: tuple(entries) for kind, entries in about.items()}, within)


@dataclass(slots=True)
class Parser:
    """Parses one sentence after another; remembers what the last ones were about."""

    grammar: Grammar
    about: Token | None = None
    """The move that a text without a subject is about."""
    _lexed: Lexed = field(default_factory=lambda: lex(""))
    _failed: set[tuple[str, int]] = field(default_factory=set)
    _subjects: list[Token] = field(default_factory=list)
    _steps: int = 0
    steps_left: int = _TEXT_STEPS
    """Of the whole text; at 0 nothing more is read."""

    def forget(self) -> None:
        """Forgets what was spoken of, as at a new paragraph."""
        self._subjects = [self.about] if self.about else []

    def clauses(self, sentence: Lexed) -> tuple[list[Clause], bool]:
        """The clauses of a sentence, and whether they are all of it. Of a sentence with a part that fits no
        template, only those before a joint that lets them stand alone."""
        self._lexed, text = sentence, sentence.text
        begin = len(text) - len(text.lstrip(' "“”(*-'))
        end = len(text.rstrip(' .!?;:"“”)*'))
        part = _Part(text[begin:end], begin, max(begin, end))
        self._failed.clear()
        self._steps = 0
        joints = () if wording.REJECTED.search(text) else wording.STOPS.finditer(part.text)
        stops = [part.cut(0, stop.start()) for stop in joints]
        for stretch in (part, *(beginning for beginning in reversed(stops) if " " in beginning.text)):
            for subject in (None, *self._recent()):
                if clauses := self._parse(stretch, subject):
                    self._subjects += [topic for clause in clauses if (topic := clause.topic)]
                    self.steps_left -= _CLAIM_STEPS * len(clauses)
                    return clauses, stretch is part
        if self._is_mover(part.text):
            clauses = self._parse(part.cut(part.text.index(" ")), self.about) or []
            return clauses, bool(clauses)
        return [], False

    def _is_mover(self, text: str) -> bool:
        """Whether a clause begins with the side whose move the text is about: "Black recaptures"."""
        token = self._lexed.tokens[marks(text)[0][1]] if text.startswith("«s") and " " in text else None
        return self.about is not None and token is not None and token.owner == self.about.owner

    def fragments(self, sentence: Lexed, after: int = 0) -> list[Clause]:
        """What is asserted within a sentence that is not understood, behind `after`: clauses that fit a
        template, and parts of others, each read alone. Nothing is, once the sentence has said a condition, a
        wish or a denial."""
        self._lexed, text = sentence, sentence.text
        self._failed.clear()
        self._steps = 0
        clauses: list[Clause] = []
        if wording.CONDITIONS.search(text) or wording.REJECTED.search(text):
            return clauses
        subject, imagined = self.about, wording.SETTING.match(text) is not None
        for part, carries in self._stretches(text):
            if wording.ONE_OF_SEVERAL.search(text, max(0, part.start - _NEAR), part.start):
                subject = None
                continue  # "White and Black have bishops on c4 and c5"
            subject = subject if carries else None
            if (
                subject is not None
                and subject.kind in "pgs"
                and any(kind in "qml" for kind, _ in marks(text[: part.start]))
            ):
                subject = None  # it may have gone there
            if not part.text or part.start < after or self.steps_left <= 0:
                continue
            self.steps_left -= 1 + len(part.text) // _STEP_CHARS
            imagined = imagined or wording.WALKS.search(text, 0, part.start) is not None
            doubted = imagined or wording.DOUBTS.search(text, 0, part.end) is not None
            heads = marks(part.text[:6]) if part.text.startswith("«") else []
            named = heads[0][0] if heads else ""
            heir = subject if named in ("", "i") and not part.text.startswith(_UNCLEAR) else None
            read = None if doubted or named in _UNSURE or "«i" in part.text else self._parse(part, heir)
            clauses += read or [
                replace(clause, doubted=True) if wording.WOULD.search(part.text) else clause
                for clause in self._within(part, heir, doubted=doubted)
            ]
            if named and named in "pmlgs":
                subject = self._lexed.tokens[heads[0][1]]
        self.steps_left -= _CLAIM_STEPS * len(clauses)
        return clauses

    @staticmethod
    def _stretches(text: str) -> Iterator[tuple[_Part, bool]]:
        """What stands between the breaks of a sentence, and whether it may have the subject before it."""
        begin, carries = 0, True
        for gap in (*wording.BREAKS.finditer(text), None):
            part = _Part(text, 0, len(text)).cut(begin, gap.start() if gap else None)
            yield part.cut(0, len(part.text.rstrip(" .!"))), carries
            if gap:
                begin, carries = gap.end(), wording.SAME_SUBJECT.fullmatch(gap[0]) is not None

    def _within(self, part: _Part, subject: Token | None, *, doubted: bool) -> Iterator[Clause]:
        """Parts of a clause that fit a template, from left to right, none of them twice. What is only named
        may be so in a clause that is doubted."""
        text, end, kinds = part.text, 0, self._kinds(subject)
        kinds += ("pieces",) if "piece" in kinds else ()
        places: list[tuple[int, int, int, re.Match[str], Token | None]] = []
        for order, entry in enumerate(self.grammar.within):
            template = entry[1]
            if template.keyword not in text or (doubted and template.about is not None):
                continue
            if subject is not None and template.about in kinds:
                places += [
                    (m.start(), -m.end(), order, m, subject) for m in template.beginning.finditer(text)
                ]
            else:
                places += [(m.start(), -m.end(), order, m, None) for m in template.anywhere.finditer(text)]
        for begin, _, order, match, heir in sorted(places, key=lambda place: place[:3]):
            concept, template = self.grammar.within[order]
            if begin < end or not self._is_asserted(concept, template, match, part.start + begin):
                continue
            for clause in self._clause(concept, template, part.cut(begin, match.end()), match, heir):
                end = match.end()
                in_doubt = wording.DOUBTS.search(self._lexed.text, 0, part.start + begin) is not None
                yield replace(clause, doubted=in_doubt)

    def _is_asserted(self, concept: Concept, template: Template, match: re.Match[str], place: int) -> bool:
        """Whether nothing before a part of a clause denies it or makes it a goal, and its subject is clear:
        "it" may be anything, and in "goes to e4, which attacks" the move e4 is not meant."""
        if "«i" in match[0] or (match[0].startswith("«q") and template.about == "move"):
            return False
        text, before = self._lexed.text, self._lexed.text[max(0, place - _NEAR) : place]
        if template.slots.keys() & _WAYS and (
            wording.REFUSALS.search(text) or wording.PAST.search(text, 0, place)
        ):
            return False
        if wording.ABSENT.match(text, place + len(match[0])):
            return False
        names = concept.topic == "given" and not concept.about_moves and template.slots.keys() & _PLACED
        placed = names or match[0].startswith(("«p", "«g"))
        return not wording.DENIALS.search(before) and not (placed and wording.GOALS.search(before))

    def place(self, clause: Clause) -> tuple[int, int]:
        """Where a clause stands in the sentence that was parsed last."""
        origins = self._lexed.origins
        return origins[clause.start], origins[clause.end]

    def _recent(self) -> list[Token]:
        """The last subject of each kind, the latest first: what `it` may stand for."""
        latest: dict[str, Token] = {}
        for token in reversed(self._subjects):
            latest.setdefault(token.kind, token)
        return list(latest.values())

    def _parse(self, part: _Part, inherited: Token | None) -> list[Clause] | None:
        key = part.text, id(inherited)
        if key in self._failed or not part.text or self._steps >= _MOST_STEPS or self.steps_left <= 0:
            return None
        self._steps += 1
        self.steps_left -= 1 + len(part.text) // _STEP_CHARS
        clauses = self._read(part, inherited)
        if clauses is None:
            self._failed.add(key)
        return clauses

    def _read(self, part: _Part, inherited: Token | None) -> list[Clause] | None:
        for clause in self._single(part, inherited):
            return [clause]
        for shorter in self._changed(part):
            if clauses := self._parse(shorter, inherited):
                return clauses
        if clauses := self._split(part, inherited):
            return clauses
        for plainer in self._rewritten(part, wording.HEDGES):
            if clauses := self._parse(plainer, inherited):
                return clauses
        return None

    def _changed(self, part: _Part) -> Iterator[_Part]:
        """The part without its opener, without its closer, and with a shortened clause written out."""
        if match := wording.OPENERS.match(part.text):
            yield part.cut(match.end())
        if match := wording.CLOSERS.search(part.text):
            yield part.cut(0, match.start())
        yield from self._rewritten(part, wording.REWRITES)

    @staticmethod
    def _rewritten(part: _Part, rewrites: wording.Rewrites) -> Iterator[_Part]:
        for pattern, replacement in rewrites:
            changed = pattern.sub(replacement, part.text, count=1)
            if changed != part.text:
                yield _Part(changed, part.start, part.end, exact=False)

    def _split(self, part: _Part, inherited: Token | None) -> list[Clause] | None:
        for joint in wording.JOINTS:
            for match in joint.finditer(part.text):
                rest = part.cut(match.end())
                before = part.cut(0, match.start())
                left = None if rest.text.startswith(_RELATIVES) else self._parse(before, inherited)
                for heir in self._heirs(match[0], before.text, left) if left else ():
                    if right := self._parse(rest, heir):
                        return [*left, *right] if left else right
        return None

    def _heirs(self, joint: str, left_text: str, left: list[Clause]) -> list[Token | None]:
        """What the clause after a joint may be about if it does not say so; `which` looks back."""
        if any(word in joint for word in _RELATIVES):
            if left[-1].concept.name == "can move":
                return [None]
            tokens = [self._lexed.tokens[n] for kind, n in marks(left_text) if kind in "pgmlf"]
            return [*tokens[-1:]]
        topics: list[Token | None] = []
        for clause in reversed(left):
            if not any(clause.topic is topic for topic in topics):
                topics.append(clause.topic)
        return topics

    def _single(self, part: _Part, inherited: Token | None) -> Iterator[Clause]:
        text = part.text
        single = _ONE_PIECE.match(text)
        for concept, template in self.grammar.bare:
            # One piece alone is a subject like any other.
            if template.keyword not in text or (single and template.about is not None):
                continue
            if match := template.clause.fullmatch(text):
                yield from self._clause(concept, template, part, match, None)
        for kind, pattern in wording.INTRODUCTIONS:
            if match := pattern.match(text):
                subject = self._subject(match[0], inherited)
                rest = text[match.end() :]
                yield from self._predicate(kind, part, rest, subject)
                adverbs = wording.ADVERBS_OF_MOVES if kind in ("move", "line") else wording.ADVERBS
                without = adverbs.sub("", rest, count=1)
                if without != rest:
                    yield from self._predicate(kind, part, without, subject)
        for kind in self._kinds(inherited):
            yield from self._predicate(kind, part, text, inherited)

    def _subject(self, introduction: str, inherited: Token | None) -> Token | None:
        subjects = marks(introduction)
        return self._lexed.tokens[subjects[-1][1]] if subjects and subjects[-1][0] != "i" else inherited

    def _predicate(self, kind: Subject, part: _Part, text: str, subject: Token | None) -> Iterator[Clause]:
        if subject is None or kind not in self._kinds(subject):
            return
        for concept, template in self.grammar.about.get(kind, ()):
            pattern = template.predicate if template.keyword in text else None
            if pattern and (match := pattern.fullmatch(text)):
                yield from self._clause(concept, template, part, match, subject)

    def _clause(
        self, concept: Concept, template: Template, part: _Part, match: re.Match[str], subject: Token | None
    ) -> Iterator[Clause]:
        slots: list[tuple[str, Any]] = []
        groups = match.groupdict()
        if subject is not None and template.subject:
            if not template.subject.type.takes(subject):
                return
            slots.append((template.subject.name, [subject]))
        for group in sorted((g for g, text in groups.items() if text is not None), key=match.start):
            name = group.rsplit("__", 1)[0]
            words = groups[group] or ""
            if template.slots[name].plain:
                slots.append((name, words))
            else:
                tokens = [self._lexed.tokens[n] for _, n in marks(words)]
                if not all(map(template.slots[name].takes, tokens)):
                    return
                slots.append((name, tokens))
        if subject is None and template.subject:
            subject = dict(slots)[template.subject.name][-1]
        yield Clause(
            concept, template, part.text, start=part.start, end=part.end, slots=tuple(slots), subject=subject
        )

    @staticmethod
    def _kinds(subject: Token | None) -> tuple[Subject, ...]:
        if subject is None:
            return ()
        if subject.kind == "l" and len(subject.moves) == 1:
            return ("move", "line")
        return _KINDS.get(subject.kind, ())

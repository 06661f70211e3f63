"""From sentences to clauses: openers taken off, sentences split at their joints, subjects handed on.

A sentence is understood when it falls into clauses that all have a form, or when it is one of the few
that claim nothing. What is left over is reported, never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from services.data.annotate.claims.grammar import SUBJECT_OF, Clause, Grammar, Subject
from services.data.annotate.claims.token import Token, lex, marks

_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9.])")
_CONTRACTIONS = (
    (re.compile(r"\b(it|that|there|what|here|who)'s\b", re.IGNORECASE), r"\1 is"),
    (re.compile(r"\bI'm\b"), "I am"),
    (re.compile(r"\b(we|they)'re\b", re.IGNORECASE), r"\1 are"),
    (re.compile(r"\b(I|we|they)'ve\b", re.IGNORECASE), r"\1 have"),
    (re.compile(r"\b(I|we|they|it|that)'ll\b", re.IGNORECASE), r"\1 will"),
    (re.compile(r"\b(I|we|they|it)'d\b", re.IGNORECASE), r"\1 would"),
    (re.compile(r"\bcan't\b"), "cannot"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"\b(is|are|does|do|has|have|would|did)n't\b", re.IGNORECASE), r"\1 not"),
)


_RELATIVES = ("which ", "who ", "where ")


def contractions_undone(text: str) -> str:
    """The text with its short forms written out.

    >>> contractions_undone("It's level, and I'm not worried.")
    'It is level, and I am not worried.'
    """
    for short, long in _CONTRACTIONS:
        text = short.sub(long, text)
    return text


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; the dots of move numbers, which no space follows, end none.

    >>> sentences("After 12...Qd8 13.Re1 it is level. Next. What about 13.Nd5?")
    ['After 12...Qd8 13.Re1 it is level.', 'Next.', 'What about 13.Nd5?']
    """
    return [sentence for sentence in _ENDS.split(paragraph.strip()) if sentence]


@dataclass(slots=True)
class Wording:
    """What the joints of sentences look like; all patterns are for lexed, lower-cased text."""

    openers: re.Pattern[str]
    closers: re.Pattern[str]
    joints: tuple[re.Pattern[str], ...]
    adverbs: re.Pattern[str]
    rewrites: tuple[tuple[re.Pattern[str], str], ...]
    introductions: tuple[tuple[Subject, re.Pattern[str]], ...]


class Parser:
    """Parses one sentence after another; remembers what the last ones were about."""

    def __init__(self, grammar: Grammar, wording: Wording) -> None:
        self._grammar = grammar
        self._wording = wording
        self._tokens: list[Token] = []
        self._failed: set[tuple[str, int]] = set()
        self._subjects: list[Token] = []

    def clauses(self, sentence: str) -> list[Clause] | None:
        """The clauses of a sentence, or None when some part of it has no form."""
        text, self._tokens = lex(contractions_undone(sentence))
        text = text.strip(' .!?;:"“”')
        self._failed.clear()
        for subject in (None, *self._recent()):
            if found := self._parse(text, subject):
                self._subjects += [topic for clause in found if (topic := clause.topic)]
                return found
        return None

    def _recent(self) -> list[Token]:
        """The last subject of each kind, the latest first: what `it` may stand for."""
        latest: dict[str, Token] = {}
        for token in reversed(self._subjects):
            latest.setdefault(token.kind, token)
        return list(latest.values())

    def _parse(self, text: str, inherited: Token | None) -> list[Clause] | None:
        key = text, id(inherited)
        if key in self._failed or not text:
            return None
        found = self._read(text, inherited)
        if found is None:
            self._failed.add(key)
        return found

    def _read(self, text: str, inherited: Token | None) -> list[Clause] | None:
        for clause in self._single(text, inherited):
            return [clause]
        for edge in (self._wording.openers, self._wording.closers):
            trimmed = edge.sub("", text, count=1)
            if trimmed != text and (found := self._parse(trimmed, inherited)):
                return found
        for pattern, replacement in self._wording.rewrites:
            changed = pattern.sub(replacement, text, count=1)
            if changed != text and (found := self._parse(changed, inherited)):
                return found
        return self._split(text, inherited)

    def _split(self, text: str, inherited: Token | None) -> list[Clause] | None:
        for joint in self._wording.joints:
            for match in joint.finditer(text):
                rest = text[match.end() :]
                left = None if rest.startswith(_RELATIVES) else self._parse(text[: match.start()], inherited)
                for heir in self._heirs(match[0], text[: match.start()], left) if left else ():
                    if right := self._parse(rest, heir):
                        return [*left, *right] if left else right
        return None

    def _heirs(self, joint: str, left_text: str, left: list[Clause]) -> list[Token | None]:
        """What the clause after a joint may be about if it does not say so; `which` looks back."""
        if any(word in joint for word in _RELATIVES):
            named = [self._tokens[n] for kind, n in marks(left_text) if kind in "pgmlf"]
            return [*named[-1:]]
        topics: list[Token | None] = []
        for clause in reversed(left):
            if not any(clause.topic is topic for topic in topics):
                topics.append(clause.topic)
        return topics

    def _single(self, text: str, inherited: Token | None) -> Iterator[Clause]:
        for form, slots in self._grammar.match(text, self._tokens, None):
            yield Clause(form, text, slots, None)
        for kind, pattern in self._wording.introductions:
            if match := pattern.match(text):
                subject = self._subject(match, inherited)
                yield from self._about(kind, text[match.end() :], subject)
                without = self._wording.adverbs.sub("", text[match.end() :], count=1)
                yield from self._about(kind, without, subject)
        for kind in self._kinds(inherited):
            yield from self._about(kind, text, inherited)

    def _subject(self, match: re.Match[str], inherited: Token | None) -> Token | None:
        found = marks(match[0])
        return self._tokens[found[-1][1]] if found and found[-1][0] != "i" else inherited

    def _about(self, kind: Subject, predicate: str, subject: Token | None) -> Iterator[Clause]:
        if subject is None or kind not in self._kinds(subject):
            return
        for form, slots in self._grammar.match(predicate, self._tokens, kind):
            yield Clause(form, predicate, slots, subject)

    @staticmethod
    def _kinds(subject: Token | None) -> tuple[Subject, ...]:
        if subject is None:
            return ()
        if subject.kind == "l":
            return ("line", "move") if len(subject.moves) == 1 else ("line",)
        kind = SUBJECT_OF.get(subject.kind)
        return (kind,) if kind else ()  # type: ignore[return-value]

"""The writer's hand in one text: says concepts, joins clauses into sentences."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import chess

from commentary.concept import CONCEPTS, Finding
from commentary.concepts.standings import DEGREES, degree, word_for
from commentary.naming import Naming, bare, numbered
from commentary.step import Step
from commentary.study import Score
from commentary.template import finite
from commentary.wording import TALK
from commentary.writing.case import CandidateMove, Case
from commentary.writing.play import Play
from commentary.writing.voices import Length, Voice

_SHORT_FORMS = (
    (re.compile(r"\b(it|there|that) is(?= \w)", re.IGNORECASE), r"\1's"),
    (re.compile(r"\bI am(?= \w)"), "I'm"),
    (re.compile(r"\bI have (?=lost|won|the right)"), "I've "),
    (re.compile(r"\bcannot\b"), "can't"),
    (re.compile(r"\b(does|do) not\b"), r"\1n't"),
)
_CONTRACTS = 0.6
_ALIKE = ("and", "and", ";")
_AGAINST = ("but", "while", "but")
_ALIKE_OPENERS = (
    "also|besides|moreover|what is more|on top of that|in addition|at the same time|beyond that"
    "|apart from that"
)
_AGAINST_OPENERS = (
    "but|still|nevertheless|granted|on the other hand|then again|against that|in return|that said|even so"
    "|all the same|by contrast"
)
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Topic:
    """A candidate under discussion: `name` is how it is written, `play` its line as far as it is told."""

    candidate: CandidateMove
    name: str
    play: Play


@dataclass(slots=True)
class Writer:
    """Writes about one case in one voice. `topic` is the move that `it` would be taken for."""

    case: Case
    voice: Voice
    length: Length
    rng: random.Random
    numbers: bool = False
    """Whether candidates are written with their move number."""
    topic: str = ""
    naming: Naming = field(init=False)

    def __post_init__(self) -> None:
        self.naming = Naming(self.case.board, self.voice.name, self.voice.person, self.rng, self.voice.owns)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # -- words -----------------------------------------------------------------------------------

    def say(self, concept: str, **values: Any) -> str:
        return CONCEPTS[concept].write(self.naming, values)

    def state(self, board: chess.Board, finding: Finding) -> str:
        self.naming.look(board)
        return finding.concept.write(self.naming, finding.values)

    def does(self, concept: str, **values: Any) -> str:
        """What a move does, in the present, its subject left out."""
        return finite(CONCEPTS[concept].do(self.naming, values))

    def pick(self, options: Sequence[str], **slots: object) -> str:
        """One of some wordings without a claim of their own."""
        return self.naming.pick(options).format(**slots)

    def talk(self, about: str) -> list[str]:
        """A sentence that claims nothing, if this voice has one about it."""
        options = self.naming.allowed(TALK[about])
        return [sentence(self.naming.pick(options))] if options else []

    def verdict(self, score: Score, starter: chess.Color) -> str:
        """Who stands better, the score being for the side that begins the line."""
        advantage = degree(score)
        if not advantage:
            return self.say("equal")
        side = starter if advantage > 0 else not starter
        return self.say(DEGREES[abs(advantage)], side=side, other=not side)

    def ending(self, score: Score, starter: chess.Color) -> str:
        """Who stands better, as a phrase that ends a sentence."""
        advantage = degree(score)
        if not advantage:
            return self.say("with equality")
        word = word_for(advantage, self.naming.rng.randrange(6))
        return self.say("advantage for", word=word, side=starter if advantage > 0 else not starter)

    def phrase(self, step: Step, effects: Sequence[Finding]) -> str:
        """Several effects of a move as one verb phrase with marked verbs."""
        self.naming.look_at_move(step.before, step.after, step.target)
        parts = [self._part(finding, last=finding is effects[-1]) for finding in effects]
        clause = any(" and ~" in part for part in parts) or any("," in part for part in parts[:-1])
        joint = ", and " if clause else " and "
        return joint.join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]

    def _part(self, finding: Finding, *, last: bool) -> str:
        """One effect. What has a clause of its own stands last, where nothing seems to continue it."""
        part, restore = "", self.naming.restore_point()
        for _ in range(_TRIES):
            restore()
            part = finding.concept.do(self.naming, finding.values)
            if last or "," not in part:
                break
        return part

    def topic_of(self, candidate: CandidateMove) -> Topic:
        """Names a candidate, as briefly as can be read, and cuts its line to the length of the text."""
        board, plies = self.case.board, self.length.plies + (1 if candidate.is_best else 0)
        name = numbered(board, [candidate.move]) if self.numbers else bare(board, candidate.move)
        play = candidate.full.rest(least=min(2, plies), most=plies)
        return Topic(candidate, name, candidate.full.to_the_point(play, self.case.mover, candidate.degree))

    # -- sentences -------------------------------------------------------------------------------

    def join(self, first: str, second: str, *, against: bool) -> str:
        conditional = first.startswith(("if ", "given ", "once "))  # "while if ..." is no English
        if against and not conditional and self.chance(0.3):
            return f"{self.rng.choice(('while', 'although', 'though'))} {first}, {second}"
        if not against and (shorter := self.without_subject(first, second)):
            return f"{first} and {shorter}"
        word = self.rng.choice(_AGAINST if against else _ALIKE)
        return f"{first}; {second}" if word == ";" else f"{first}, {word} {second}"

    def together(self, clauses: Sequence[str]) -> str:
        """Clauses of a kind in one sentence; a subject that stays the same is said once."""
        text = clauses[0]
        for before, clause in pairwise(clauses):
            shorter = self.without_subject(before, clause)
            text += f" and {shorter}" if shorter else f", and {clause}"
        return text

    def without_subject(self, before: str, clause: str) -> str | None:
        """The second clause without its subject, if that is the first one's too."""
        for party in (self.naming.us, self.naming.them):
            subject = f"{party.word} "
            if before.startswith(subject) and clause.startswith(subject):
                return clause.removeprefix(subject)
        return None

    def linked(self, clause: str, *, against: bool) -> str:
        """A clause that begins with a connective to the sentence before."""
        openers = (_AGAINST_OPENERS if against else _ALIKE_OPENERS).split("|")
        opener = openers[self.naming.least_used([f"opener {word}" for word in openers])]
        return f"{opener} {clause}" if opener in ("but", "also") else f"{opener}, {clause}"

    def contracted(self, text: str) -> str:
        """The text with some of its words drawn together, if the voice talks like that."""
        if self.voice.person == "third":
            return text

        for pattern, short in _SHORT_FORMS:
            text = pattern.sub(lambda m: m.expand(short) if self.chance(_CONTRACTS) else m[0], text)  # noqa: B023
        return text


def sentence(text: str) -> str:
    """A sentence: capital first unless it begins with a move, and a stop."""
    text = text.strip()
    if text and not re.match(r"[a-h][1-8x]", text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", ":")) else ".")

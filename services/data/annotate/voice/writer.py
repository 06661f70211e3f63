"""The whole text: which parts an analysis has, in which order, and how they are laid out.

There is no fixed plan. What the position demands comes first; the order of candidates, the place of the
threat and the number of paragraphs follow from the position, the length and the seed.
"""

from __future__ import annotations

import random

import chess

from services.data.annotate.case import Candidate, Case
from services.data.annotate.standing import Loss
from services.data.annotate.voice.consider import consider
from services.data.annotate.voice.decide import answer, decide
from services.data.annotate.voice.judge import judge
from services.data.annotate.voice.orientation import orientation
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.prose import contracted
from services.data.annotate.voice.style import Length, Voice
from services.data.annotate.voice.threats import list_candidates, threat
from services.data.annotate.voice.topic import Topic

_ONE_PARAGRAPH_FACTS = 2
"""A text with no more facts than this is one paragraph."""


def write(case: Case, *, voice: Voice, length: Length, seed: str) -> tuple[str, str]:
    """The thinking and the answer, without tags and box."""
    pen = Pen(case.board, voice, length, random.Random(seed))
    told = _told(pen, case)
    pen.numbers = pen.chance(voice.numbers) or (case.mover and any(_moves_a_pawn(one) for one in told))
    topics = [Topic.of(pen, case, candidate) for candidate in told]
    best = next(topic for topic in topics if topic.candidate.is_best)
    paragraphs = [*_opening(pen, case, topics), *_middle(pen, case, topics, best)]
    paragraphs.append(" ".join(decide(pen, case, best, topics)))
    layout = " " if length.facts <= _ONE_PARAGRAPH_FACTS else "\n\n"
    thinking = _laid_out(paragraphs, layout)
    return contracted(pen, thinking), contracted(pen, answer(pen, case, best))


def _moves_a_pawn(candidate: Candidate) -> bool:
    return candidate.step.kind == chess.PAWN


def _laid_out(paragraphs: list[str], layout: str) -> str:
    return layout.join(paragraph for paragraph in paragraphs if paragraph)


# -- which candidates ------------------------------------------------------------------------------


def _told(pen: Pen, case: Case) -> list[Candidate]:
    """The candidates to speak of: the best, and of the rest those that teach most."""
    if case.only_move:
        return [case.best]
    rest = sorted(case.candidates[1:], key=lambda candidate: -_interest(pen, candidate))
    chosen = [case.best, *rest[: pen.length.candidates - 1]]
    return _in_order(pen, chosen)


def _interest(pen: Pen, candidate: Candidate) -> float:
    interest = {Loss.NOTHING: 0.8, Loss.LITTLE: 0.6, Loss.SOME: 0.9, Loss.MUCH: 1.2, Loss.EVERYTHING: 1.1}[
        candidate.loss
    ]
    return interest + (0.0 if candidate.quiet else 0.5) + pen.rng.uniform(0, 0.5)


def _in_order(pen: Pen, chosen: list[Candidate]) -> list[Candidate]:
    """The best one first, last or where forcing moves lead; never by merit from top to bottom."""
    best, rest = chosen[0], chosen[1:]
    pen.rng.shuffle(rest)
    rest.sort(key=lambda candidate: candidate.quiet)
    place = pen.rng.choices(("last", "first", "mixed"), (0.6, 0.2, 0.2))[0]
    if place == "first":
        return [best, *rest]
    if place == "last":
        return [*rest, best]
    cut = pen.rng.randrange(len(rest) + 1)
    return [*rest[:cut], best, *rest[cut:]]


# -- the parts -------------------------------------------------------------------------------------


def _opening(pen: Pen, case: Case, topics: list[Topic]) -> list[str]:
    """The position, the threat and the list of candidates, in one of several orders."""
    position = " ".join(orientation(pen, case))
    danger = " ".join(threat(pen, case)) if pen.length.facts > 1 or pen.chance(0.5) else ""
    names = [topic.name for topic in topics]
    if not case.only_move:
        pen.rng.shuffle(names)
    listing = " ".join(list_candidates(pen, names)) if not case.only_move else ""
    order = [position, danger, listing]
    if danger and pen.length.facts > _ONE_PARAGRAPH_FACTS and pen.chance(0.25):
        order = [danger, position, listing]
    if listing and pen.chance(0.4):
        order = [order[0], f"{order[1]} {listing}".strip()]
    return order


def _middle(pen: Pen, case: Case, topics: list[Topic], best: Topic) -> list[str]:
    paragraphs = []
    best_told = False
    for topic in topics:
        best_told = best_told or topic is best
        said = consider(pen, case, topic)
        if topic is not best:
            said += judge(pen, case, topic, best_name=best.name if best_told or pen.chance(0.5) else None)
        paragraphs.append(" ".join(said))
    return paragraphs

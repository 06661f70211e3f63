"""The whole text: which parts an analysis has, in which order, and how they are laid out.

There is no fixed plan. What the position demands comes first; the order of candidates, the place of the
threat and the number of paragraphs follow from the position, the length and the seed.
"""

import random
from dataclasses import dataclass
from typing import Literal

import chess

from commentary.reader import read
from commentary.reading import TextReading
from commentary.study import Study
from commentary.writing.candidates import consider
from commentary.writing.case import CandidateMove, Case, Loss
from commentary.writing.ending import answer, decide, listing, threat
from commentary.writing.position import describe_position
from commentary.writing.voices import VOICES, Length
from commentary.writing.writer import Topic, Writer

_DRAFTS = 4
"""Texts written for a position before it is given up: a seed that says something false is not used."""

_ONE_PARAGRAPH = 2
"""A text with no more remarks than this is one paragraph."""


@dataclass(frozen=True, slots=True)
class Text:
    """An analysis: the thinking, the answer after it, and the move chosen; `reading` is what it claims."""

    thinking: str
    answer: str
    move: str
    san: str
    box: str
    reading: TextReading

    def __str__(self) -> str:
        return _laid_out(self.thinking, self.answer, self.box)


def write(
    study: Study,
    *,
    voice: str = "annotator",
    length: str | int = "medium",
    seed: str = "",
    box: Literal["san", "uci"] = "san",
) -> Text | None:
    """A text about a studied position in which every sentence can be read and every claim is true.

    `voice` is one of `VOICES`; `length` is short, medium, long, or a number of tokens. The same arguments
    give the same text. None when none of a few drafts is without a false claim. Raises `ValueError` for an
    unknown voice or length, a broken position, or a study without lines.
    """
    for number in range(_DRAFTS):
        text = draft(study, voice=voice, length=length, seed=f"{seed}:{number}", box=box)
        if text.reading.sound:
            return text
    return None


def draft(study: Study, *, voice: str, length: str | int, seed: str, box: str = "san") -> Text:
    """One text; its claims may be false, and its sentences unread."""
    if voice not in VOICES:
        raise ValueError(f"no voice {voice!r}: {', '.join(VOICES)}")
    case = Case.of(study)
    writer = Writer(case, VOICES[voice], Length.of(length), random.Random(f"{seed}:{study.fen}"))
    thinking, reply = _parts(writer)
    best = case.best.move
    san = case.board.san(best)
    boxed = best.uci() if box == "uci" else san
    reading = read(study, _laid_out(thinking, reply, boxed))
    return Text(thinking, reply, best.uci(), san=san, box=boxed, reading=reading)


def _laid_out(thinking: str, reply: str, box: str) -> str:
    return f"<think>\n{thinking}\n</think>\n{reply} \\boxed{{{box}}}"


def _parts(writer: Writer) -> tuple[str, str]:
    candidates = _discussed(writer)
    moves_a_pawn = any(candidate.step.kind == chess.PAWN for candidate in candidates)
    writer.numbers = writer.chance(writer.voice.numbers) or (writer.case.mover and moves_a_pawn)
    topics = [writer.topic_of(candidate) for candidate in candidates]
    best = next(topic for topic in topics if topic.candidate.is_best)
    if writer.length.candidates == 1:
        paragraphs = [" ".join(describe_position(writer))]
    else:
        paragraphs = [
            *_opening(writer, topics),
            *_middle(writer, topics, best),
            " ".join(decide(writer, best, topics)),
        ]
    gap = " " if writer.length.remarks <= _ONE_PARAGRAPH else "\n\n"
    thinking = gap.join(paragraph for paragraph in paragraphs if paragraph)
    return writer.contracted(thinking), writer.contracted(answer(writer, best))


# -- which candidates ----------------------------------------------------------------------------


def _discussed(writer: Writer) -> list[CandidateMove]:
    """The candidates to speak of: the best, and of the rest those that teach most."""
    case = writer.case
    if case.only_move:
        return [case.best]
    rest = sorted(case.candidates[1:], key=lambda candidate: -_interest(writer, candidate))
    chosen = rest[: writer.length.candidates - 1]
    writer.rng.shuffle(chosen)
    chosen.sort(key=lambda candidate: candidate.quiet)
    # The best one first, last or where forcing moves lead; never by merit from top to bottom.
    place = writer.rng.choices((len(chosen), 0, writer.rng.randrange(len(chosen) + 1)), (0.6, 0.2, 0.2))[0]
    return [*chosen[:place], case.best, *chosen[place:]]


def _interest(writer: Writer, candidate: CandidateMove) -> float:
    by_loss = {Loss.NOTHING: 0.8, Loss.LITTLE: 0.6, Loss.SOME: 0.9, Loss.MUCH: 1.2, Loss.EVERYTHING: 1.1}
    return by_loss[candidate.loss] + (0.0 if candidate.quiet else 0.5) + writer.rng.uniform(0, 0.5)


# -- the parts -----------------------------------------------------------------------------------


def _opening(writer: Writer, topics: list[Topic]) -> list[str]:
    """The position, the threat and the list of candidates, in one of several orders."""
    context = " ".join(describe_position(writer))
    danger = " ".join(threat(writer)) if writer.length.remarks > 1 or writer.chance(0.5) else ""
    names = [topic.name for topic in topics]
    writer.rng.shuffle(names)
    listed = "" if writer.case.only_move else " ".join(listing(writer, names))
    order = [context, danger, listed]
    if danger and writer.length.remarks > _ONE_PARAGRAPH and writer.chance(0.25):
        order = [danger, context, listed]
    if listed and writer.chance(0.4):
        order = [order[0], f"{order[1]} {listed}".strip()]
    return order


def _middle(writer: Writer, topics: list[Topic], best: Topic) -> list[str]:
    paragraphs, best_told = [], False
    for topic in topics:
        best_told = best_told or topic is best
        paragraphs.append(
            " ".join(consider(writer, topic, best=best.name if best_told or writer.chance(0.5) else None))
        )
    return paragraphs

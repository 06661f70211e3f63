"""A candidate under discussion: its name in the text and the part of its line that is told."""

from __future__ import annotations

from dataclasses import dataclass

from services.data.annotate.case import Candidate, Case
from services.data.annotate.play import Play
from services.data.annotate.voice.pen import Pen


@dataclass(frozen=True, slots=True)
class Topic:
    """`name` is how the candidate is written; `play` its line as far as it is told."""

    candidate: Candidate
    name: str
    play: Play

    @classmethod
    def of(cls, pen: Pen, case: Case, candidate: Candidate) -> Topic:
        """Names a candidate and cuts its line to the length of the text."""
        plies = pen.length.plies + (1 if candidate.is_best else 0)
        return cls(candidate, pen.move(case.board, candidate.move), candidate.play(most=plies))

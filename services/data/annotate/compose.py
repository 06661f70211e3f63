"""From the engine's answers to an annotation that has been checked: pure, so that any process can do it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

import chess

from rookery.errors import InvalidInput
from rookery.trace import Move, Prompt
from services.data.annotate.annotation import Annotation
from services.data.annotate.case import Case
from services.data.annotate.claims.checker import Report, check
from services.data.annotate.study import Study
from services.data.annotate.voice import VOICES, Length, write

LENGTHS = ("short", "medium", "long")
ANY = "any"

_DRAFTS = 4
"""Texts written for a position before it is given up: a seed that says something false is not used."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How annotations are written. `any` draws the voice or the length for each position.

    Raises:
        InvalidInput: no such voice or length.
    """

    voice: str = ANY
    length: str = ANY
    box: Literal["san", "uci"] = "san"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.voice not in (*VOICES, ANY):
            raise InvalidInput(f"no voice {self.voice!r}: {', '.join(VOICES)} or {ANY}")
        if self.length not in (*LENGTHS, ANY):
            Length.of(self._tokens)

    @property
    def _tokens(self) -> int:
        if not self.length.isdecimal():
            raise InvalidInput(f"no length {self.length!r}: {', '.join(LENGTHS)}, {ANY} or tokens")
        return int(self.length)

    def drawn(self, id_: str) -> tuple[str, str]:
        """The voice and the length for a position."""
        rng = random.Random(f"{self.seed}:{id_}:manner")
        voice = rng.choice(sorted(VOICES)) if self.voice == ANY else self.voice
        return voice, rng.choice(LENGTHS) if self.length == ANY else self.length


def draft(study: Study, manner: Manner, *, id_: str, number: int = 0) -> tuple[str, Report]:
    """One answer for a position, with what the checker found in it."""
    case = Case.of(study)
    voice, length = manner.drawn(id_)
    wanted = Length.of(int(length) if length.isdecimal() else length)
    thinking, said = write(
        case, voice=VOICES[voice], length=wanted, seed=f"{manner.seed}:{id_}:{number}:{study.fen}"
    )
    move = case.board.san(case.best.move) if manner.box == "san" else case.best.move.uci()
    answer = f"<think>\n{thinking}\n</think>\n{said} \\boxed{{{move}}}"
    return answer, check(answer, study)


def compose(study: Study, prompt: Prompt, manner: Manner, *, id_: str) -> Annotation | None:
    """The annotation of a position: the first draft in which every sentence is read and every claim true.

    None when there is none among a few.
    """
    voice, length = manner.drawn(id_)
    for number in range(_DRAFTS):
        answer, report = draft(study, manner, id_=id_, number=number)
        if report.sound:
            board, best = chess.Board(study.fen), chess.Move.from_uci(study.best.pv[0])
            return Annotation(
                id=id_,
                fen=study.fen,
                style=prompt.style,
                voice=voice,
                length=length,
                prompt=prompt.messages,
                answer=answer,
                move=Move(best.uci(), board.san(best)),
                claims=report.claims,
            )
    return None

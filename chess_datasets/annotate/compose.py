"""Makes an annotation, a prompt with its answer, from a study. Pure, so that any process can do it."""

import random
from dataclasses import dataclass
from typing import Any, Literal

from commentary import LENGTHS, VOICES, Study, write
from commentary.writing.voices import Length
from rookery.errors import InvalidInput
from rookery.trace import Message, Move, Prompt

ANY = "any"


@dataclass(frozen=True, slots=True)
class Annotation:
    """A prompt and an answer of the form `<think> ... </think> ... \\boxed{move}`.

    `fen` is the board on which the answer is to be read; it differs from the position's own where the
    prompt style mirrors the board. `claims` were read back from the answer and found true.
    """

    id: str
    fen: str
    style: str
    voice: str
    length: str
    prompt: tuple[Message, ...]
    answer: str
    move: Move
    claims: int

    @property
    def messages(self) -> list[dict[str, str]]:
        chat = [*self.prompt, Message("assistant", self.answer)]
        return [{"role": message.role, "content": message.content} for message in chat]

    @property
    def line(self) -> dict[str, Any]:
        """The chat with its position, for a line of JSON."""
        return {"id": self.id, "fen": self.fen, "voice": self.voice, "messages": self.messages}


@dataclass(frozen=True, slots=True)
class Manner:
    """How annotations are written. `any` draws the voice or the length for each position. Raises
    `InvalidInput` if there is no such voice or length."""

    voice: str = ANY
    length: str = ANY
    box: Literal["san", "uci"] = "san"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.voice not in (*VOICES, ANY):
            raise InvalidInput(f"no voice {self.voice!r}: {', '.join(VOICES)} or {ANY}")
        try:
            Length.of(self.length if self.length != ANY else "short")
        except ValueError as error:
            raise InvalidInput(f"{error}, or {ANY}") from error

    def drawn(self, id_: str) -> tuple[str, str]:
        """The voice and the length for a position."""
        rng = random.Random(f"{self.seed}:{id_}:manner")
        voice = rng.choice(sorted(VOICES)) if self.voice == ANY else self.voice
        return voice, rng.choice(tuple(LENGTHS)) if self.length == ANY else self.length


def compose(study: Study, prompt: Prompt, manner: Manner, *, id_: str) -> Annotation | None:
    """The annotation of a position; None when no text about it is free of false claims."""
    voice, length = manner.drawn(id_)
    text = write(study, voice=voice, length=length, seed=f"{manner.seed}:{id_}", box=manner.box)
    if text is None:
        return None
    return Annotation(
        id=id_,
        fen=study.fen,
        style=prompt.style,
        voice=voice,
        length=length,
        prompt=prompt.messages,
        answer=str(text),
        move=Move(text.move, text.san),
        claims=len(text.reading.claims),
    )

"""One annotated position: the prompt, the answer, and what stands behind it."""

from dataclasses import dataclass
from typing import Any

from rookery.trace import Message, Move


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
        """The chat, from the prompt to the answer."""
        chat = [*self.prompt, Message("assistant", self.answer)]
        return [{"role": message.role, "content": message.content} for message in chat]

    @property
    def line(self) -> dict[str, Any]:
        """The chat with its position, for a line of JSON."""
        return {"id": self.id, "fen": self.fen, "voice": self.voice, "messages": self.messages}

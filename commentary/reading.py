"""What was read in a text: sentences with their places, and the claims in them with their truth."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["claims", "talk", "partly", "unread"]


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """One thing that a text says about the board. `text[start:end]` are its words.

    `true` is None where nobody can tell: a score or a line for which the study has no evidence.
    `key` is the same for two claims of a text that say the same thing about the same position.
    """

    concept: str
    words: str
    start: int
    end: int
    true: bool | None
    weight: float
    key: str


@dataclass(frozen=True, slots=True)
class ReadSentence:
    """One sentence, `text[start:end]`. `talk` is read and claims nothing; `unread` was not understood, or
    `partly`: its claims are what was."""

    words: str
    start: int
    end: int
    status: Status
    claims: tuple[ReadClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class TextReading:
    """A whole text, sentence by sentence."""

    sentences: tuple[ReadSentence, ...]

    @property
    def claims(self) -> tuple[ReadClaim, ...]:
        return tuple(claim for sentence in self.sentences for claim in sentence.claims)

    @property
    def false(self) -> tuple[ReadClaim, ...]:
        return tuple(claim for claim in self.claims if claim.true is False)

    @property
    def unread(self) -> tuple[ReadSentence, ...]:
        """Sentences that were not understood, or not wholly."""
        return tuple(sentence for sentence in self.sentences if sentence.status in ("partly", "unread"))

    @property
    def share_read(self) -> float:
        """The share of the text's sentences, by their length, that was understood; 1 for an empty text."""
        total = sum(len(sentence.words) for sentence in self.sentences)
        claims = sum(len(claim.words) for sentence in self.unread for claim in sentence.claims)
        unread = sum(len(sentence.words) for sentence in self.unread) - claims
        return 1 - unread / total if total else 1.0

    @property
    def sound(self) -> bool:
        """Whether every sentence was read and every claim is known to be true."""
        return not self.unread and all(claim.true for claim in self.claims)

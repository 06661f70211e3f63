"""The JSON of the reward service: pydantic at the edge, frozen records inside."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from rookery.trace import Outcome
from services.reward.scorer import Item

MAX_ITEMS = 1024
"""Answers in one batch."""

_FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)


class ScoreRequest(_Strict):
    """A position and what a model answered."""

    fen: str = Field(examples=[_FEN])
    """The position; it must be possible and have a legal move."""
    response: str = Field(examples=[r"<think>f7 is weak.</think> \boxed{Qxf7#}"])
    """The completion alone, never the prompt."""
    task: str = Field(default="move", examples=["move"])
    """What was asked: `move`."""
    scheme: str = Field(default="", examples=["delta"])
    """How quality becomes a reward: `delta` or `best`; empty is the service's own."""
    truncated: bool = False
    """The completion was cut at its token limit."""

    def item(self) -> Item:
        """The request as the domain knows it."""
        return Item(self.fen, self.response, self.task, self.scheme, self.truncated)


class BatchRequest(_Strict):
    """Up to 1024 answers. Items of one position share its search."""

    # Any: an item of the wrong shape becomes a problem in its own slot, not the refusal of them all.
    items: list[Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/ScoreRequest"})]] = Field(
        max_length=MAX_ITEMS
    )
    """The answers to judge."""


class _FromRecord(BaseModel):
    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)


class MoveBody(_FromRecord):
    """A legal move."""

    uci: str
    san: str


class EvaluationBody(_FromRecord):
    """An engine score for the side to move: `cp` or `mate`, the other null."""

    cp: int | None
    mate: int | None


class EngineBody(_FromRecord):
    """Who judged."""

    id: str
    nodes: int
    """Searched for this verdict; 0 when no search was needed."""


class VerdictBody(_FromRecord):
    """The judgement of one answer."""

    reward: float
    """The sum of the components."""
    outcome: Outcome
    move: MoveBody | None
    """The answer, when it is a legal move."""
    best: MoveBody | None
    """The engine's choice."""
    win_before: float | None
    """Win probability of the side to move with the engine's choice."""
    win_after: float | None
    """The same with the answer."""
    regret: float | None
    """`win_before - win_after`, never negative."""
    eval_before: EvaluationBody | None
    eval_after: EvaluationBody | None
    components: dict[str, float]
    engine: EngineBody | None
    reward_version: str
    """Everything the number depends on beside the question; compare rewards only where it is equal."""


class ProblemBody(BaseModel):
    """RFC 9457: why there is no verdict."""

    type: str
    title: str
    status: int
    detail: str


class BatchResponse(BaseModel):
    """Verdicts in the order of the items; a problem where an item could not be judged."""

    verdicts: list[VerdictBody | ProblemBody]

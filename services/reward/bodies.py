"""The JSON of the reward service: pydantic at the edge, frozen records inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, WithJsonSchema

from rookery.body_limit import StrictBody
from rookery.errors import RookeryError
from rookery.serving import problem
from rookery.trace import Outcome, Verdict
from services.reward.scorer import Item

MAX_ITEMS = 1024
"""Answers in one batch."""

_FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


class _Strict(StrictBody):
    model_config = ConfigDict(strict=True, frozen=True)


class ScoreRequest(_Strict):
    """A position and what a model answered."""

    fen: str = Field(examples=[_FEN])
    """The position, of chess or Chess960; it must be possible and have a legal move."""
    response: str = Field(examples=[r"<think>f7 is weak.</think> \boxed{Qxf7#}"])
    """The completion alone, never the prompt."""
    task: str = Field(default="move", examples=["move"])
    """What was asked: `move`, or RookWorld's `P` or `A`."""
    scheme: str = Field(default="", examples=["delta"])
    """`delta`, `best`, `accuracy`, `minmax`, or a sum as in `delta+0.1*format`; empty is the default."""
    truncated: bool = False
    """The completion was cut at its token limit."""
    move: str = Field(default="", examples=["e2e4"])
    """Task `A` only: the move whose outcome was asked for, in UCI."""

    def item(self) -> Item:
        """The request as the domain knows it."""
        return Item(self.fen, self.response, self.task, self.scheme, self.truncated, self.move)


class BatchRequest(_Strict):
    """Up to 1024 answers. Items of one position share its search."""

    # Any: an item of the wrong shape becomes a problem in its own slot, not the refusal of them all.
    items: list[Annotated[Any, WithJsonSchema({"$ref": "#/components/schemas/ScoreRequest"})]] = Field(
        max_length=MAX_ITEMS
    )
    """The answers to judge."""


class _Answer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class MoveBody(_Answer):
    """A legal move."""

    uci: str
    san: str


class EvaluationBody(_Answer):
    """An engine score for the side to move: `cp` or `mate`, the other null."""

    cp: int | None
    mate: int | None


class EngineBody(_Answer):
    """Who judged."""

    id: str
    nodes: int
    """Searched for this verdict; 0 when no search was needed."""


class VerdictBody(_Answer):
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


class ProblemBody(_Answer):
    """RFC 9457: why there is no verdict."""

    type: str
    title: str
    status: int
    detail: str


class BatchResponse(_Answer):
    """Verdicts in the order of the items; a problem where an item could not be judged."""

    verdicts: list[VerdictBody | ProblemBody]


# The bodies above are the contract. Answers are written straight from the records, whose fields are the
# same: through the bodies a verdict took 10 us, half of what a remembered one costs over HTTP.
_VERDICT = TypeAdapter(Verdict)
_VERDICTS = TypeAdapter(dict[str, list[Verdict | dict[str, object]]])


def verdict_json(verdict: Verdict) -> bytes:
    """A `VerdictBody`."""
    return _VERDICT.dump_json(verdict)


def batch_json(results: Sequence[Verdict | RookeryError]) -> bytes:
    """A `BatchResponse`."""
    slots = [problem(result) if isinstance(result, RookeryError) else result for result in results]
    return _VERDICTS.dump_json({"verdicts": slots})

"""The HTTP API of the reward service: `/v1/score`, `/v1/score/batch`, other trainers' routes, probes."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError

from rookery import __version__
from rookery.errors import InvalidInput, RookeryError, validation_message
from rookery.serving import add_probes, add_problem_handlers
from rookery.trace import Verdict
from services.reward.requests import (
    BatchRequest,
    BatchResponse,
    ScoreRequest,
    VerdictBody,
    batch_json,
    counted,
    verdict_json,
    while_connected,
)
from services.reward.scorer import QUOTED, Item, Scorer
from services.reward.trainer_routes import add_trainer_routes

_PROBLEM = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"content": _PROBLEM, "description": "The body is not UTF-8"},
    413: {"content": _PROBLEM, "description": "The body is too large"},
    422: {"content": _PROBLEM, "description": "A FEN or field is not valid; the detail quotes it"},
    503: {"content": _PROBLEM, "description": "Overloaded or no engine: retry after `Retry-After` s"},
}


def create_app(scorer: Scorer) -> FastAPI:
    """The FastAPI app that judges answers with `scorer`, which must be running."""
    app = FastAPI(
        title="Rookery reward",
        version=__version__,
        summary="Judges a model's answer to a chess position with Stockfish.",
    )
    add_problem_handlers(app)
    add_probes(app, ready=scorer.unavailable_reason)

    @app.post("/v1/score", response_model=VerdictBody, responses=_PROBLEMS, tags=["reward"])
    async def score(body: ScoreRequest, request: Request) -> Response:
        """Judges one answer."""
        with counted("http"):
            verdict = await while_connected(request, scorer.score(body.item()))
        return _json(verdict_json(verdict))

    @app.post("/v1/score/batch", response_model=BatchResponse, responses=_PROBLEMS, tags=["reward"])
    async def score_batch(body: BatchRequest, request: Request) -> Response:
        """Judges many answers. The verdicts are in the order of the items."""
        with counted("http"):
            work = _score_all(scorer, [_item(raw) for raw in body.items])
            verdicts = await while_connected(request, work)
        return _json(batch_json(verdicts))

    add_trainer_routes(app, scorer, _PROBLEMS)
    return app


async def _score_all(scorer: Scorer, items: Sequence[Item | InvalidInput]) -> list[Verdict | RookeryError]:
    """Scores the well-formed items. The errors of malformed ones stay in their places."""
    verdicts = iter(await scorer.score_batch([item for item in items if isinstance(item, Item)]))
    return [next(verdicts) if isinstance(item, Item) else item for item in items]


def _item(raw: object) -> Item | InvalidInput:
    try:
        return ScoreRequest.model_validate(raw).item()
    except ValidationError as error:
        first = error.errors(include_url=False)[:1]
        message = validation_message(first, root="item", quote=lambda value: repr(value)[:QUOTED])
        return InvalidInput(message)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")

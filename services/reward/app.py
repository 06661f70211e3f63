"""The HTTP face of the reward: `/v1/score`, `/v1/score/batch`, probes. Wraps the scorer, decides nothing."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Response
from pydantic import BaseModel, ValidationError

from rookery import __version__
from rookery.errors import InvalidInput, RookeryError
from rookery.serving import ReadyCheck, add_probes, add_problem_handlers, problem
from rookery.trace import Verdict
from services.reward.bodies import BatchRequest, BatchResponse, ProblemBody, ScoreRequest, VerdictBody
from services.reward.counting import counted
from services.reward.limits import BodyLimit
from services.reward.scorer import Item, Scorer

MAX_BODY_BYTES = 16 << 20

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    413: {"model": ProblemBody, "description": "The body is too large"},
    422: {"model": ProblemBody, "description": "A FEN or field that cannot be judged, quoted"},
    503: {"model": ProblemBody, "description": "Engines away or overrun: come back after `Retry-After` s"},
}


def create_app(scorer: Scorer) -> FastAPI:
    """The app around a running scorer."""
    app = FastAPI(
        title="Rookery reward",
        version=__version__,
        summary="A position and an answer in, a verdict by Stockfish out.",
    )
    app.add_middleware(BodyLimit, max_bytes=MAX_BODY_BYTES)
    add_problem_handlers(app)
    add_probes(app, ready=_readiness(scorer))

    @app.post("/v1/score", response_model=VerdictBody, responses=_PROBLEMS, tags=["reward"])
    async def score(request: ScoreRequest) -> Response:
        """Judges one answer."""
        with counted("http"):
            verdict = await scorer.score(request.item())
        return _json(VerdictBody.model_validate(verdict))

    @app.post("/v1/score/batch", response_model=BatchResponse, responses=_PROBLEMS, tags=["reward"])
    async def score_batch(request: BatchRequest) -> Response:
        """Judges many answers; verdicts come in the order of the items."""
        with counted("http"):
            verdicts = await _score_all(scorer, [_item(raw) for raw in request.items])
        return _json(BatchResponse(verdicts=[_slot(verdict) for verdict in verdicts]))

    return app


async def _score_all(scorer: Scorer, items: Sequence[Item | InvalidInput]) -> list[Verdict | RookeryError]:
    """Scores the well-formed items; the malformed keep their places."""
    verdicts = iter(await scorer.score_batch([item for item in items if isinstance(item, Item)]))
    return [next(verdicts) if isinstance(item, Item) else item for item in items]


def _item(raw: object) -> Item | InvalidInput:
    try:
        return ScoreRequest.model_validate(raw).item()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "item"
        return InvalidInput(f"{place}: {first['msg']} (got {repr(first['input'])[:200]})")


def _slot(result: Verdict | RookeryError) -> VerdictBody | ProblemBody:
    if isinstance(result, RookeryError):
        return ProblemBody.model_validate(problem(result))
    return VerdictBody.model_validate(result)


def _json(body: BaseModel) -> Response:
    return Response(body.model_dump_json(), media_type="application/json")


def _readiness(scorer: Scorer) -> ReadyCheck:
    async def ready() -> str | None:
        return None if scorer.pool.ready else "no engine can be started"

    return ready

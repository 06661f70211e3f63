"""The HTTP API of the reward service: verdicts, episodes, other trainers' routes, probes."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from pydantic import BaseModel, Field

from rookery import __version__
from rookery.answers import opening_of, without_end_marks
from rookery.errors import QUOTED_CHARS, InvalidInput, RookeryError
from rookery.serving import add_probes, add_problem_handlers
from rookery.trace import Outcome, ScoreItem, Verdict
from services.reward.episodes import EpisodeRequest, EpisodeState, next_state
from services.reward.requests import (
    MAX_ITEMS,
    BatchRequest,
    BatchResponse,
    ScoreBody,
    batch_json,
    counted,
    read_item,
    verdict_json,
    while_connected,
)
from services.reward.scorer import Scorer

_EXAMPLE = {
    "fen": "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4",
    "response": r"<think>f7 is weak.</think> \boxed{Qxf7#}",
}
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

    @app.post("/v1/score", response_model=Verdict, responses=_PROBLEMS, tags=["reward"])
    async def score(item: Annotated[ScoreBody, Body(examples=[_EXAMPLE])], request: Request) -> Response:
        """Judges one answer."""
        with counted("http"):
            verdict = await while_connected(request, scorer.score(item))
        return Response(verdict_json(verdict), media_type="application/json")

    @app.post("/v1/score/batch", response_model=BatchResponse, responses=_PROBLEMS, tags=["reward"])
    async def score_batch(body: BatchRequest, request: Request) -> Response:
        """Judges many answers. The verdicts are in the order of the items."""
        with counted("http"):
            verdicts = await while_connected(request, scorer.score_batch(body.items))
        return Response(batch_json(verdicts), media_type="application/json")

    @app.post("/v1/episodes", response_model=EpisodeState, responses=_PROBLEMS, tags=["episodes"])
    async def episodes(body: EpisodeRequest, request: Request) -> Response:
        """Begins an episode, or plays its next turn."""
        with counted("http"):
            state = await while_connected(request, next_state(body, scorer))
            content = state.json_text()
        return Response(content, media_type="application/json")

    _add_trainer_routes(app, scorer)
    return app


Texts = Annotated[list[str], Field(max_length=MAX_ITEMS)]


class SlimeRequest(BaseModel, use_attribute_docstrings=True):
    """A sample, as slime's `--rm-type remote_rm` sends it. Other fields are not read."""

    prompt: Any = ""
    """Only read for the mark of reasoning that may end it, if it is a text."""
    response: str
    """The completion only, special tokens included."""
    label: str | dict[str, Any]
    """A FEN, or an object with the fields of `/v1/score`, also as JSON text."""


class OpenRlhfRequest(BaseModel, use_attribute_docstrings=True):
    """A batch, as OpenRLHF's `--remote_rm_url` sends it. Other fields are not read."""

    query: Texts
    """Prompts with their completions, special tokens included."""
    prompts: Texts
    """The prompts alone. Each must occur in its query; the completion is what follows."""
    labels: Texts
    """For each prompt a FEN, or JSON with the fields of `/v1/score`."""


class OpenRlhfRewards(BaseModel, use_attribute_docstrings=True):
    """Lists in the order of the queries."""

    rewards: list[float]
    scores: list[float]
    """From 0 to 1, for dynamic filtering: 1 - regret of a legal move, else 0."""
    extra_logs: dict[str, list[float]]


def _add_trainer_routes(app: FastAPI, scorer: Scorer) -> None:
    """Adds the routes in the formats of slime and OpenRLHF, which need no code of ours but a URL.

    Their data sets have one text as the label of a prompt. Here it is the FEN, or a JSON object with the
    fields of `/v1/score` except `response`. A fault fails the whole request, so that no reward is made up.
    """

    @app.post("/v1/slime", responses=_PROBLEMS, tags=["trainers"])
    async def slime(body: SlimeRequest, request: Request) -> float:
        """Judges one answer for slime. The body of the answer is the reward alone."""
        with counted("http"):
            work = scorer.score(_labelled(body.label, body.prompt, body.response, place="label"))
            return (await while_connected(request, work)).reward

    @app.post("/v1/openrlhf", responses=_PROBLEMS, tags=["trainers"])
    async def openrlhf(body: OpenRlhfRequest, request: Request) -> OpenRlhfRewards:
        """Judges a batch of answers for OpenRLHF."""
        with counted("http"):
            results = await while_connected(request, scorer.score_batch(_items(body)))
            verdicts = [_verdict(result) for result in results]
        return OpenRlhfRewards(
            rewards=[verdict.reward for verdict in verdicts],
            scores=[_score(verdict) for verdict in verdicts],
            extra_logs={"legal": [float(verdict.outcome is Outcome.LEGAL) for verdict in verdicts]},
        )


def _items(body: OpenRlhfRequest) -> Sequence[ScoreItem]:
    lengths = len(body.query), len(body.prompts), len(body.labels)
    if len(set(lengths)) > 1:
        raise InvalidInput("{} queries, {} prompts and {} labels".format(*lengths))
    items = []
    for number, (query, prompt, label) in enumerate(zip(body.query, body.prompts, body.labels, strict=True)):
        # A prompt may show an example of a box, so it must never be read as a part of the completion.
        if not prompt or prompt not in query:
            raise InvalidInput(
                f"query.{number}: prompt {prompt[:QUOTED_CHARS]!r} is empty or not in the query"
            )
        items.append(_labelled(label, prompt, query.partition(prompt)[2], place=f"labels.{number}"))
    return items


def _labelled(label: str | dict[str, Any], prompt: object, response: str, *, place: str) -> ScoreItem:
    opening, response = opening_of(prompt) if isinstance(prompt, str) else "", without_end_marks(response)
    try:
        fields = label
        if isinstance(fields, str):
            fields = json.loads(fields) if fields.lstrip().startswith("{") else {"fen": fields}
        if fields.get("task", "") not in ("", "move") or response.lstrip().startswith(opening):
            opening = ""
        return read_item({**fields, "response": opening + response}, place=place)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"{place} {str(label)[:QUOTED_CHARS]!r} is neither a FEN nor JSON: {error}"
        ) from error


def _verdict(result: Verdict | RookeryError) -> Verdict:
    if isinstance(result, RookeryError):
        raise result
    return result


def _score(verdict: Verdict) -> float:
    if verdict.outcome is not Outcome.LEGAL:
        return 0.0
    return min(1.0, max(0.0, verdict.reward)) if verdict.regret is None else 1.0 - verdict.regret

"""Routes in the formats of other trainers, which need no code of ours but a URL: slime and OpenRLHF.

Their data sets have one text as the label of a prompt. Here it is the FEN, or a JSON object with the fields
of `/v1/score` except `response`. A fault fails the whole request, so that no reward is made up for it.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rookery.errors import InvalidInput, RookeryError, validation_message
from rookery.trace import Outcome, Verdict
from services.reward.requests import MAX_ITEMS, ScoreRequest, counted, while_connected
from services.reward.scorer import QUOTED, Item, Scorer

Texts = Annotated[list[str], Field(max_length=MAX_ITEMS)]


class SlimeRequest(BaseModel):
    """A sample, as slime's `--rm-type remote_rm` sends it. Other fields are not read."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    response: str
    """The completion only."""
    label: str | dict[str, Any]
    """A FEN, or an object with the fields of `/v1/score`, also as JSON text."""


class OpenRlhfRequest(BaseModel):
    """A batch, as OpenRLHF's `--remote_rm_url` sends it. Other fields are not read."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    query: Texts
    """Prompts with their completions, special tokens included."""
    prompts: Texts
    """The prompts alone. Each must occur in its query; the completion is what follows."""
    labels: Texts
    """For each prompt a FEN, or JSON with the fields of `/v1/score`."""


class OpenRlhfRewards(BaseModel):
    """Lists in the order of the queries."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    rewards: list[float]
    scores: list[float]
    """From 0 to 1, for dynamic filtering: 1 - regret of a legal move, else 0."""
    extra_logs: dict[str, list[float]]


def add_trainer_routes(app: FastAPI, scorer: Scorer, responses: dict[int | str, dict[str, Any]]) -> None:
    """Adds the routes to `app`. `responses` are the errors for OpenAPI."""

    @app.post("/v1/slime", responses=responses, tags=["trainers"])
    async def slime(body: SlimeRequest, request: Request) -> float:
        """Judges one answer for slime. The body of the answer is the reward alone."""
        with counted("http"):
            work = scorer.score(_item(body.label, body.response, place="label"))
            return (await while_connected(request, work)).reward

    @app.post("/v1/openrlhf", responses=responses, tags=["trainers"])
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


def _items(body: OpenRlhfRequest) -> Sequence[Item]:
    lengths = len(body.query), len(body.prompts), len(body.labels)
    if len(set(lengths)) > 1:
        raise InvalidInput("{} queries, {} prompts and {} labels".format(*lengths))
    items = []
    for number, (query, prompt, label) in enumerate(zip(body.query, body.prompts, body.labels, strict=True)):
        # A prompt may show an example of a box, so it must never be read as a part of the completion.
        if not prompt or prompt not in query:
            raise InvalidInput(f"query.{number}: prompt {prompt[:QUOTED]!r} is empty or not in the query")
        response = query.partition(prompt)[2]
        items.append(_item(label, response, place=f"labels.{number}"))
    return items


def _item(label: str | dict[str, Any], response: str, *, place: str) -> Item:
    try:
        fields = label
        if isinstance(fields, str):
            fields = json.loads(fields) if fields.lstrip().startswith("{") else {"fen": fields}
        return ScoreRequest.model_validate({**fields, "response": response}).item()
    except ValidationError as error:
        message = validation_message(error.errors(include_url=False)[:1], root=place)
        raise InvalidInput(f"{place}: {message}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{place} {str(label)[:QUOTED]!r} is neither a FEN nor JSON: {error}") from error


def _verdict(result: Verdict | RookeryError) -> Verdict:
    if isinstance(result, RookeryError):
        raise result
    return result


def _score(verdict: Verdict) -> float:
    if verdict.outcome is not Outcome.LEGAL:
        return 0.0
    return min(1.0, max(0.0, verdict.reward)) if verdict.regret is None else 1.0 - verdict.regret

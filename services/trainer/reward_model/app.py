"""The reward model as a service: `/v1/rewards`, `/v1/model` and probes."""

from pathlib import Path
from typing import Any

import torch
from fastapi import FastAPI
from pydantic import BaseModel, Field

from rookery import __version__
from rookery.errors import InvalidInput
from rookery.middleware import StrictBody
from rookery.remote import is_url, local_folder
from rookery.serving import Service, add_probes, add_problem_handlers, serve
from services.trainer.distributed.placement import device_named
from services.trainer.examples.chats import Messages
from services.trainer.reward_model.scorer import BatchQueue, RewardScorer
from services.trainer.settings import RewardServerSettings


class MessageBody(StrictBody):
    """One chat message."""

    role: str
    content: str


class ItemBody(StrictBody):
    """An answer to score: a chat that ends with it, or a prompt and the response."""

    messages: list[MessageBody] | None = None
    prompt: list[MessageBody] | str | None = None
    response: str | None = None

    def chat(self, place: int) -> Messages:
        """Returns the chat, with the answer last. `place` is the item's index, for errors.

        Raises:
            InvalidInput: the item has neither form, or both.
        """
        if (self.messages is None) == (self.prompt is None or self.response is None):
            raise InvalidInput(f"items.{place}: give messages, or prompt and response: {self!r}")
        if self.messages is not None:
            return [message.model_dump() for message in self.messages]
        if isinstance(self.prompt, str):
            prompt = [{"role": "user", "content": self.prompt}]
        else:
            prompt = [message.model_dump() for message in self.prompt or ()]
        return [*prompt, {"role": "assistant", "content": self.response or ""}]


class RewardsRequest(StrictBody):
    """Answers to score."""

    items: list[ItemBody] = Field(min_length=1, max_length=1024)


class RewardsResponse(BaseModel):
    """Rewards in the order of the items; `sha256` is the identity of the model that gave them."""

    rewards: list[float]
    sha256: str


class ModelBody(BaseModel):
    """The identity of the model, and the prompt style it was trained on, empty if unknown."""

    sha256: str
    style: str


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    413: {"description": "The body is too large"},
    422: {"description": "An item is invalid; the message quotes it"},
    503: {"description": "Too many answers are waiting: retry after `Retry-After` seconds"},
}


def create_app(queue: BatchQueue) -> FastAPI:
    """Returns the app of a queue. The caller runs `queue.run`."""
    card = queue.scorer.card
    app = FastAPI(
        title="Rookery reward model", version=__version__, summary="A prompt and an answer in, a reward out."
    )
    add_problem_handlers(app)

    async def ready() -> str | None:
        return None

    add_probes(app, ready=ready)

    @app.get("/v1/model", tags=["reward model"])
    async def model() -> ModelBody:
        """Returns the identity of the model."""
        return ModelBody(sha256=card.sha256, style=card.style)

    @app.post("/v1/rewards", responses=_PROBLEMS, tags=["reward model"])
    async def rewards(body: RewardsRequest) -> RewardsResponse:
        """Scores answers."""
        texts = [queue.scorer.encode(item.chat(place)) for place, item in enumerate(body.items)]
        return RewardsResponse(rewards=await queue.rewards(texts), sha256=card.sha256)

    return app


async def run(settings: RewardServerSettings) -> None:
    """Serves until SIGINT or SIGTERM.

    Raises:
        SetupError: the directory has no reward model, or the port is in use.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    folder = local_folder(settings.model) if is_url(settings.model) else Path(settings.model)
    scorer = RewardScorer(folder, rows=settings.rows, device=device_named(settings.device))
    queue = BatchQueue(scorer, limit=settings.queue)
    await serve(
        Service(
            name="reward-model",
            app=create_app(queue),
            host=settings.host,
            port=settings.port,
            port_setting="--port (REWARD_SERVER_PORT)",
            access=settings.access,
            background=(queue.run,),
        )
    )

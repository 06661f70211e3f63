"""The reward model as a service: `/v1/rewards`, `/v1/model` and probes. Batches the answers of all callers.

Every forward pass has the same number of rows and one of a few widths, with padding if needed. So a row's
result depends on its own tokens only: the same chat always gets the same bits, whatever else is in the pass.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from fastapi import FastAPI
from pydantic import Field
from transformers.utils.logging import disable_progress_bar

from rookery import __version__, metrics
from rookery.clients.reward_model import ModelRewards, RewardModelInfo
from rookery.config.finetune import RewardServerSettings
from rookery.errors import QUOTED_CHARS, InvalidInput, RookeryError, Unavailable
from rookery.middleware import StrictBody
from rookery.remote import local_folder
from rookery.serving import BODY_PROBLEMS, Service, add_probes, add_problem_handlers, serve
from services.trainer.distributed.placement import device_named
from services.trainer.examples.chats import Chat, Messages, tokenize
from services.trainer.finetune.model import load_chat_tokenizer, load_sequence_classifier
from services.trainer.model.base_model import max_positions
from services.trainer.reward_model.report import read_card

_WIDTH = 32
"""Widths are multiples of this many tokens."""

_PAD = 0
"""Any token would do: padding is on the right, where causal attention does not look."""


class RewardScorer:
    """A model on its device. One thread at a time may use it."""

    def __init__(self, folder: Path, *, rows: int, device: torch.device) -> None:
        self.card = read_card(folder)
        self.rows = rows
        disable_progress_bar()
        self._tokenizer = load_chat_tokenizer(folder)
        model = load_sequence_classifier(folder, dtype=torch.float32, pad_id=_PAD)
        self._model = model.to(device).eval()
        self._device = device
        self._longest = max_positions(model.config) or 1 << 20

    def encode(self, chat: Messages) -> list[int]:
        """Returns the tokens of a chat with the answer last. Raises `InvalidInput` if it has no answer, or
        more tokens than the model can read."""
        if not chat or chat[-1]["role"] != "assistant":
            raise InvalidInput(f"the last message is not the assistant's: {str(chat)[-200:]!r}")
        [example] = tokenize([Chat(chat)], self._tokenizer, after_end=True)
        text = [*example.prompt_ids, *example.answers[0]]
        if len(text) > self._longest:
            raise InvalidInput(f"{len(text)} tokens; the reward model accepts {self._longest}")
        return text

    def width(self, text: Sequence[int]) -> int:
        """Returns the width in tokens of the forward pass for `text`."""
        return min(self._longest, -(-len(text) // _WIDTH) * _WIDTH)

    def score(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """Returns the rewards of at most `rows` texts of the same width: scores minus the model's centre.
        Raises `RookeryError` if a reward is not finite."""
        (width,) = {self.width(text) for text in texts}
        ids_BT = torch.full((self.rows, width), _PAD)
        for row, text in enumerate(texts):
            ids_BT[row, : len(text)] = torch.tensor(text)
        ends_B = torch.tensor([len(text) - 1 for text in texts] + [0] * (self.rows - len(texts)))
        with torch.inference_mode(), metrics.REWARD_MODEL_PASS_S.time():
            body = self._model.base_model(input_ids=ids_BT.to(self._device), use_cache=False)
            rows_B = torch.arange(self.rows, device=self._device)
            ends_BD = body.last_hidden_state[rows_B, ends_B.to(self._device)]
            scores_B = self._model.score(ends_BD)[:, 0].float().tolist()
        metrics.REWARD_MODEL_ANSWERS.inc(len(texts))
        rewards = [score - self.card.centre for score in scores_B[: len(texts)]]
        if not all(math.isfinite(reward) for reward in rewards):
            raise RookeryError(f"the reward model returned {rewards}, which are not all finite")
        return rewards


@dataclass(frozen=True, slots=True)
class _WaitingAnswer:
    text: Sequence[int]
    width: int
    reward: asyncio.Future[float]


class BatchQueue:
    """Collects texts from callers, and scores as many at once as the scorer has rows, in `run`."""

    def __init__(self, scorer: RewardScorer, *, limit: int) -> None:
        self.scorer = scorer
        self._limit = limit
        self._waiting: list[_WaitingAnswer] = []
        self._arrived = asyncio.Event()

    async def rewards(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """Returns the rewards of `texts`, in their order. Raises `Unavailable` if too many answers are
        waiting."""
        if len(self._waiting) + len(texts) > self._limit:
            raise Unavailable(
                f"{len(self._waiting)} answers are waiting already: at most {self._limit} may wait"
            )
        loop = asyncio.get_running_loop()
        answers = [_WaitingAnswer(text, self.scorer.width(text), loop.create_future()) for text in texts]
        self._waiting += answers
        metrics.REWARD_MODEL_WAITING.set(len(self._waiting))
        self._arrived.set()
        try:
            return list(await asyncio.gather(*(waiting.reward for waiting in answers)))
        finally:
            for waiting in answers:  # a cancelled caller needs no scores
                waiting.reward.cancel()

    async def run(self, stopping: asyncio.Event) -> None:
        stop = asyncio.create_task(stopping.wait())
        while not stopping.is_set():
            arrived = asyncio.create_task(self._arrived.wait())
            await asyncio.wait({arrived, stop}, return_when=asyncio.FIRST_COMPLETED)
            arrived.cancel()
            self._arrived.clear()
            while batch := self._next_batch():
                await self._score_batch(batch)

    def _next_batch(self) -> list[_WaitingAnswer]:
        """Takes the answer that has waited longest, and later ones of the same width, up to `rows`."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.reward.done()]
        same_width = [waiting for waiting in self._waiting if waiting.width == self._waiting[0].width]
        batch = same_width[: self.scorer.rows]
        batch_ids = {id(waiting) for waiting in batch}
        self._waiting = [waiting for waiting in self._waiting if id(waiting) not in batch_ids]
        metrics.REWARD_MODEL_WAITING.set(len(self._waiting))
        return batch

    async def _score_batch(self, batch: list[_WaitingAnswer]) -> None:
        try:
            rewards = await asyncio.to_thread(self.scorer.score, [waiting.text for waiting in batch])
        except Exception as error:  # any error goes to the callers, and the queue continues
            for waiting in batch:
                if not waiting.reward.done():
                    waiting.reward.set_exception(error)
            return
        for waiting, reward in zip(batch, rewards, strict=True):
            if not waiting.reward.done():
                waiting.reward.set_result(reward)


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
        """Returns the chat, with the answer last. `place` is the item's index, for errors. Raises
        `InvalidInput` if the item has neither form, or both."""
        if (self.messages is None) == (self.prompt is None or self.response is None):
            raise InvalidInput(
                f"items.{place}: give messages, or prompt and response: {repr(self)[:QUOTED_CHARS]}"
            )
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


_PROBLEMS = BODY_PROBLEMS | {
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
    add_probes(app)

    @app.get("/v1/model", tags=["reward model"])
    async def model() -> RewardModelInfo:
        """Returns the identity of the model."""
        return RewardModelInfo(sha256=card.sha256, style=card.style)

    @app.post("/v1/rewards", responses=_PROBLEMS, tags=["reward model"])
    async def rewards(body: RewardsRequest) -> ModelRewards:
        """Scores answers."""
        texts = [queue.scorer.encode(item.chat(place)) for place, item in enumerate(body.items)]
        return ModelRewards(rewards=tuple(await queue.rewards(texts)), sha256=card.sha256)

    return app


async def run(settings: RewardServerSettings) -> None:
    """Serves until SIGINT or SIGTERM. Raises `SetupError` if the directory has no reward model, or the port
    is in use."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    folder = local_folder(settings.model)
    scorer = RewardScorer(folder, rows=settings.rows, device=device_named(settings.device))
    queue = BatchQueue(scorer, limit=settings.queue)
    await serve(Service.at(settings, "reward-model", create_app(queue), background=(queue.run,)))

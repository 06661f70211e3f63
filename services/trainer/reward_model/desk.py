"""The queue of answers for the model, which scores answers of several callers together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rookery import metrics
from rookery.errors import Unavailable
from services.trainer.reward_model.scorer import RewardScorer


@dataclass(frozen=True, slots=True)
class _Waiting:
    text: Sequence[int]
    width: int
    reward: asyncio.Future[float]


class Desk:
    """Takes texts in order, as many at once as the scorer has rows; `run` is its work."""

    def __init__(self, scorer: RewardScorer, *, limit: int) -> None:
        self.scorer = scorer
        self._limit = limit
        self._waiting: list[_Waiting] = []
        self._news = asyncio.Event()

    async def rewards(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """Returns the rewards of `texts`, in their order.

        Raises:
            Unavailable: too many answers are waiting.
        """
        if len(self._waiting) + len(texts) > self._limit:
            raise Unavailable(f"{len(self._waiting)} answers wait already, of at most {self._limit}")
        loop = asyncio.get_running_loop()
        mine = [_Waiting(text, self.scorer.width(text), loop.create_future()) for text in texts]
        self._waiting += mine
        self._tell()
        try:
            return list(await asyncio.gather(*(waiting.reward for waiting in mine)))
        finally:
            for waiting in mine:  # a caller that was cancelled needs no scores
                waiting.reward.cancel()

    async def run(self, stopping: asyncio.Event) -> None:
        """Works until `stopping`."""
        stop = asyncio.create_task(stopping.wait())
        while not stopping.is_set():
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait({news, stop}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            self._news.clear()
            while batch := self._next():
                await self._work(batch)

    def _next(self) -> list[_Waiting]:
        """Takes the answer that has waited longest, and later ones of the same width, up to `rows`."""
        self._waiting = [waiting for waiting in self._waiting if not waiting.reward.done()]
        fitting = [waiting for waiting in self._waiting if waiting.width == self._waiting[0].width]
        batch = fitting[: self.scorer.rows]
        taken = {id(waiting) for waiting in batch}
        self._waiting = [waiting for waiting in self._waiting if id(waiting) not in taken]
        metrics.REWARD_MODEL_WAITING.set(len(self._waiting))
        return batch

    async def _work(self, batch: list[_Waiting]) -> None:
        try:
            rewards = await asyncio.to_thread(self.scorer.score, [waiting.text for waiting in batch])
        except Exception as error:  # any error goes to the callers, and the desk continues
            for waiting in batch:
                if not waiting.reward.done():
                    waiting.reward.set_exception(error)
            return
        for waiting, reward in zip(batch, rewards, strict=True):
            if not waiting.reward.done():
                waiting.reward.set_result(reward)

    def _tell(self) -> None:
        metrics.REWARD_MODEL_WAITING.set(len(self._waiting))
        self._news.set()

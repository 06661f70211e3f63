"""The gRPC API of the reward service: `rookery.v1.RewardService`.

At most about `WINDOW` items of a stream are read but not yet answered. A caller may therefore send as fast as
it likes: HTTP/2's flow control holds back what the service has not read. If the caller does not read its
answers, the service stops reading its requests.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc

from rookery import metrics
from rookery.codec import verdict_to_proto
from rookery.errors import InvalidInput, RookeryError, problem
from rookery.serving import DRAIN_S, grpc_errors
from rookery.trace import Verdict
from rookery.v1 import reward_pb2, reward_pb2_grpc
from services.reward.requests import MAX_ITEMS, counted
from services.reward.scorer import Item, Scorer

logger = logging.getLogger(__name__)

SERVICE_NAME = reward_pb2.DESCRIPTOR.services_by_name["RewardService"].full_name

WINDOW = 1024
"""Items of one stream that may be unanswered before it reads on. Keeps 64 engines busy with groups of 16."""

STREAM_DRAIN_S = DRAIN_S - 2.0
"""Seconds in which a stopping service answers what it has read. It is shorter than `DRAIN_S`, so that callers
still get an UNAVAILABLE and ask another replica."""

Context = grpc.aio.ServicerContext[Any, Any]
ScoreItems = Callable[[Sequence[reward_pb2.ScoreRequest]], Awaitable[list[reward_pb2.ScoreBatchItem]]]


class ScoreStream:
    """Answers each request of one stream with the results of `score_items`, as soon as they are known."""

    def __init__(self, score_items: ScoreItems, context: Context, *, stopping: asyncio.Event) -> None:
        self._score_items = score_items
        self._context = context
        self._stopping = stopping
        self._items = 0
        self._room = asyncio.Event()
        self._write_lock = asyncio.Lock()  # gRPC writes only one message of a call at a time

    async def run(self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest]) -> None:
        """Returns when the caller has sent all requests and got every answer. Cancelling it cancels the work.

        If the service stops, no more requests are read, those already read are answered, and the call ends
        with UNAVAILABLE.
        """
        with metrics.REWARD_STREAMS.track_inprogress(), suppress(TimeoutError):
            async with asyncio.timeout(None) as deadline, asyncio.TaskGroup() as work:
                reading = work.create_task(self._read(requests, work))
                if not await self._stopped_early(reading):
                    return
                deadline.reschedule(asyncio.get_running_loop().time() + STREAM_DRAIN_S)
        await self._context.abort(grpc.StatusCode.UNAVAILABLE, "the reward service is stopping")

    async def _stopped_early(self, reading: asyncio.Task[None]) -> bool:
        """Waits until all requests are read. Returns True if the service stopped before that."""
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        return not reading.done() and reading.cancel()

    async def _read(
        self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest], work: asyncio.TaskGroup
    ) -> None:
        async for request in requests:
            self._count(_size(request))
            work.create_task(self._answer(request))
            while self._items >= WINDOW:
                self._room.clear()
                await self._room.wait()

    async def _answer(self, request: reward_pb2.ScoreStreamRequest) -> None:
        try:
            items = await self._score_items(request.items)
            # The write fails if the caller has just disconnected. gRPC then cancels the whole call.
            async with self._write_lock:
                with suppress(grpc.aio.InternalError):
                    await self._context.write(reward_pb2.ScoreStreamResponse(id=request.id, items=items))
        finally:
            self._count(-_size(request))
            self._room.set()

    def _count(self, items: int) -> None:
        self._items += items
        metrics.REWARD_STREAM_ITEMS.inc(items)


def _size(request: reward_pb2.ScoreStreamRequest) -> int:
    return max(1, len(request.items))  # an empty request is answered too, so it counts as one item


class RewardServicer(reward_pb2_grpc.RewardServiceServicer):
    """Score, ScoreBatch and ScoreStream with one scorer. Open streams end when `stopping` is set."""

    def __init__(self, scorer: Scorer, *, stopping: asyncio.Event | None = None) -> None:
        self._scorer = scorer
        self._stopping = stopping or asyncio.Event()

    async def Score(self, request: reward_pb2.ScoreRequest, context: Context) -> reward_pb2.ScoreResponse:  # noqa: N802
        async with grpc_errors(context):
            with counted("grpc"):
                verdict = await self._scorer.score(_item(request))
        return reward_pb2.ScoreResponse(verdict=verdict_to_proto(verdict))

    async def ScoreBatch(  # noqa: N802
        self, request: reward_pb2.ScoreBatchRequest, context: Context
    ) -> reward_pb2.ScoreBatchResponse:
        async with grpc_errors(context):
            items = await self._score_batch(request.items)
        return reward_pb2.ScoreBatchResponse(items=items)

    async def ScoreStream(  # noqa: N802
        self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest], context: Context
    ) -> None:
        await ScoreStream(self._score_or_refuse, context, stopping=self._stopping).run(requests)

    async def _score_batch(
        self, requests: Sequence[reward_pb2.ScoreRequest]
    ) -> list[reward_pb2.ScoreBatchItem]:
        with counted("grpc"):
            if len(requests) > MAX_ITEMS:
                raise InvalidInput(f"{len(requests)} items in one batch: at most {MAX_ITEMS}")
            results = await self._scorer.score_batch([_item(request) for request in requests])
        return [_batch_item(result) for result in results]

    async def _score_or_refuse(
        self, requests: Sequence[reward_pb2.ScoreRequest]
    ) -> list[reward_pb2.ScoreBatchItem]:
        try:
            return await self._score_batch(requests)
        except RookeryError as error:
            logger.log(error.log_level, "grpc: %s", error)
            return [_batch_item(error)] * len(requests)


def _item(request: reward_pb2.ScoreRequest) -> Item:
    return Item(
        request.fen,
        request.response,
        request.task,
        request.scheme,
        request.truncated,
        move=request.move,
        target=request.target,
    )


def _batch_item(result: Verdict | RookeryError) -> reward_pb2.ScoreBatchItem:
    if isinstance(result, RookeryError):
        return reward_pb2.ScoreBatchItem(problem=reward_pb2.Problem(**problem(result)))  # type: ignore[arg-type]
    return reward_pb2.ScoreBatchItem(verdict=verdict_to_proto(result))

"""Handles one ScoreStream call: how much is read ahead, and how the answers are sent.

At most about `WINDOW` items of a stream are read but not yet answered. A caller may therefore send as fast as
it likes: HTTP/2's flow control holds back what the service has not read. If the caller does not read its
answers, the service stops reading its requests.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import grpc

from rookery import metrics
from rookery.serving import DRAIN_S
from rookery.v1 import reward_pb2

WINDOW = 1024
"""Items of one stream that may be unanswered before it reads on. Keeps 64 engines busy with groups of 16."""

STREAM_DRAIN_S = DRAIN_S - 2.0
"""Seconds in which a stopping service answers what it has read. It is shorter than `DRAIN_S`, so that callers
still get an UNAVAILABLE and ask another replica."""

Context = grpc.aio.ServicerContext[Any, Any]
Judge = Callable[[Sequence[reward_pb2.ScoreRequest]], Awaitable[list[reward_pb2.ScoreBatchItem]]]


class ScoreStream:
    """Answers each request of one stream with the results of `judge`, as soon as they are known."""

    def __init__(self, judge: Judge, context: Context, *, stopping: asyncio.Event) -> None:
        self._judge = judge
        self._context = context
        self._stopping = stopping
        self._items = 0
        self._room = asyncio.Event()
        self._pen = asyncio.Lock()  # gRPC writes only one message of a call at a time

    async def run(self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest]) -> None:
        """Returns when the caller has sent all requests and got every answer. Cancelling it cancels the work.

        If the service stops, no more requests are read, those already read are answered, and the call ends
        with UNAVAILABLE.
        """
        with metrics.REWARD_STREAMS.track_inprogress(), suppress(TimeoutError):
            async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as work:
                reading = work.create_task(self._read(requests, work))
                if not await self._cut_short(reading):
                    return
                patience.reschedule(asyncio.get_running_loop().time() + STREAM_DRAIN_S)
        await self._context.abort(grpc.StatusCode.UNAVAILABLE, "the reward service stops")

    async def _cut_short(self, reading: asyncio.Task[None]) -> bool:
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
            slots = await self._judge(request.items)
            # The write fails if the caller has just disconnected. gRPC then cancels the whole call.
            async with self._pen:
                with suppress(grpc.aio.InternalError):
                    await self._context.write(reward_pb2.ScoreStreamResponse(id=request.id, items=slots))
        finally:
            self._count(-_size(request))
            self._room.set()

    def _count(self, items: int) -> None:
        self._items += items
        metrics.REWARD_STREAM_ITEMS.inc(items)


def _size(request: reward_pb2.ScoreStreamRequest) -> int:
    return max(1, len(request.items))  # an empty request is answered too, so it counts as one item

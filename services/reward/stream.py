"""One ScoreStream call: how much of it is read, and when it is answered. Judges nothing itself.

It reads while less than a window of its items is in judgement or unsent, so that a caller may pour in
whatever it has: what the service has not read waits in HTTP/2's own flow control, and a caller that
does not collect its answers is not read from either.
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
"""Items of one stream in judgement before it is read no further: keeps 64 engines busy with groups of 16."""

STREAM_DRAIN_S = DRAIN_S - 2.0
"""How long a stopping service finishes what it has read; the rest is told to go elsewhere in time."""

Context = grpc.aio.ServicerContext[Any, Any]
Judge = Callable[[Sequence[reward_pb2.ScoreRequest]], Awaitable[list[reward_pb2.ScoreBatchItem]]]


class ScoreStream:
    """Answers each request with what `judge` says of its items, in the order in which that is known."""

    def __init__(self, judge: Judge, context: Context, *, stopping: asyncio.Event) -> None:
        self._judge = judge
        self._context = context
        self._stopping = stopping
        self._items = 0
        self._room = asyncio.Event()
        self._pen = asyncio.Lock()  # gRPC takes one message of a call at a time

    async def run(self, requests: AsyncIterator[reward_pb2.ScoreStreamRequest]) -> None:
        """Returns when the caller has half-closed and has every answer; cancelled, ends all work on it.

        A service that stops reads no more, answers what it has read and leaves with UNAVAILABLE.
        """
        with metrics.REWARD_STREAMS.track_inprogress(), suppress(TimeoutError):
            async with asyncio.timeout(None) as patience, asyncio.TaskGroup() as work:
                reading = work.create_task(self._read(requests, work))
                if not await self._cut_short(reading):
                    return
                patience.reschedule(asyncio.get_running_loop().time() + STREAM_DRAIN_S)
        await self._context.abort(grpc.StatusCode.UNAVAILABLE, "the reward service stops")

    async def _cut_short(self, reading: asyncio.Task[None]) -> bool:
        """Waits until all is read; whether the service stops before that."""
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
            # A write fails where the caller has just gone: the cancellation of it all is on its way.
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
    return max(1, len(request.items))  # an empty one is answered too, and its answer takes its place

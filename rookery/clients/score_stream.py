"""Scores groups over several concurrent ScoreStream calls, with bounded memory and retries.

gRPC chooses a replica for each call, not for each message. To use all replicas there are several calls,
and each is replaced after a while by a new one, which goes to the next replica. Groups that a broken call
had not answered are sent again by another call.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import grpc

from rookery.clients.score_items import TRIES, PendingScores, ScoreItem, raise_refusal, reason_of
from rookery.errors import PeerFault, RookeryError
from rookery.retries import PAUSES_S, pause_after
from rookery.trace import Verdict
from rookery.v1 import reward_pb2

logger = logging.getLogger(__name__)

FIRST_LIFETIME_S = 1.0
LIFETIME_S = 30.0
"""How long a call takes new groups. The first calls are short, because not all replicas may be connected."""

Key = TypeVar("Key")
Groups = Iterable[tuple[Key, Sequence[ScoreItem]]] | AsyncIterable[tuple[Key, Sequence[ScoreItem]]]
Rpc = grpc.aio.StreamStreamCall[reward_pb2.ScoreStreamRequest, reward_pb2.ScoreStreamResponse]


class Scorer(Protocol):
    """Scores the answers of many groups: a `RewardClient`, or one object for several of them."""

    def stream(
        self, groups: Groups[Key], *, scheme: str = "", items: int = 2048
    ) -> AsyncGenerator[tuple[Key, list[Verdict | RookeryError]]]:
        """Yields each key with the verdicts or errors of its items, in any order."""


@dataclass(slots=True, eq=False)
class _Group(Generic[Key]):
    id: int
    key: Key
    pending: PendingScores
    size: int
    tries: int = 0
    deadline: float = 0.0
    """The deadline of its answer, by the event loop's clock."""


class ScoreStream(Generic[Key]):
    """Scores groups once, with `calls` concurrent calls and at most `items` items in flight."""

    def __init__(self, call: Callable[[], Rpc], *, items: int, calls: int, timeout_s: float) -> None:
        self._call, self._limit, self._calls, self._timeout_s = call, items, calls, timeout_s
        self._to_send: asyncio.Queue[_Group[Key]] = asyncio.Queue()
        self._done: asyncio.Queue[_Group[Key] | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self._items = 0  # of groups taken from the caller and not yet yielded
        self._all_taken = False
        self._failure: BaseException | None = None

    async def run(
        self, groups: Groups[Key], *, scheme: str
    ) -> AsyncGenerator[tuple[Key, list[Verdict | RookeryError]]]:
        """Yields each key with the verdicts or errors of its items, as they arrive."""
        tasks = [asyncio.create_task(self._take_groups(groups, scheme))]
        tasks += [asyncio.create_task(self._make_calls()) for _ in range(self._calls)]
        for task in tasks:
            task.add_done_callback(self._task_done)
        try:
            while not (self._all_taken and self._items == 0):
                group = await self._done.get()
                if group is not None:
                    self._items -= group.size
                    self._room.set()
                    yield group.key, group.pending.slots
                elif self._failure:
                    raise self._failure
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        """Wakes `run` when all groups are taken or a task failed."""
        if not task.cancelled():
            self._failure = self._failure or task.exception()
            self._done.put_nowait(None)

    async def _take_groups(self, groups: Groups[Key], scheme: str) -> None:
        number = 0
        async for key, items in each(groups):
            size = max(1, len(items))
            while self._items and self._items + size > self._limit:
                self._room.clear()
                await self._room.wait()
            number += 1
            self._items += size
            self._to_send.put_nowait(_Group(number, key, PendingScores(items, scheme=scheme), size))
        self._all_taken = True

    async def _make_calls(self) -> None:
        lifetime_s = FIRST_LIFETIME_S
        while True:
            group = await self._to_send.get()
            call = _Call(self._call(), self._to_send, self._answered, timeout_s=self._timeout_s)
            fault = await call.run(group, lifetime_s=lifetime_s, share=self._limit // self._calls)
            lifetime_s = min(LIFETIME_S, 2 * lifetime_s)
            if call.unanswered:
                logger.warning("reward: %s; %d groups are sent again", fault, len(call.unanswered))
            for group in call.unanswered.values():
                self._unanswered(group, fault)

    def _answered(self, group: _Group[Key]) -> None:
        """Yields a group that is complete or out of attempts; else retries the items that met a fault."""
        group.tries += 1
        if group.pending.complete or group.tries >= TRIES:
            self._done.put_nowait(group)
        else:
            self._send_again(group)

    def _unanswered(self, group: _Group[Key], fault: str) -> None:
        group.tries += 1
        if group.tries >= TRIES:
            raise PeerFault(f"reward service: {fault} after {TRIES} attempts")
        self._send_again(group)

    def _send_again(self, group: _Group[Key]) -> None:
        pause_s = pause_after(group.tries, PAUSES_S)
        asyncio.get_running_loop().call_later(pause_s, self._to_send.put_nowait, group)


class _Call(Generic[Key]):
    """One ScoreStream call and its unanswered groups."""

    def __init__(
        self,
        rpc: Rpc,
        to_send: asyncio.Queue[_Group[Key]],
        answered: Callable[[_Group[Key]], None],
        *,
        timeout_s: float,
    ) -> None:
        self.unanswered: dict[int, _Group[Key]] = {}
        self._rpc, self._to_send, self._answered, self._timeout_s = rpc, to_send, answered, timeout_s
        self._loop = asyncio.get_running_loop()
        self._items = 0
        self._room = asyncio.Event()
        self._timeout = asyncio.timeout(None)

    async def run(self, group: _Group[Key], *, lifetime_s: float, share: int) -> str:
        """Sends `group` and, for `lifetime_s`, further groups. Returns why the call ended.

        At most `share` items are unanswered at once.

        Raises:
            InvalidInput: the service does not understand us.
            SetupError: the service demands another token.
        """
        sending = None
        try:
            async with self._timeout:
                sending = asyncio.create_task(self._send(group, lifetime_s=lifetime_s, share=share))
                await self._receive()
        except TimeoutError:
            return f"no answer in {self._timeout_s:g} s"
        except PeerFault as error:
            return reason_of(error)
        except grpc.aio.AioRpcError as error:
            raise_refusal(error)
            return reason_of(error)
        finally:
            self._rpc.cancel()
            if sending:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        return "the service ended the stream"

    async def _send(self, group: _Group[Key], *, lifetime_s: float, share: int) -> None:
        end = self._loop.time() + lifetime_s
        with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):  # see _receive
            while True:
                self._sent(group)
                await self._rpc.write(reward_pb2.ScoreStreamRequest(id=group.id, items=group.pending.open))
                while self._items >= share:
                    self._room.clear()
                    await self._room.wait()
                if self._loop.time() > end:
                    break
                group = await self._to_send.get()
            await self._rpc.done_writing()

    def _sent(self, group: _Group[Key]) -> None:
        group.deadline = self._loop.time() + self._timeout_s
        self.unanswered[group.id] = group
        self._items += group.size
        self._reset_timeout()

    async def _receive(self) -> None:
        async for response in self._rpc:
            group = self.unanswered.get(response.id)
            if group is None:
                raise PeerFault(f"reward service: an answer to an unknown request {response.id}")
            group.pending.take(response.items)
            del self.unanswered[group.id]
            self._items -= group.size
            self._room.set()
            self._reset_timeout()
            self._answered(group)

    def _reset_timeout(self) -> None:
        """Waits for the oldest unanswered group until its deadline."""
        oldest = next(iter(self.unanswered.values()), None)
        self._timeout.reschedule(oldest.deadline if oldest else None)


async def each(groups: Groups[Key]) -> AsyncIterator[tuple[Key, Sequence[ScoreItem]]]:
    """The groups, whether they are made asynchronously or not."""
    if isinstance(groups, AsyncIterable):
        async for group in groups:
            yield group
    else:
        for group in groups:
            yield group

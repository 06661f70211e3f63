"""A scorer whose verdicts wait for the test, and a gRPC server in the test's own loop."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc

from rookery.trace import Outcome, Verdict
from rookery.v1 import reward_pb2_grpc
from services.reward.scorer import Item
from services.reward.servicer import RewardServicer


class GatedScorer:
    """Judges a group when its gate is open: the gate's name is the first item's response."""

    def __init__(self) -> None:
        self.all_open = asyncio.Event()
        self.begun: list[str] = []
        self.judging = 0
        self.most_judging = 0
        self.cancelled = 0
        self._gates: dict[str, asyncio.Event] = {}

    def open(self, gate: str) -> None:
        self._gates.setdefault(gate, asyncio.Event()).set()

    async def unavailable_reason(self) -> str | None:
        return None

    async def score_batch(self, items: Sequence[Item]) -> list[Verdict]:
        if not items:
            return []
        self.begun.append(items[0].response)
        self.judging += len(items)
        self.most_judging = max(self.most_judging, self.judging)
        try:
            await self._opened(items[0].response)
        except asyncio.CancelledError:
            self.cancelled += len(items)
            raise
        finally:
            self.judging -= len(items)
        return [verdict_of(item) for item in items]

    async def _opened(self, gate: str) -> None:
        waits = [asyncio.ensure_future(self.all_open.wait())]
        waits.append(asyncio.ensure_future(self._gates.setdefault(gate, asyncio.Event()).wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def verdict_of(item: Item) -> Verdict:
    """What `GatedScorer` says of an item: everything the wire carried, to compare."""
    words = (item.fen, item.response, item.task, item.scheme, str(item.truncated), item.move)
    return Verdict(reward=-0.25, outcome=Outcome.LEGAL, reward_version="|".join(words))


@asynccontextmanager
async def served(servicer: RewardServicer, *, port: int = 0) -> AsyncIterator[str]:
    """The address of a gRPC server around `servicer`."""
    server = grpc.aio.server()
    reward_pb2_grpc.add_RewardServiceServicer_to_server(servicer, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        await server.stop(None)

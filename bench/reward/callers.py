"""Callers who each wait for one verdict before they ask for the next: a closed loop of single Scores."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc

from bench.reward.connection import Connection, encode_post
from bench.reward.replica import Replica
from bench.reward.routes import TIMEOUT_S, Judged, judged, judged_json, raw_call
from bench.reward.workload import Question
from rookery.v1 import reward_pb2

Ask = Callable[[bytes], Awaitable[bytes]]


@dataclass(frozen=True, slots=True)
class Waited:
    """A reply and how long its caller waited."""

    seconds: float
    reply: bytes


@dataclass(frozen=True)
class GrpcCallers:
    """`callers` of `Score` over one channel."""

    replica: Replica
    callers: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        return [
            reward_pb2.ScoreRequest(fen=q.fen, response=a.completion).SerializeToString()
            for q in questions
            for a in q.answers
        ]

    def send(self, requests: list[bytes]) -> list[Waited]:
        return asyncio.run(self._send(requests))

    async def _send(self, requests: list[bytes]) -> list[Waited]:
        async with grpc.aio.insecure_channel(self.replica.grpc) as channel:
            call = raw_call(channel, "Score")
            return await closed_loop([lambda data: call(data, timeout=TIMEOUT_S)] * self.callers, requests)

    def read(self, replies: list[Waited]) -> list[Judged]:
        return [judged(reward_pb2.ScoreResponse.FromString(waited.reply).verdict) for waited in replies]


@dataclass(frozen=True)
class HttpCallers:
    """`callers` of `/v1/score`, each with a connection that stays open."""

    replica: Replica
    callers: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        return [
            encode_post(self.replica.http, "/v1/score", {"fen": q.fen, "response": a.completion})
            for q in questions
            for a in q.answers
        ]

    def send(self, requests: list[bytes]) -> list[Waited]:
        return asyncio.run(self._send(requests))

    async def _send(self, requests: list[bytes]) -> list[Waited]:
        async with AsyncExitStack() as exits:
            lines = [
                await exits.enter_async_context(Connection(self.replica.http)) for _ in range(self.callers)
            ]
            return await closed_loop([line.exchange for line in lines], requests)

    def read(self, replies: list[Waited]) -> list[Judged]:
        return [judged_json(json.loads(waited.reply)) for waited in replies]


async def closed_loop(callers: Sequence[Ask], requests: Sequence[bytes]) -> list[Waited]:
    """Replies in the order of `requests`; whoever has its answer asks the next question."""
    todo = iter(enumerate(requests))
    replies: dict[int, Waited] = {}

    async def call(ask: Ask) -> None:
        for number, request in todo:
            started = time.perf_counter()
            reply = await ask(request)
            replies[number] = Waited(time.perf_counter() - started, reply)

    await asyncio.gather(*map(call, callers))
    return [replies[number] for number in range(len(requests))]

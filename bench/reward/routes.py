"""The ways into the service, each driven by a client that costs as little as can be.

Requests are serialised before the clock starts and replies are read after it stops, so that what is
measured is the service. `PythonClient` is the exception: it is `rookery.clients.RewardClient` with
all that it does, to show what our own client costs.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import grpc

from bench.reward.replica import Replica
from bench.reward.workload import Question
from rookery.clients import RewardClient, ScoreItem
from rookery.trace import Outcome, Verdict
from rookery.v1 import reward_pb2, verdict_pb2

TIMEOUT_S = 120.0
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Judged:
    """What a verdict says that can be checked here: was the move legal, and which is best."""

    legal: bool
    best: str | None


class Route(Protocol):
    """A client of one replica."""

    def prepare_batch(self, questions: Sequence[Question]) -> list[Any]: ...
    def send(self, requests: list[Any]) -> list[Any]: ...
    def read(self, replies: list[Any]) -> list[Judged]: ...


@dataclass(frozen=True)
class GrpcBatch:
    """ScoreBatch with `batch` answers a call and `in_flight` calls at a time."""

    replica: Replica
    batch: int
    in_flight: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        return [
            reward_pb2.ScoreBatchRequest(items=_items(some)).SerializeToString()
            for some in batches(questions, self.batch)
        ]

    def send(self, requests: list[bytes]) -> list[bytes]:
        slots = threading.Semaphore(self.in_flight)
        futures = []
        with grpc.insecure_channel(self.replica.grpc, options=_OPTIONS) as channel:
            call = raw_call(channel, "ScoreBatch")
            for request in requests:
                slots.acquire()
                future = call.future(request, timeout=TIMEOUT_S)
                future.add_done_callback(lambda _: slots.release())
                futures.append(future)
            return [future.result() for future in futures]

    def read(self, replies: list[bytes]) -> list[Judged]:
        return [
            _slot(item) for reply in replies for item in reward_pb2.ScoreBatchResponse.FromString(reply).items
        ]


@dataclass(frozen=True)
class GrpcStream:
    """One ScoreStream, everything poured in at once; a message holds the answers to one position."""

    replica: Replica

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        return [
            reward_pb2.ScoreStreamRequest(id=number, items=_items([question])).SerializeToString()
            for number, question in enumerate(questions)
        ]

    def send(self, requests: list[bytes]) -> list[bytes]:
        with grpc.insecure_channel(self.replica.grpc, options=_OPTIONS) as channel:
            return list(raw_call(channel, "ScoreStream")(iter(requests), timeout=TIMEOUT_S))

    def read(self, replies: list[bytes]) -> list[Judged]:
        messages = sorted(map(reward_pb2.ScoreStreamResponse.FromString, replies), key=lambda m: m.id)
        return [_slot(item) for message in messages for item in message.items]


@dataclass(frozen=True)
class HttpBatch:
    """`/v1/score/batch` over `in_flight` connections that stay open."""

    replica: Replica
    batch: int
    in_flight: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        bodies = (
            {"items": [{"fen": q.fen, "response": a.completion} for q in some for a in q.answers]}
            for some in batches(questions, self.batch)
        )
        return [encode_post(self.replica.http, "/v1/score/batch", body) for body in bodies]

    def send(self, requests: list[bytes]) -> list[bytes]:
        return asyncio.run(self._send(requests))

    async def _send(self, requests: list[bytes]) -> list[bytes]:
        replies: list[bytes] = [b""] * len(requests)
        todo = iter(enumerate(requests))

        async def talk() -> None:
            async with Connection(self.replica.http) as connection:
                for number, request in todo:
                    replies[number] = await connection.exchange(request)

        await asyncio.gather(*(talk() for _ in range(self.in_flight)))
        return replies

    def read(self, replies: list[bytes]) -> list[Judged]:
        return [judged_json(verdict) for reply in replies for verdict in json.loads(reply)["verdicts"]]


@dataclass(frozen=True)
class PythonClient:
    """`RewardClient`, as the rollouts use it, from items to `Verdict` records."""

    replica: Replica
    batch: int
    in_flight: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[list[ScoreItem]]:
        return [
            [ScoreItem(q.fen, a.completion) for q in some for a in q.answers]
            for some in batches(questions, self.batch)
        ]

    def send(self, requests: list[list[ScoreItem]]) -> list[list[Verdict]]:
        return asyncio.run(self._send(requests))

    async def _send(self, requests: list[list[ScoreItem]]) -> list[list[Verdict]]:
        client = RewardClient(self.replica.grpc, timeout_s=TIMEOUT_S)
        slots = asyncio.Semaphore(self.in_flight)

        async def score(items: list[ScoreItem]) -> list[Verdict]:
            async with slots:
                return await client.score(items)

        try:
            return await asyncio.gather(*map(score, requests))
        finally:
            await client.close()

    def read(self, replies: list[list[Verdict]]) -> list[Judged]:
        verdicts = (verdict for reply in replies for verdict in reply)
        return [Judged(v.outcome is Outcome.LEGAL, v.best.uci if v.best else None) for v in verdicts]


def raw_call(channel: Any, method: str) -> Any:
    """The method as bytes to bytes; `channel` is one of grpc or of grpc.aio."""
    kind = channel.stream_stream if method == "ScoreStream" else channel.unary_unary
    return kind(f"/rookery.v1.RewardService/{method}", request_serializer=None, response_deserializer=None)


_OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]


def batches(questions: Iterable[Question], items: int) -> Iterable[list[Question]]:
    """Runs of whole questions with about `items` answers each."""
    left = iter(questions)
    while first := next(left, None):
        yield [first, *islice(left, max(1, items // len(first.answers)) - 1)]


def _items(questions: Sequence[Question]) -> list[reward_pb2.ScoreRequest]:
    return [
        reward_pb2.ScoreRequest(fen=question.fen, response=answer.completion)
        for question in questions
        for answer in question.answers
    ]


def _slot(item: reward_pb2.ScoreBatchItem) -> Judged:
    if item.WhichOneof("result") != "verdict":
        raise RuntimeError(f"not judged: {item.problem.title}: {item.problem.detail}")
    return judged(item.verdict)


def judged(verdict: verdict_pb2.Verdict) -> Judged:
    """What a verdict on the wire says."""
    legal = verdict.outcome == verdict_pb2.OUTCOME_LEGAL
    return Judged(legal, verdict.best.uci if verdict.HasField("best") else None)


def judged_json(verdict: dict[str, Any]) -> Judged:
    """What one in JSON says; a problem in its place has no outcome."""
    if "outcome" not in verdict:
        raise RuntimeError(f"not judged: {verdict}")
    return Judged(verdict["outcome"] == "legal", verdict["best"] and verdict["best"]["uci"])


def encode_post(host: str, path: str, body: object) -> bytes:
    """The whole request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Connection:
    """A keep-alive HTTP/1.1 connection to `host` (`address:port`) that sends bytes made beforehand.

    It takes one request at a time, and costs a tenth of what httpx does.
    """

    def __init__(self, host: str) -> None:
        self._address, _, self._port = host.partition(":")

    async def __aenter__(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection(
            self._address, int(self._port), limit=LIMIT_BYTES
        )
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def exchange(self, request: bytes) -> bytes:
        """The body of the reply.

        Raises:
            RuntimeError: the reply is no 200.
        """
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
        return body

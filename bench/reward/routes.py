"""One real reward service, started as a user would, and the ways into it.

Each is driven by a client that costs as little as can be.

Requests are serialised before the clock starts and replies are read after it stops, so that what is
measured is the service.
"""

import asyncio
import json
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import grpc
import httpx
import psutil

from bench.reward.workload import Question
from launcher.evaluate import reward_service
from launcher.plan import HOST
from rookery.v1 import reward_pb2, verdict_pb2


@dataclass(frozen=True)
class Replica:
    """A running service with empty caches. `http` and `grpc` are its addresses, `engines` process ids."""

    pid: int
    http: str
    grpc: str
    engines: list[int]

    def metric(self, name: str) -> float:
        """The value of one series of `/metrics`, 0 where it does not exist yet."""
        text = httpx.get(f"http://{self.http}/metrics", timeout=10.0).text
        return next(
            (float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0
        )


@contextmanager
def replica(*, engines: int, nodes: int) -> Iterator[Replica]:
    """Starts a service, and stops it at the end. Raises `SetupError` if it does not start."""
    with tempfile.TemporaryDirectory(prefix="bench-reward-") as folder:
        log = Path(folder) / "reward.log"
        with reward_service(log, engines=engines, nodes=nodes) as (child, ports):
            own = [process.pid for process in psutil.Process(child.pid).children()]
            yield Replica(child.pid, f"{HOST}:{ports['port']}", f"{HOST}:{ports['grpc_port']}", own)


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

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]: ...
    def send(self, requests: list[bytes]) -> list[bytes]: ...
    def read(self, replies: list[bytes]) -> list[Judged]: ...


@dataclass(frozen=True)
class GrpcBatch:
    """ScoreBatch with `batch` answers a call and `in_flight` calls at a time."""

    replica: Replica
    batch: int
    in_flight: int

    def prepare_batch(self, questions: Sequence[Question]) -> list[bytes]:
        return [
            reward_pb2.ScoreBatchRequest(
                items=[
                    reward_pb2.ScoreRequest(fen=q.fen, response=a.completion) for q in some for a in q.answers
                ]
            ).SerializeToString()
            for some in batches(questions, self.batch)
        ]

    def send(self, requests: list[bytes]) -> list[bytes]:
        slots = threading.Semaphore(self.in_flight)
        futures = []
        with grpc.insecure_channel(self.replica.grpc, options=_OPTIONS) as channel:
            call = channel.unary_unary(  # bytes to bytes
                "/rookery.v1.RewardService/ScoreBatch", request_serializer=None, response_deserializer=None
            )
            for request in requests:
                slots.acquire()
                future = call.future(request, timeout=TIMEOUT_S)
                future.add_done_callback(lambda _: slots.release())
                futures.append(future)
            return [future.result() for future in futures]

    def read(self, replies: list[bytes]) -> list[Judged]:
        return [
            _judged_on_the_wire(item)
            for reply in replies
            for item in reward_pb2.ScoreBatchResponse.FromString(reply).items
        ]


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
        return [_judged_in_json(verdict) for reply in replies for verdict in json.loads(reply)["verdicts"]]


_OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.use_local_subchannel_pool", 1)]


def batches(questions: Iterable[Question], items: int) -> Iterable[list[Question]]:
    """Runs of whole questions with about `items` answers each."""
    left = iter(questions)
    while first := next(left, None):
        yield [first, *islice(left, max(1, items // len(first.answers)) - 1)]


def _judged_on_the_wire(item: reward_pb2.ScoreBatchItem) -> Judged:
    if item.WhichOneof("result") != "verdict":
        raise RuntimeError(f"not judged: {item.problem.title}: {item.problem.detail}")
    legal = item.verdict.outcome == verdict_pb2.OUTCOME_LEGAL
    return Judged(legal, item.verdict.best.uci if item.verdict.HasField("best") else None)


def _judged_in_json(verdict: dict[str, Any]) -> Judged:
    if "outcome" not in verdict:  # a problem in its place
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
        """The body of the reply. Raises `RuntimeError` if the reply is no 200."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
        return body

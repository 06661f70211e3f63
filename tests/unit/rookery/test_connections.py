"""Silent callers do not take the descriptors of a service."""

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path

import grpc
import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.types import Receive, Scope, Send

from rookery import connections, grpc_connections, serving
from rookery.access import OPEN, Access
from rookery.serving import Service, add_probes, serve
from tests.certificates import Authority
from tests.conftest import free_port
from tests.unit.rookery.running import running
from tests.waiting import eventually

LIMIT = 16
Connect = Callable[..., socket.socket]


@pytest.fixture(autouse=True)
def _few_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "connection_limit", lambda: LIMIT)


def inn(access: Access = OPEN) -> Service:
    """A service whose guests stay until it ends."""
    app, service = FastAPI(), Service("inn", FastAPI(), "127.0.0.1", free_port(), "INN_PORT", access)
    add_probes(app)

    @app.get("/stay")
    async def stay() -> str:
        await service.stopping.wait()
        return "slept well"

    @app.post("/eat")
    async def eat(body: dict[str, str]) -> str:
        return "thanks"

    service.app = app
    return service


@pytest.fixture
def connect() -> Iterator[Connect]:
    with ExitStack() as stack:

        def connected(service: Service, said: bytes = b"") -> socket.socket:
            sock = stack.enter_context(socket.create_connection((service.host, service.port)))
            sock.sendall(said)
            sock.setblocking(False)
            return sock

        yield connected


def answer(sock: socket.socket) -> bytes | None:
    """What has come so far, or nothing if the connection is closed. None: neither."""
    try:
        return sock.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except ConnectionResetError:
        return b""


def is_closed(sock: socket.socket) -> bool:
    return answer(sock) == b""


@pytest.mark.parametrize(
    "said", [b"", b"GET / HT", b"POST /eat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"]
)
async def test_the_longest_silent_make_room(connect: Connect, said: bytes) -> None:
    service = inn()
    async with running(service) as client:
        silent = [connect(service, said) for _ in range(3 * LIMIT)]
        await eventually(lambda: sum(map(is_closed, silent)) >= len(silent) - LIMIT)
        assert (await client.get("/healthz")).status_code == 200
        assert not is_closed(silent[-1])
        for sock in silent:
            sock.close()


async def test_requests_in_flight_are_never_closed(connect: Connect) -> None:
    service = inn()
    async with running(service) as client:
        await client.aclose()
        guests = [connect(service, b"GET /stay HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(LIMIT)]
        late = connect(service)
        await eventually(lambda: is_closed(late))
        service.stopping.set()
        await eventually(lambda: all(b"slept well" in (answer(guest) or b"") for guest in guests))


async def test_an_idle_connection_ends(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.1)
    service = inn()
    async with running(service):
        guest = connect(service, b"GET /stay HTTP/1.1\r\nHost: localhost\r\n\r\n")
        silent = connect(service)
        await eventually(lambda: is_closed(silent))
        assert not is_closed(guest)


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in pieces"])
async def test_who_does_not_read_a_large_answer_is_closed_and_who_reads_slowly_is_not(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.5)
    service, served = inn(), set[str]()

    class Feast(StreamingResponse):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            served.add(scope["path"])
            try:
                await super().__call__(scope, receive, send)
            finally:
                served.remove(scope["path"])

    @service.app.get("/feast/{guest}")
    async def feast(guest: str) -> StreamingResponse:
        courses = [bytes(32 << 20)] if whole else [bytes(1 << 20)] * 32
        return Feast(iter(courses))

    async with running(service):
        asked = "GET /feast/{} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connect(service, asked.format("sleeper").encode())
        reader, writer = await asyncio.open_connection(sock=connect(service, asked.format("slow").encode()))
        with closing(writer):
            await eventually(lambda: served == {"/feast/sleeper", "/feast/slow"})
            while "/feast/sleeper" in served:
                await reader.readexactly(1 << 19)
                await asyncio.sleep(0.1)
            assert served == {"/feast/slow"}
            await reader.readexactly(8 << 20)


async def test_a_slow_handshake_makes_room(connect: Connect, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    service = inn(authority.sign("inn", mutual=False))
    task = asyncio.create_task(serve(service))
    url, context = (
        f"https://127.0.0.1:{service.port}/healthz",
        ssl.create_default_context(cafile=authority.ca),
    )

    async def healthz() -> bool:
        async with httpx.AsyncClient(verify=context) as client:
            try:
                return (await client.get(url)).is_success
            except httpx.TransportError:
                return False

    await eventually(healthz)
    silent = [connect(service) for _ in range(LIMIT)]
    await eventually(healthz)
    assert any(map(is_closed, silent))
    service.stopping.set()
    await task


async def test_an_endless_head_is_refused(connect: Connect) -> None:
    service = inn()
    async with running(service):
        for head in (b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000):
            sock = connect(service, head)
            _, writer = await asyncio.open_connection(sock=sock)
            with pytest.raises(ConnectionError):
                for _ in range(1000):
                    writer.write(b"a" * 10_000)
                    await writer.drain()


async def test_a_lack_of_descriptors_is_one_line_a_second(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    service = inn()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with running(service) as client:
        silent = [connect(service) for _ in range(4)]  # the kernel answers
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            await asyncio.sleep(1.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        lines = [record for record in caplog.records if "out of system resource" in record.getMessage()]
        assert len(lines) in (1, 2)
        assert (await client.get("/healthz")).status_code == 200
        assert not any(map(is_closed, silent))


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@pytest.mark.parametrize("said", [b"", PREFACE, PREFACE + SETTINGS], ids=["silent", "greeting", "idle"])
async def test_a_crowd_on_the_grpc_port_keeps_nobody_out_and_ends_no_call(said: bytes) -> None:
    service = inn()
    service.grpc_port, service.add_grpc = 0, lambda server: None
    async with running(service), AsyncExitStack() as stack:
        target, request = f"127.0.0.1:{service.grpc_port}", health_pb2.HealthCheckRequest()
        guest = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        late = await stack.enter_async_context(grpc.aio.insecure_channel(target, options=[("late", 1)]))
        watch = health_pb2_grpc.HealthStub(guest).Watch(request)
        assert await watch.read()
        for _ in range(4 * LIMIT):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", service.grpc_port)))
            sock.sendall(said)
        answer = health_pb2_grpc.HealthStub(late).Check(
            request, timeout=serving.GREETING_S / 2, wait_for_ready=True
        )
        assert (await answer).status == health_pb2.HealthCheckResponse.SERVING
        assert not watch.done()
        watch.cancel()


@pytest.mark.parametrize(("busy", "looks"), [(0, 1), (LIMIT, 5)], ids=["nothing happens", "all are busy"])
async def test_connections_to_the_grpc_port_are_looked_at_if_there_is_a_reason(
    busy: int, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are too many may have ended their calls meanwhile, which does not change their number."""
    limited, stopping, looked, counted = (
        grpc_connections.GrpcConnections(limit=LIMIT),
        asyncio.Event(),
        [],
        [],
    )
    limited._callers = {f"h:{number}": grpc_connections.Caller(0.0, calls=1) for number in range(busy)}

    def count() -> int:
        counted.append(1)
        if len(counted) == 5:
            stopping.set()
        return LIMIT

    def found(port: int) -> Iterator[tuple[str, int]]:
        looked.append(port)
        yield from ((f"h:{number}", -1) for number in range(busy))

    monkeypatch.setattr(grpc_connections, "_count", count)
    monkeypatch.setattr(grpc_connections, "_connections", found)
    await limited.keep_room(1, stopping)
    assert len(looked) == looks


def test_descriptors_are_counted(tmp_path: Path) -> None:
    before = grpc_connections._count()
    with ExitStack() as stack:
        for number in range(50):
            stack.enter_context((tmp_path / str(number)).open("w"))
        assert grpc_connections._count() == before + 50

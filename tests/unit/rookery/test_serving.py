"""One process, two transports: probes, problem documents, taken ports, drain."""

import asyncio
import gc
import json
import logging
import os
import signal
import socket
from collections.abc import Iterator

import grpc
import pytest
from fastapi import FastAPI
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rookery import serving
from rookery.access import Access
from rookery.errors import Conflict, EngineFault, InvalidInput, RookeryError, SetupError
from rookery.metrics import FEED_WAIT_S
from rookery.middleware import StrictBody
from rookery.processes.ports import bind
from rookery.serving import Service, add_probes, add_problem_handlers, grpc_errors, serve
from rookery.v1 import reward_pb2, reward_pb2_grpc
from tests.conftest import free_port
from tests.unit.rookery.running import running


class Order(StrictBody):
    """A body with something to get wrong."""

    loaves: int


class Bakery:
    """A service with every kind of end."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.app = FastAPI()
        add_probes(self.app, ready=self.ready)
        add_problem_handlers(self.app)
        self.app.get("/fail/{kind}")(self.fail)
        self.app.post("/order")(self.order)
        self.app.get("/slow")(self.slow)
        self.app.get("/endless")(self.endless)
        self.baking = asyncio.Event()

    async def ready(self) -> str | None:
        return self.reason

    async def fail(self, kind: str) -> None:
        raise {"conflict": Conflict, "engine": EngineFault}.get(kind, InvalidInput)(f"no {kind[:20]!r}")

    async def order(self, order: Order) -> int:
        return order.loaves

    async def slow(self) -> str:
        self.baking.set()
        await asyncio.sleep(0.2)
        return "bread"

    async def endless(self) -> None:
        self.baking.set()
        await asyncio.Event().wait()

    def service(self, **more: object) -> Service:
        return Service("bakery", self.app, "127.0.0.1", free_port(), "BAKERY_PORT", **more)  # type: ignore[arg-type]


@pytest.fixture
def bakery() -> Bakery:
    return Bakery()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield int(sock.getsockname()[1])


async def test_probes(bakery: Bakery) -> None:
    async with running(bakery.service()) as client:
        assert (await client.get("/healthz")).json() == {"status": "alive"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        bakery.reason = "the oven is cold"
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert response.json() == {"status": "not ready", "reason": "the oven is cold"}
        metrics = await client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert f"# HELP {FEED_WAIT_S._name}_total" in metrics.text


@pytest.mark.parametrize(
    ("kind", "status", "problem", "title"),
    [
        ("input", 422, "invalid-input", "Invalid input"),
        ("conflict", 409, "conflict", "Conflict"),
        ("engine", 503, "engine-fault", "Engine fault"),
    ],
)
async def test_an_error_is_a_problem_document(
    bakery: Bakery, kind: str, status: int, problem: str, title: str
) -> None:
    async with running(bakery.service()) as client:
        response = await client.get(f"/fail/{kind}")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == status
    assert response.json() == {
        "type": f"urn:rookery:problem:{problem}",
        "title": title,
        "status": status,
        "detail": f"no '{kind}'",
    }
    assert response.headers.get("retry-after") == ("1" if status == 503 else None)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"loaves": "many"}', 'body.loaves: Input should be a valid integer, unable to parse string as an '
         'integer (got "many")'),
        ("{}", "body.loaves: Field required (got {})"),
        ("{", "body.1: JSON decode error (got {})"),
        ('{"loaves": "' + "x" * 500 + '"}', '(got "' + "x" * 199 + "...)"),
    ],
)  # fmt: skip
async def test_a_wrong_body_is_a_problem_that_quotes_it(bakery: Bakery, body: str, detail: str) -> None:
    async with running(bakery.service()) as client:
        response = await client.post("/order", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].endswith(detail)


async def test_a_body_that_is_not_called_json_is_told_so(bakery: Bakery) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}  # what curl sends by itself
    async with running(bakery.service()) as client:
        response = await client.post("/order", content='{"loaves": 1}', headers=form)
    assert response.status_code == 422
    assert response.json()["detail"].endswith(
        f"the Content-Type is {form['content-type']!r}, not application/json"
    )


MANY = 1234


@pytest.mark.parametrize(
    "body", ['{"loaves": [' + "[]," * (MANY - 1) + "[]]}", json.dumps({str(n): [] for n in range(MANY)})]
)
async def test_a_refused_body_is_freed_without_the_garbage_collector(bakery: Bakery, body: str) -> None:
    async with running(bakery.service()) as client:
        gc.collect()
        gc.disable()
        try:
            response = await client.post("/order", content=body, headers={"content-type": "application/json"})
            left = [each for each in gc.get_objects() if type(each) in (list, dict) and len(each) == MANY]
        finally:
            gc.enable()
    assert response.status_code == 422
    assert not left


async def test_an_unknown_path_is_a_problem_too(bakery: Bakery) -> None:
    async with running(bakery.service()) as client:
        response = await client.get("/cake")
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json() == {
        "type": "about:blank", "title": "Not Found", "status": 404, "detail": "GET /cake",
    }  # fmt: skip


@pytest.mark.parametrize("token", ["", "a-token-for-the-tests-0123456789"])
async def test_a_long_path_is_quoted_in_part(
    bakery: Bakery, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(bakery.service(access=Access(token))) as client:
        for path in ("/", "/fail/"):
            assert len((await client.get(path + "a" * 60_000)).content) < 1000
    lines = [record.getMessage() for record in caplog.records if record.name == serving.__name__]
    assert max(map(len, lines)) < 1000


async def test_a_taken_port_names_the_setting_that_changes_it(bakery: Bakery, taken_port: int) -> None:
    service = bakery.service()
    service.port = taken_port
    message = f"port {taken_port} on 127.0.0.1 is taken: choose another with BAKERY_PORT"
    with pytest.raises(SetupError, match=message):
        await serve(service)


async def test_a_taken_grpc_port_names_the_setting_that_changes_it(bakery: Bakery, taken_port: int) -> None:
    service = bakery.service(
        grpc_port=taken_port, grpc_port_setting="BAKERY_GRPC_PORT", add_grpc=lambda server: None
    )
    message = f"grpc port {taken_port} on 127.0.0.1 is taken: choose another with BAKERY_GRPC_PORT"
    with pytest.raises(SetupError, match=message):
        await serve(service)


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(SetupError, match=r"cannot listen on 192\.0\.2\.1:0: .* \(BAKERY_HOST\)"):
        bind("192.0.2.1", 0, setting="BAKERY_HOST")


async def test_a_request_in_flight_finishes_before_the_end(bakery: Bakery) -> None:
    service = bakery.service()
    async with running(service) as client:
        slow = asyncio.create_task(client.get("/slow"))
        await bakery.baking.wait()
        service.stopping.set()
        assert (await slow).json() == "bread"


async def test_a_request_that_the_end_cannot_wait_for_is_unavailable(
    bakery: Bakery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "DRAIN_S", 1)
    service = bakery.service()
    async with running(service) as client:
        endless = asyncio.create_task(client.get("/endless"))
        await bakery.baking.wait()
        service.stopping.set()
        answer = await endless
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["detail"] == "the service is stopping"
    assert not [record for record in caplog.records if record.exc_info]


async def test_sigterm_drains(bakery: Bakery) -> None:
    stopped: list[str] = []

    async def on_stop() -> None:
        stopped.append("oven off")

    async with running(bakery.service(on_stop=on_stop)) as client:
        slow = asyncio.create_task(client.get("/slow"))
        await bakery.baking.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert (await slow).json() == "bread"
    assert stopped == ["oven off"]


async def test_ctrl_c_before_the_handlers_ends_the_background_tasks(bakery: Bakery) -> None:
    ended: list[bool] = []

    async def work(stopping: asyncio.Event) -> None:
        await stopping.wait()
        ended.append(True)

    async def interrupted() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel()  # as asyncio.run does
        await serve(bakery.service(background=(work,)))

    await asyncio.create_task(interrupted())
    assert ended == [True]


async def test_a_background_task_that_fails_ends_the_service(bakery: Bakery) -> None:
    async def burn(stopping: asyncio.Event) -> None:
        raise EngineFault("fire")

    with pytest.raises(EngineFault, match="fire"):
        await asyncio.wait_for(serve(bakery.service(background=(burn,))), timeout=60.0)


class RefusingReward(reward_pb2_grpc.RewardServiceServicer):
    """Answers every request with one error."""

    def __init__(self, error: RookeryError) -> None:
        self._error = error

    async def Score(  # noqa: N802
        self,
        request: reward_pb2.ScoreRequest,
        context: grpc.aio.ServicerContext[reward_pb2.ScoreRequest, reward_pb2.ScoreResponse],
    ) -> reward_pb2.ScoreResponse:
        async with grpc_errors(context):
            raise self._error
        return reward_pb2.ScoreResponse()


async def test_grpc_carries_health_and_the_same_errors(bakery: Bakery) -> None:
    name = "rookery.v1.RewardService"
    reward = RefusingReward(InvalidInput("no fen 'x'"))
    service = bakery.service(
        grpc_port=0,
        add_grpc=lambda server: reward_pb2_grpc.add_RewardServiceServicer_to_server(reward, server),
        grpc_services=(name,),
    )
    async with running(service), grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for asked in ("", name):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=asked))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await reward_pb2_grpc.RewardServiceStub(channel).Score(reward_pb2.ScoreRequest(fen="x"))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "no fen 'x'"


class PeersOfReward(reward_pb2_grpc.RewardServiceServicer):
    """Remembers which connections its callers came by; answers slowly enough to be overtaken by their end."""

    def __init__(self) -> None:
        self.peers: set[str] = set()

    async def ScoreBatch(  # noqa: N802
        self,
        request: reward_pb2.ScoreBatchRequest,
        context: grpc.aio.ServicerContext[reward_pb2.ScoreBatchRequest, reward_pb2.ScoreBatchResponse],
    ) -> reward_pb2.ScoreBatchResponse:
        self.peers.add(context.peer())
        await asyncio.sleep(0.03)
        return reward_pb2.ScoreBatchResponse()


async def test_connections_are_renewed_and_no_call_is_lost(
    bakery: Bakery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CONNECTION_AGE_S", 0.05)
    reward = PeersOfReward()
    service = bakery.service(
        grpc_port=0,
        add_grpc=lambda server: reward_pb2_grpc.add_RewardServiceServicer_to_server(reward, server),
    )
    async with running(service), grpc.aio.insecure_channel(f"127.0.0.1:{service.grpc_port}") as channel:
        stub = reward_pb2_grpc.RewardServiceStub(channel)
        async with asyncio.timeout(20.0):
            while len(reward.peers) < 3:
                await asyncio.gather(*(stub.ScoreBatch(reward_pb2.ScoreBatchRequest()) for _ in range(10)))


async def test_the_port_is_free_again_after_the_end(bakery: Bakery) -> None:
    service = bakery.service()
    async with running(service):
        pass
    bind(service.host, service.port, setting="BAKERY_PORT").close()

"""Who waits while the server sleeps, and what wakes it. vLLM, which needs a GPU for this, is not there."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from rookery.clients import InferenceClient
from rookery.errors import Conflict, PeerFault, Unavailable
from rookery.trace import Adapter, PolicyVersion
from services.inference.server import drain, policies
from services.inference.server.plugin import RookeryPlugin, ServerState
from services.inference.server.sleep import Sleeper

ADAPTER = Adapter(PolicyVersion(3, "0" * 64), "a", "m")


class Engine:
    """vLLM, and the policies on it: remembers what happened, with `fault` instead of the next call."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.fault: Exception | None = None
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()

    def _do(self, what: str) -> None:
        if fault := self.fault:
            self.fault = None
            raise fault
        self.did.append(what)

    async def sleep(self, level: int) -> None:
        self._do(f"sleep {level}")

    async def wake_up(self) -> None:
        self._do("wake up")

    async def reload(self, adapter: Adapter, *, rollback: bool) -> policies.ReloadResult:
        self._do("reload")
        return policies.ReloadResult(adapter, changed=False)

    async def prepare(self) -> None:
        self._do("prepare")

    async def unload_retired(self) -> None:
        self._do("unload")


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def app(engine: Engine) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.post("/v1/completions")
    async def complete() -> dict[str, Any]:
        engine.did.append("asked")
        engine.asked.set()
        await engine.may_answer.wait()
        engine.did.append("answered")
        return {}

    RookeryPlugin().attach_router(app)
    sleeper = Sleeper(engine, engine, app.state.rookery_drainer, may_sleep=True)  # type: ignore[arg-type]
    served = SimpleNamespace(served=ADAPTER)
    app.state.rookery = ServerState(SimpleNamespace(errored=False), served, sleeper, None, ())  # type: ignore[arg-type]
    return app


@pytest.fixture
async def client(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InferenceClient]:
    """The trainer's client, without a socket in between."""
    made = InferenceClient("http://localhost")
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
    monkeypatch.setattr(made, "_http", http)
    yield made
    await http.aclose()


def ask(client: InferenceClient) -> "asyncio.Task[httpx.Response]":
    return asyncio.create_task(client._http.request("POST", "/v1/completions"))


async def test_requests_in_flight_are_answered_first_and_later_ones_wait(
    client: InferenceClient, engine: Engine
) -> None:
    engine.may_answer.clear()
    first = ask(client)
    await engine.asked.wait()
    sleeping = asyncio.create_task(client.sleep())
    await asyncio.sleep(0.01)
    engine.may_answer.set()
    await sleeping
    await client.sleep()
    assert engine.did == ["asked", "answered", "sleep 1"]
    second = ask(client)
    await asyncio.sleep(0.01)
    assert not second.done()
    await client.wake_up()
    await client.wake_up()
    assert [(await answer).status_code for answer in (first, second)] == [200, 200]
    assert engine.did == ["asked", "answered", "sleep 1", "wake up", "asked", "answered"]


async def test_a_reload_finds_it_awake(client: InferenceClient, engine: Engine) -> None:
    """As of a trainer that was killed while the server slept."""
    await client.sleep()
    waiting = ask(client)
    await client.reload(ADAPTER)
    assert engine.did[:3] == ["sleep 1", "wake up", "reload"]
    assert (await waiting).status_code == 200


async def test_a_server_that_sleeps_serves_nothing_but_stays_ready(client: InferenceClient) -> None:
    """The rollouts must wait; the trainer must find it to wake it."""
    assert await client.adapter() == ADAPTER
    await client.sleep()
    assert await client.adapter() is None
    answer = await client._http.request("GET", "/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "asleep"})
    await client.wake_up()
    assert await client.adapter() == ADAPTER


async def test_nothing_is_loaded_or_unloaded_while_it_sleeps(
    app: FastAPI, client: InferenceClient, engine: Engine
) -> None:
    await client.sleep()
    await app.state.rookery.sleeper.maintain()
    with pytest.raises(Unavailable, match="asleep"):
        await app.state.rookery.sleeper.reload(ADAPTER, wake=False)
    await client.wake_up()
    await app.state.rookery.sleeper.maintain()
    assert engine.did == ["sleep 1", "wake up", "prepare", "unload"]


async def test_what_fails_leaves_it_as_it_was(
    client: InferenceClient, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.fault = RuntimeError("no memory on this machine")
    with pytest.raises(PeerFault, match="vLLM cannot sleep: no memory on this machine"):
        await client.sleep()
    held = ask(client)
    await client.wake_up()  # the trainer gives up
    assert (await held).status_code == 200
    await client.sleep()
    engine.fault = RuntimeError("CUDA out of memory")
    with pytest.raises(PeerFault, match="vLLM cannot wake up: CUDA out of memory"):
        await client.wake_up()
    waiting = ask(client)
    await client.wake_up()
    assert (await waiting).status_code == 200
    monkeypatch.setattr(drain.RequestDrainer, "limit_s", 0.0)
    engine.asked.clear()
    engine.may_answer.clear()
    slow = ask(client)
    await engine.asked.wait()
    with pytest.raises(PeerFault, match="requests in flight did not end within 0 s: 1"):
        await client.sleep()
    later = ask(client)
    engine.may_answer.set()
    assert (await slow).status_code == 200
    assert not later.done(), "until the trainer gives up"
    await client.wake_up()
    assert (await later).status_code == 200


async def test_a_server_that_may_not_sleep_says_so(
    app: FastAPI, client: InferenceClient, engine: Engine
) -> None:
    drainer = drain.RequestDrainer()
    sleeper = Sleeper(engine, engine, drainer, may_sleep=False)  # type: ignore[arg-type]
    app.state.rookery = replace(app.state.rookery, sleeper=sleeper)
    with pytest.raises(Conflict, match="this server was started without sleep=true"):
        await client.sleep()

"""The door: what is inside is finished, what comes while it is shut waits."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rookery.errors import InvalidInput, Unavailable
from services.inference.server import drain
from services.inference.server.drain import DrainMiddleware, RequestDrainer


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_shutting_waits_for_those_inside_and_holds_back_those_outside() -> None:
    drainer, order = RequestDrainer(), list[str]()
    leave = asyncio.Event()

    async def request(name: str, until: asyncio.Event | None = None) -> None:
        async with drainer.admitted():
            order.append(f"{name} in")
            if until:
                await until.wait()
            order.append(f"{name} out")

    async def swap() -> None:
        async with drainer.drained():
            order.append("shut")
            await settle()
            order.append("opens")

    tasks = [asyncio.create_task(request("first", leave))]
    await settle()
    tasks.append(asyncio.create_task(swap()))
    await settle()
    tasks.append(asyncio.create_task(request("second")))
    await settle()
    assert order == ["first in"]
    leave.set()
    await asyncio.gather(*tasks)

    assert order == ["first in", "first out", "shut", "opens", "second in", "second out"]


async def test_between_retries_no_request_is_admitted() -> None:
    drainer, leave, admitted = RequestDrainer(least_s=0.01), asyncio.Event(), list[str]()

    async def request(name: str, until: asyncio.Event) -> None:
        async with drainer.admitted():
            admitted.append(name)
            await until.wait()

    first = asyncio.create_task(request("first", leave))
    await settle()
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"did not end within 0\.01 s: 1"):
            async with drainer.drained():
                pytest.fail("a request is in flight")
    second = asyncio.create_task(request("second", leave))
    await settle()
    assert admitted == ["first"]
    leave.set()
    await first
    async with drainer.drained():
        assert admitted == ["first"]
    await second
    assert admitted == ["first", "second"]


async def test_without_a_retry_requests_are_admitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "HOLD_S", 0.01)
    drainer = RequestDrainer(least_s=0.01)
    async with drainer.admitted():
        with pytest.raises(Unavailable):
            async with drainer.drained():
                pytest.fail("a request is in flight")
        async with asyncio.timeout(60), drainer.admitted():
            pass


async def test_a_change_given_up_for_good_lets_requests_go_on() -> None:
    drainer = RequestDrainer()
    with pytest.raises(InvalidInput):
        async with drainer.drained():
            raise InvalidInput("a refused version is not tried again")
    async with asyncio.timeout(60.0), drainer.admitted():
        pass


async def test_after_an_engine_that_was_not_idle_requests_wait_for_the_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "HOLD_S", 0.01)
    drainer = RequestDrainer()
    with pytest.raises(Unavailable):
        async with drainer.drained():
            raise Unavailable("the engine is not idle")
    assert not drainer._open.is_set()
    async with asyncio.timeout(60.0), drainer.admitted():
        pass


async def test_the_time_limit_follows_the_longest_recent_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    drainer, now = RequestDrainer(least_s=100.0), [0.0]
    monkeypatch.setattr(drain.time, "monotonic", lambda: now[0])

    async def answer(seconds: float) -> None:
        async with drainer.admitted():
            now[0] += seconds

    limits = []
    for seconds in (44, 175, 1, 1000):
        await answer(seconds)
        limits.append(drainer.limit_s)
    assert limits == [100, 350, 350, drain.MOST_DRAIN_S]
    for _ in range(256):
        await answer(1)
    assert drainer.limit_s == 100


async def test_a_request_that_fails_has_left() -> None:
    drainer = RequestDrainer()
    with pytest.raises(ZeroDivisionError):
        async with drainer.admitted():
            raise ZeroDivisionError
    async with drainer.drained():
        pass


async def test_only_posts_of_others_are_held_back() -> None:
    drainer, seen = RequestDrainer(), list[str]()

    async def app(scope: dict[str, str], receive: object, send: object) -> None:
        seen.append(scope["path"])

    middleware = DrainMiddleware(app, drainer)  # type: ignore[arg-type]

    def ask(method: str, path: str, kind: str = "http") -> "asyncio.Task[None]":
        scope = {"type": kind, "method": method, "path": path}
        return asyncio.create_task(middleware(scope, None, None))  # type: ignore[arg-type]

    async with drainer.drained():
        tasks = [ask("POST", "/v1/completions"), ask("POST", "/reload"), ask("POST", "/lease")]
        tasks.append(ask("GET", "/policy"))
        tasks.append(ask("", "", kind="lifespan"))
        await settle()
        assert seen == ["/reload", "/lease", "/policy", ""]
    await asyncio.gather(*tasks)
    assert seen[-1] == "/v1/completions"


async def test_closing_answers_what_is_open_and_what_comes_later() -> None:
    drainer, sent = RequestDrainer(), dict[str, list[dict[str, Any]]]()

    async def app(scope: dict[str, str], receive: object, send: Callable[..., Awaitable[None]]) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.Event().wait()

    middleware = DrainMiddleware(app, drainer)  # type: ignore[arg-type]

    def ask(path: str) -> "asyncio.Task[None]":
        async def send(message: dict[str, Any]) -> None:
            sent.setdefault(path, []).append(message)

        scope = {"type": "http", "method": "POST", "path": path}
        return asyncio.create_task(middleware(scope, None, send))  # type: ignore[arg-type]

    tasks = [ask("/v1/completions"), ask("/stream"), ask("/reload")]
    await settle()
    await drainer.close("the server is stopping", within_s=60.0)
    tasks.append(ask("/late"))
    await asyncio.gather(*tasks)

    for path in ("/v1/completions", "/reload", "/late"):
        start, body = sent[path]
        assert start["status"] == 503
        assert json.loads(body["body"])["detail"] == "the server is stopping"
    assert [message["type"] for message in sent["/stream"]] == ["http.response.start"], "cut off, not ended"


async def test_a_request_given_up_by_its_client_is_cancelled_as_ever() -> None:
    drainer = RequestDrainer()

    async def request() -> None:
        async with drainer.cancellable():
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await drainer.close("the server is stopping", within_s=60.0)
    with pytest.raises(Unavailable, match="the server is stopping"):
        await request()

"""Waits with an end: for what a test has started, as a process or a task."""

import asyncio
import contextlib
import inspect
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import httpx
import pytest

T = TypeVar("T")
Process = subprocess.Popen[bytes] | subprocess.Popen[str]


def wait_for(
    url: str,
    process: Process,
    *,
    status: int = 200,
    within_s: float = 240.0,
    log: Path | Callable[[], str] | None = None,
) -> httpx.Response:
    """The first answer of `url` with `status`. If there is none, the test fails and shows the log."""
    deadline = time.monotonic() + within_s
    with httpx.Client(timeout=10.0) as http:  # `httpx.get` loads certificates each time: 20 ms of CPU
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                answer = http.get(url)
                if answer.status_code == status:
                    return answer
            time.sleep(0.05)
    pytest.fail(f"{url} did not answer {status} in {within_s} s (exit {process.poll()}): {_text(log)}")


def until(
    condition: Callable[[], T],
    *,
    within_s: float = 240.0,
    every_s: float = 0.02,
    of: Process | None = None,
    log: Path | Callable[[], str] | None = None,
) -> T:
    """The first true value of `condition()`. If there is none, or `of` ends before, the test fails."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        ended = of is not None and of.poll() is not None
        if ended and (found := condition()):  # it came true before the end
            break
        if ended or time.monotonic() > deadline:
            _give_up(condition, within_s, of, log)
        time.sleep(every_s)
    return found


async def eventually(
    condition: Callable[[], T | Awaitable[T]], *, within_s: float = 240.0, every_s: float = 0.01
) -> T:
    """The same in an event loop; `condition` may be a coroutine function."""
    deadline = time.monotonic() + within_s
    while True:
        found = await asyncio.to_thread(condition)  # a call that waits for Redis must not stop the loop
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            _give_up(condition, within_s)
        await asyncio.sleep(every_s)


def _give_up(
    condition: Callable[..., object],
    within_s: float,
    of: Process | None = None,
    log: Path | Callable[[], str] | None = None,
) -> NoReturn:
    try:
        asked = inspect.getsource(condition).strip()
    except (OSError, TypeError):
        asked = repr(condition)
    ended = f", and the process ended with {of.poll()}" if of and of.poll() is not None else ""
    pytest.fail(f"not true within {within_s:.0f} s{ended}: {asked}\n{_text(log)}")


def _text(log: Path | Callable[[], str] | None) -> str:
    if isinstance(log, Path):
        return log.read_text()[-4000:] if log.exists() else f"no {log}"
    return log() if log else ""

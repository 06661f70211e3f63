"""Records the calls by which a process changes a run, so that `tests.chaos.histories` can check the results.

All processes append to the same file, a line of JSON for each event. A call is an `invoke`, and then `ok`
with its answer, `fail` if it was refused, or `unknown` if it was given up without an answer. An `invoke`
without a result, left by a killed process, counts as unknown.
"""

import itertools
import json
import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from rookery.errors import RookeryError, Unavailable
from rookery.streams.dead import DeadLetters
from rookery.streams.run import Archive, Groups, PolicyRecord, Positions, RunStreams
from rookery.streams.stream import Stream

METHODS: dict[str, tuple[type, str]] = {
    "add_positions": (Positions, "add"),
    "publish_group": (Groups, "publish"),
    "settle": (Groups, "settle"),
    "take_over": (RunStreams, "take_over"),
    "publish_policy": (PolicyRecord, "publish"),
    "take_over_archive": (Archive, "take_over"),
    "archived": (Archive, "acknowledge"),
    "dead_letter": (Stream, "dead_letter"),
    "replay_dead": (DeadLetters, "replay"),
    "drop_dead": (DeadLetters, "drop"),
}
"""The calls by their names in a history."""

_calls = itertools.count()


def record(path: Path) -> Callable[[], None]:
    """Records the calls of this process from now on, until the function that it returns is called."""
    plain = {name: getattr(owner, method) for name, (owner, method) in METHODS.items()}
    started = time.time_ns()  # tells processes apart that have the same id, one after the other
    for name, (owner, method) in METHODS.items():
        setattr(owner, method, _recorded(name, plain[name], path, f"{os.getpid()}-{started}"))

    def stop() -> None:
        for name, (owner, method) in METHODS.items():
            setattr(owner, method, plain[name])

    return stop


def _recorded(name: str, method: Callable[..., Any], path: Path, process: str) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        number = next(_calls)

        def write(event: str, **more: object) -> None:
            line = {"s": time.monotonic(), "process": process, "call": number, "event": event}
            # One write in append mode: whole, whichever process writes too.
            with path.open("a") as file:
                file.write(json.dumps({**line, "run": self.redis.run, "name": name, **more}) + "\n")

        write("invoke", args=[_brief(arg) for arg in args], **{k: _brief(v) for k, v in kwargs.items()})
        try:
            answer = method(self, *args, **kwargs)
        except RookeryError as error:
            write("unknown" if isinstance(error, Unavailable) else "fail", reason=str(error))
            raise
        write("ok", answer=answer)
        return answer

    return call


def _brief(value: Any) -> Any:
    """Numbers, texts and None as they are, a version by its number, other values by their id or `repr`."""
    if isinstance(value, list | tuple):
        return [_brief(each) for each in value]
    if isinstance(value, str | int | float | None):
        return value
    return value.version.number if hasattr(value, "version") else getattr(value, "id", None) or repr(value)

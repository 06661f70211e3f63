"""Records the calls by which this process changes a run, so that their results can be checked afterwards.

    ROOKERY_HISTORY=FILE    all processes append to the same file, a line of JSON for each event

A call is an `invoke`, and then `ok` with its answer, `fail` if it was refused, or `unknown` if it was given
up without an answer. An `invoke` without a result, left by a killed process, counts as unknown.
`python -m tests.chaos.histories FILE` checks one.
"""

import itertools
import json
import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from rookery.errors import RookeryError, Unavailable
from rookery.streams.connection import RunConnection

P = ParamSpec("P")
S = TypeVar("S", bound=RunConnection)
T = TypeVar("T")

_calls = itertools.count()
_STARTED = time.time_ns()
"""Tells processes apart that have the same id, one after the other or in two containers."""


def recorded(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Records the calls of a method. Without ROOKERY_HISTORY it only looks up that variable."""

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        path = os.environ.get("ROOKERY_HISTORY")
        if not path:
            return method(self, *args, **kwargs)
        number = next(_calls)

        def write(event: str, **more: object) -> None:
            process = f"{os.getpid()}-{_STARTED}"
            line = {"s": time.monotonic(), "process": process, "call": number, "event": event}
            # One write in append mode: whole, whichever process writes too.
            with Path(path).open("a") as file:
                file.write(json.dumps({**line, "run": self.run, "name": method.__name__, **more}) + "\n")

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

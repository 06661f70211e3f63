"""One Stockfish in each worker process, kept between calls, for functions that `Workers` call.

The engine runs in an event loop of its own, which is only active during a call.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rookery.engines import EnginePool, find_engine
from rookery.errors import SetupError
from rookery.processes.workers import kept

R = TypeVar("R")

_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """The engine that every worker must have: where its binary is (None: where it usually is), its name."""

    path: Path | None
    name: str = ""

    def run(self, work: Callable[[EnginePool], Coroutine[Any, Any, R]]) -> R:
        """What `work` returns, given this process's engine.

        Raises:
            SetupError: this machine has no engine, or another one.
        """
        runner, engines = kept(_opened, self.path)
        if self.name and engines.engine_id != self.name:
            raise SetupError(
                f"the engine on {socket.gethostname()} is {engines.engine_id!r}, elsewhere {self.name!r}: "
                "install the same version on every machine"
            )
        return runner.run(work(engines))


def engine_name(path: Path | None) -> str:
    """What this process's engine calls itself."""
    _, engines = kept(_opened, path)
    return engines.engine_id


@contextmanager
def _opened(path: Path | None) -> Iterator[tuple["asyncio.Runner", EnginePool]]:
    binary = find_engine(path, setting="--engine")
    engines = EnginePool(binary, engines=1, hash_mb=16, queue=64, deadline_s=_DEADLINE_S)
    with asyncio.Runner() as runner:
        runner.run(engines.start())
        try:
            yield runner, engines
        finally:
            runner.run(engines.close())

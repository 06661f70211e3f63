"""Where the processor time of a measurement goes: server, engines, client, and everybody else."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import psutil

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds on the clock and of processor time; cores that strangers used, and that nobody did."""

    seconds: float
    server_cpu_s: float
    engine_cpu_s: float
    client_cpu_s: float
    others_cores: float
    idle_cores: float

    @property
    def cpu_s(self) -> float:
        """Of all who took part."""
        return self.engine_cpu_s + self.server_cpu_s + self.client_cpu_s


def measure(
    work: Callable[[], Result], *, server: int | None = None, engines: Sequence[int] = ()
) -> tuple[Result, Usage]:
    """Does `work` in this process, which is the client; `server` and `engines` are process ids."""
    before = _times(server, engines)
    started = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - started
    machine, server_s, engine_s, client_s = (
        now - then for now, then in zip(_times(server, engines), before, strict=True)
    )
    others = max(0.0, machine - server_s - engine_s - client_s) / seconds
    idle = max(0.0, (os.cpu_count() or 1) - machine / seconds)
    return result, Usage(seconds, server_s, engine_s, client_s, others, idle)


def _times(server: int | None, engines: Sequence[int]) -> tuple[float, float, float, float]:
    all_cores = psutil.cpu_times()
    idle = all_cores.idle + getattr(all_cores, "iowait", 0.0)
    guest = getattr(all_cores, "guest", 0.0) + getattr(all_cores, "guest_nice", 0.0)  # counted as user too
    return (
        sum(all_cores) - idle - guest,
        _process_s(server) if server else 0.0,
        sum(_process_s(pid) for pid in engines),
        time.process_time(),
    )


def family_s(pid: int | None = None) -> float:
    """Processor seconds of a process, by default this one, and of all below it."""
    process = psutil.Process(pid)
    return sum(_process_s(member.pid) for member in (process, *process.children(recursive=True)))


def _process_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

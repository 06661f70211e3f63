"""A run of real processes to disturb: Redis with its file, a trainer and an archiver, each through a proxy.

The groups are made here, the same for the same number, and published as rollouts do. So a run that is
disturbed must end with the bytes of one that is not. Processes are forked from a server that has imported
torch already: a start costs a fraction of a second.
"""

import contextlib
import importlib
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import redis

from launcher.redis_server import redis_argv
from rookery import failpoints
from rookery.codec import decode_position
from rookery.errors import Unavailable
from rookery.streams import RunStreams
from rookery.trace import TraceGroup
from tests.chaos.proxy import Proxy
from tests.conftest import free_port
from tests.unit.trainer.groups import make_group

BATCH = 3
MOST = 4 * BATCH
"""Groups that wait for the trainer at most."""
PATIENCE_S = 180.0
"""How long the run may take to go on after a fault, on a machine that does other things too."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["services.trainer.process", "services.data.archiver"])


class NotRecoveredError(AssertionError):
    """The run did not go on, or a fault was not felt."""


def _become(module: str, argv: list[str], env: Mapping[str, str], log: Path, file_bytes: int) -> None:
    """What a forked process does."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    failpoints.arm(env)
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    sys.argv = [module, *argv]
    sys.exit(importlib.import_module(module).main())


class Cluster:
    """A run. Use it as a context manager."""

    def __init__(self, folder: Path, model: Path, *, seed: int, fresh: bool = False) -> None:
        """With `fresh`, groups name the newest version, so that the trainer deletes old ones. Without, they
        name version 0, so that they are the same in each run.
        """
        self._fresh = fresh
        self.folder, self.model, self.random = folder, model, random.Random(seed)
        self.run_dir, self.logs, self.hits = folder / "run", folder / "logs", folder / "hits"
        self.logs.mkdir(parents=True)
        self._redis_port = free_port()
        self.url = f"redis://127.0.0.1:{self._redis_port}/0"
        self.start_redis()
        self.proxy = Proxy(self._redis_port, seed=seed)
        self._stopping = threading.Event()
        self.streams = RunStreams(self.url, "chaos", stopping=self._stopping)
        self.trainer: multiprocessing.process.BaseProcess | None = None
        self.archiver: multiprocessing.process.BaseProcess | None = None
        self.allowed = 0
        self._producing = threading.Thread(target=self._produce, daemon=True)

    def __enter__(self) -> Self:
        self._producing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stopping.set()
        for process in (self.trainer, self.archiver):
            if process:
                process.kill()
                process.join()
        self._producing.join(timeout=30)
        self.proxy.close()
        self.streams.close()
        self._redis.kill()
        self._redis.wait()

    # processes

    def start_redis(self) -> None:
        with (self.logs / "redis.log").open("ab") as log:
            argv = [*redis_argv(self.folder / "redis"), "--port", str(self._redis_port)]
            self._redis = subprocess.Popen(argv, stdout=log, stderr=log)

    def redis_client(self) -> "contextlib.closing[redis.Redis]":
        return contextlib.closing(redis.Redis.from_url(self.url))

    def signal_redis(self, number: signal.Signals) -> None:
        self._redis.send_signal(number)
        if number == signal.SIGKILL:
            self._redis.wait()

    def redis_is_stopped(self) -> bool:
        return psutil.Process(self._redis.pid).status() == psutil.STATUS_STOPPED

    def start_trainer(
        self,
        failpoint: str = "",
        *,
        file_bytes: int = 0,
        run_dir: Path | None = None,
        run: str = "chaos",
        steps: int = 0,
    ) -> multiprocessing.process.BaseProcess:
        flags = ["--model", str(self.model), "--run-dir", str(run_dir or self.run_dir), "--run", run]
        flags += ["--redis-url", f"redis://127.0.0.1:{self.proxy.port}/0", "--inference-urls", ""]
        flags += ["--device", "cpu", "--threads", "1", "--batch-groups", str(BATCH), "--port", "0"]
        flags += ["--max-staleness", "8" if self._fresh else "100000", "--max-steps", str(steps)]
        return self._start("services.trainer.__main__", flags, failpoint, file_bytes)

    def start_archiver(self, failpoint: str = "") -> multiprocessing.process.BaseProcess:
        flags = ["--run", "chaos", "--redis-url", f"redis://127.0.0.1:{self.proxy.port}/0", "--port", "0"]
        flags += ["--out", str(self.folder / "archive"), "--file-groups", "5", "--file-age-s", "0.5"]
        return self._start("services.data.archiver", flags, failpoint, 0)

    def _start(
        self, module: str, flags: list[str], failpoint: str, file_bytes: int
    ) -> multiprocessing.process.BaseProcess:
        env = {"ROOKERY_FAILPOINTS": failpoint, "ROOKERY_FAILPOINT_HITS": str(self.hits)}
        log = self.logs / f"{module.split('.')[1]}.log"
        process = _context.Process(target=_become, args=(module, flags, env, log, file_bytes), daemon=True)
        process.start()
        return process

    def ensure(self) -> None:
        """Starts what has ended, as a supervisor does."""
        if self.trainer is None or self.trainer.exitcode is not None:
            self.trainer = self.start_trainer()
        if self.archiver is None or self.archiver.exitcode is not None:
            self.archiver = self.start_archiver()

    def until(self, condition: Callable[[], object], what: str, *, supervised: bool = True) -> None:
        """Waits for `condition`, and starts what ends meanwhile.

        Raises:
            NotRecoveredError: it does not come true.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise NotRecoveredError(f"{what}: not within {PATIENCE_S:.0f} s; {self.streams.overview()}")
            if supervised:
                self.ensure()
            time.sleep(0.05)

    def settle(self, steps: int) -> None:
        """Waits until the run has done `steps` steps with nothing left, as the groups allow."""

        def done() -> bool:
            run = self.streams.overview()
            return run.committed == steps and not run.traces and not run.positions and not run.unarchived

        self.until(done, f"step {steps}")

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of the run, by name."""
        assert self.trainer
        assert self.archiver
        pids = {"trainer": self.trainer.pid, "archiver": self.archiver.pid, "redis": self._redis.pid}
        return {name: psutil.Process(pid) for name, pid in pids.items()}

    # groups

    def allow(self, steps: int) -> None:
        """Lets as many groups be made as `steps` steps need."""
        self.allowed = steps * BATCH

    def _produce(self) -> None:
        """Feeds positions and publishes their groups, again if Redis lost them."""
        streams = RunStreams(f"redis://127.0.0.1:{self.proxy.port}/0", "chaos", stopping=self._stopping)
        reading = {"group": "rollouts", "consumer": "chaos"}
        with contextlib.closing(streams):
            while not self._stopping.is_set():
                with contextlib.suppress(Unavailable):
                    cursor = streams.feed_cursor()
                    room = MOST - streams.overview().traces
                    numbers = range(cursor, min(self.allowed, cursor + max(0, room)))
                    policy = streams.policy() if self._fresh else None
                    version = policy.version.number if policy else 0
                    streams.add_positions([group_of(n).position for n in numbers], cursor=cursor)
                    streams.read("positions", count=100, block_s=0.05, **reading)
                    for entry in streams.read_held("positions", **reading):
                        group = group_of(int(decode_position(entry.data).id[1:]), version=version)
                        streams.publish_group(group, entry_id=entry.id, consumer_group="rollouts")


def group_of(number: int, *, version: int = 0) -> TraceGroup:
    """The group of a position; the same at each call."""
    return replace(make_group(number, version=version, vocabulary=90), run="chaos")

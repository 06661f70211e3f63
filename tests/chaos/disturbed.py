"""What all disturbed runs have: a Redis with its data on disk, behind a proxy that makes trouble."""

import contextlib
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import redis

from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from launcher.redis_server import redis_argv
from rookery.streams import RunStreams
from services.trainer.versions import commits
from tests.chaos.proxy import Proxy
from tests.conftest import free_port

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
"""What gives a process a clock of its own. On Debian: apt-get install libfaketime."""


class NotRecoveredError(AssertionError):
    """The run did not go on, or a fault was not felt."""


class Disturbed:
    """A run whose processes reach Redis through `proxy`. `streams` are its streams, without the proxy."""

    run_dir: Path
    patience_s = 600.0
    """How long the run may take to go on after a fault, on a machine that does other things too."""

    def __init__(self, folder: Path, run: str, *, seed: int) -> None:
        self.folder, self.run, self.random = folder, run, random.Random(seed)
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.clock = folder / "clock"
        self.set_clock(0)
        self._redis_port = free_port()
        self.url = f"redis://127.0.0.1:{self._redis_port}/0"
        self.start_redis()
        self.proxy = Proxy(self._redis_port, seed=seed)
        self.proxy_url = f"redis://127.0.0.1:{self.proxy.port}/0"
        self._stopping = threading.Event()
        self.streams = RunStreams(self.url, run, stopping=self._stopping)

    def close(self) -> None:
        self._stopping.set()
        self.proxy.close()
        self.streams.close()
        self._redis.kill()
        self._redis.wait()

    def ensure(self) -> None:
        """Starts what has ended, if nobody else does."""

    def allow(self, steps: int) -> None:
        """Lets the run go on to `steps` steps, if it does not by itself."""

    def settle(self, steps: int) -> None:
        """Waits until the run has done `steps` steps."""
        raise NotImplementedError

    def check(self, steps: int) -> tuple[int, int]:
        """Groups lost and doubled after `steps` steps.

        Raises:
            NotRecoveredError: an account does not hold.
        """
        raise NotImplementedError

    def effects(self, archive: Path) -> tuple[Counter[str], Counter[str]]:
        """How often each group is in the newest commit's ledger, and in the archive."""
        *_, newest = commits.folders(self.run_dir / "adapters").values()
        ledger = json.loads((newest / "state.json").read_bytes())["ledger"]
        archived = TraceArchive(open_folder(str(archive))).groups(run=self.run)
        return Counter(e.partition(":")[0] for e in ledger), Counter(group.id for group in archived)

    def until(self, condition: Callable[[], object], what: str, *, supervised: bool = True) -> None:
        """Waits for `condition`, and starts what ends meanwhile.

        Raises:
            NotRecoveredError: it does not come true.
        """
        deadline = time.monotonic() + self.patience_s
        while not condition():
            if time.monotonic() > deadline:
                raise NotRecoveredError(
                    f"{what}: not within {self.patience_s:.0f} s; {self.streams.overview()}"
                )
            if supervised:
                self.ensure()
            time.sleep(0.05)

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of the run, by name."""
        return {"redis": psutil.Process(self._redis.pid)}

    def set_clock(self, offset_s: int) -> None:
        """Moves the clock of Redis so far from the machine's, if there is a libfaketime."""
        self.clock.write_text(f"{offset_s:+d}")

    def start_redis(self) -> None:
        environment = {"FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_NO_CACHE": "1"}
        environment |= {"DONT_FAKE_MONOTONIC": "1", "LD_PRELOAD": str(FAKETIME or "")}
        with (self.logs / "redis.log").open("ab") as log:
            argv = [*redis_argv(self.folder / "redis"), "--port", str(self._redis_port)]
            self._redis = subprocess.Popen(argv, env={**os.environ, **environment}, stdout=log, stderr=log)

    def redis_client(self) -> "contextlib.closing[redis.Redis]":
        return contextlib.closing(redis.Redis.from_url(self.url))

    def signal_redis(self, number: signal.Signals) -> None:
        self._redis.send_signal(number)
        if number == signal.SIGKILL:
            self._redis.wait()

    def redis_is_stopped(self) -> bool:
        return psutil.Process(self._redis.pid).status() == psutil.STATUS_STOPPED

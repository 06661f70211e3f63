"""A run of real processes to disturb: Redis with its file, a trainer and an archiver, each through a proxy.

The groups are made here, the same for the same number, and published as rollouts do. So a run that is
disturbed must end with the bytes of one that is not. Processes are forked from a server that has imported
torch already: a start costs a fraction of a second.
"""

import contextlib
import importlib
import json
import multiprocessing
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from rookery import failpoints
from rookery.codec import decode_position
from rookery.errors import Unavailable
from rookery.streams import RunStreams
from rookery.trace import TraceGroup
from services.trainer.versions import commits
from tests.chaos.disturbed import Disturbed, NotRecoveredError
from tests.chaos.history import record
from tests.unit.trainer.groups import make_group

BATCH = 3
REPORTED_S = 30.0
"""The metrics of a step are written within this time after its commit."""
MOST = 4 * BATCH
"""Groups that wait for the trainer at most."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "services.trainer.process",
        "services.data.archiver",
        "services.inference.rollouts.loop",
        "rookery.serving",
    ]
)


def become(
    module: str, argv: list[str], env: Mapping[str, str], log: Path, history: Path, file_bytes: int
) -> None:
    """What a forked process does."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(env)
    failpoints.arm(env)
    record(history)
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    sys.argv = [module, *argv]
    sys.exit(importlib.import_module(module).main())


class Cluster(Disturbed):
    """A run. Use it as a context manager."""

    def __init__(self, folder: Path, model: Path, *, seed: int) -> None:
        super().__init__(folder, "chaos", seed=seed)
        self.model, self.run_dir, self.hits = model, folder / "run", folder / "hits"
        self.trainer: multiprocessing.process.BaseProcess | None = None
        self.archiver: multiprocessing.process.BaseProcess | None = None
        self.allowed = 0
        self.history = folder / "history.jsonl"
        self._stop_recording = record(self.history)  # of this process, which publishes the groups
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
        self._stop_recording()
        self.close()

    # processes

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
        flags += ["--redis-url", self.proxy_url, "--inference-urls", ""]
        flags += ["--device", "cpu", "--threads", "1", "--batch-groups", str(BATCH), "--port", "0"]
        flags += ["--max-staleness", "100000", "--max-steps", str(steps)]
        return self._start("services.trainer.__main__", flags, failpoint, file_bytes)

    def start_archiver(self, failpoint: str = "") -> multiprocessing.process.BaseProcess:
        flags = ["--run", "chaos", "--redis-url", self.proxy_url, "--port", "0"]
        flags += ["--out", str(self.folder / "archive"), "--file-groups", "5", "--file-age-s", "0.5"]
        return self._start("services.data.archiver", flags, failpoint, 0)

    def _start(
        self, module: str, flags: list[str], failpoint: str, file_bytes: int
    ) -> multiprocessing.process.BaseProcess:
        env = {"ROOKERY_FAILPOINTS": failpoint, "ROOKERY_FAILPOINT_HITS": str(self.hits)}
        log = self.logs / f"{module.split('.')[1]}.log"
        arguments = (module, flags, env, log, self.history, file_bytes)
        process = _context.Process(target=become, args=arguments, daemon=True)
        process.start()
        return process

    def ensure(self) -> None:
        """Starts what has ended, as a supervisor does."""
        if self.trainer is None or self.trainer.exitcode is not None:
            self.trainer = self.start_trainer()
        if self.archiver is None or self.archiver.exitcode is not None:
            self.archiver = self.start_archiver()

    def settle(self, steps: int) -> None:
        """Waits until the run has done `steps` steps with nothing left, as the groups allow."""

        def done() -> bool:
            run = self.streams.overview()
            return run.committed == steps and not run.traces and not run.positions and not run.unarchived

        self.until(done, f"step {steps}")

    def check(self, steps: int) -> tuple[int, int]:
        """Groups lost and doubled, by the commits, the archive and the counts of a run at rest.

        Raises:
            NotRecoveredError: an account does not hold, or versions are not 0, 1, 2, ...
        """
        run = self.streams.overview()
        if run.astray or run.archive_astray or run.counts.archive.get("missed"):
            raise NotRecoveredError(f"the account does not hold: {run}")
        versions = list(commits.folders(self.run_dir / "adapters"))
        deadline = time.monotonic() + REPORTED_S
        while len(lines := (self.run_dir / "metrics.jsonl").read_text().splitlines()) < steps:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        rows = [json.loads(line) for line in lines]
        if versions != list(range(steps + 1)) or [row["version"] for row in rows] != versions[1:]:
            raise NotRecoveredError(f"versions {versions}, in the metrics {[row['version'] for row in rows]}")
        trained, archived = self.effects(self.folder / "archive")
        wanted = {group_of(number).id for number in range(steps * BATCH)}
        lost = sum(len(wanted - found.keys()) for found in (trained, archived))
        return lost, sum(found.total() - len(found) for found in (trained, archived))

    # groups

    def allow(self, steps: int) -> None:
        """Lets as many groups be made as `steps` steps need."""
        self.allowed = steps * BATCH

    def _produce(self) -> None:
        """Feeds positions and publishes their groups, again if Redis lost them."""
        streams = RunStreams(self.proxy_url, "chaos", stopping=self._stopping)
        with contextlib.closing(streams):
            while not self._stopping.is_set():
                with contextlib.suppress(Unavailable):
                    cursor = streams.positions.cursor()
                    room = MOST - streams.overview().traces
                    numbers = range(cursor, min(self.allowed, cursor + max(0, room)))
                    streams.positions.add([group_of(n).position for n in numbers], cursor=cursor)
                    streams.positions.read(count=100, block_s=0.05, consumer="chaos")
                    for entry in streams.positions.read_held(consumer="chaos"):
                        group = group_of(int(decode_position(entry.data).id[1:]))
                        streams.groups.publish(group, entry_id=entry.id)


def group_of(number: int) -> TraceGroup:
    """The group of a position; the same at each call."""
    return replace(make_group(number, version=0, vocabulary=90), run="chaos")

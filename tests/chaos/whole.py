"""`rookery up` as a user runs it, with vLLM and Stockfish, but for its Redis, which is behind the proxy."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.chaos.disturbed import Disturbed, NotRecoveredError
from tests.conftest import ROOT

SERVICES = ("inference", "rollouts", "reward", "trainer", "feed", "archive")
FLAGS = ("--preset", "tiny-cpu", "--batch-groups", "4", "--group-size", "4", "--nodes", "100")
FLAGS += ("--set", "archive.file_age_s=2", "--set", "trainer.threads=1")
# Such groups come at twenty a second: those of a minute are more than the 1,024 that Redis keeps by default.
FLAGS += ("--set", "archive.keep=100000")


class Whole(Disturbed):
    """A run of `rookery up` in `folder`, which is continued if it is there. Use it as a context manager."""

    patience_s = 1800.0  # vLLM's start has taken nine minutes where others work too

    def __init__(self, folder: Path, *, seed: int, step_pause_s: float = 0.0, episode: str = "move") -> None:
        """The trainer pauses for `step_pause_s` after each step, so that a long run costs little."""
        super().__init__(folder, "whole", seed=seed)
        self.run_dir = folder / "runs" / self.run
        command = [sys.executable, "-m", "launcher", "up", "--no-view", "--run", self.run, *FLAGS]
        command += ["--runs-dir", str(folder / "runs"), "--redis-url", self.proxy_url]
        command += ["--set", f"feed.episode={episode}"]
        pause = f"trainer.reported=delay:{1000 * step_pause_s:.0f}" if step_pause_s else ""
        with (self.logs / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "ROOKERY_FAILPOINTS": pause}, stdout=log, stderr=log
            )

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            exits.callback(self.close)
            exits.callback(self.stop)
            self.settle(self.steps + 2)
            exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        self.close()

    def stop(self) -> None:
        """Stops all but Redis."""
        self._up.send_signal(signal.SIGINT)
        try:
            self._up.wait(timeout=90)
        except subprocess.TimeoutExpired:
            self._up.kill()
            self._up.wait()

    def ensure(self) -> None:
        """Raises `NotRecoveredError` if `rookery up` has ended: what it starts, it starts again itself."""
        if self._up.poll() is not None:
            said = (self.logs / "up.log").read_text()[-1500:]
            raise NotRecoveredError(f"rookery up ended with {self._up.returncode}: {said}")

    @property
    def steps(self) -> int:
        """The steps that the trainer has reported."""
        file = self.run_dir / "metrics.jsonl"
        return len(file.read_bytes().splitlines()) if file.exists() else 0

    def settle(self, steps: int) -> None:
        self.until(lambda: self.steps >= steps and self._complete(), f"step {steps}")

    def _complete(self) -> bool:
        try:
            return bool(self.processes())
        except NotRecoveredError:
            return False

    def processes(self) -> dict[str, psutil.Process]:
        return {**super().processes(), **{name: self.service(name) for name in SERVICES}}

    def service(self, name: str) -> psutil.Process:
        """The process of a service; it may have children."""
        log = self.run_dir.resolve() / "logs" / f"{name}.log"
        for child in psutil.Process(self._up.pid).children():
            with contextlib.suppress(OSError):  # it has ended
                if Path(f"/proc/{child.pid}/fd/2").readlink() == log:
                    return child
        raise NotRecoveredError(f"{name} does not run")

    def check(self, steps: int) -> tuple[int, int]:
        """Groups lost and doubled, by the accounts, the ledger of the newest commit and the archive."""
        run = self.streams.overview()
        if run.counts.archive.get("missed"):
            raise NotRecoveredError(f"the archive missed groups: {run}")
        effects = self.effects(self.run_dir / "archive")
        doubled = sum(found.total() - len(found) for found in effects)
        return abs(run.astray) + abs(run.archive_astray), doubled

    def lost_positions(self) -> int:
        """Positions that were fed and have no outcome. Only of a run that was stopped."""
        run = self.streams.overview()
        outcomes = run.counts.generated + run.counts.dead.get("positions", 0)
        return self.streams.positions.cursor() - outcomes - run.positions


def kill(name: str, whole: Disturbed, lasts_s: float) -> int:
    """A service and its children end as by SIGKILL."""
    for process in _tree(whole, name):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return 1


def pause(name: str, whole: Disturbed, lasts_s: float) -> int:
    """A service and its children stand still."""
    tree = list(_tree(whole, name))
    for process in tree:
        process.suspend()
    time.sleep(lasts_s)
    for process in tree:
        process.resume()
    return 1


def _tree(whole: Disturbed, name: str) -> Iterator[psutil.Process]:
    service = whole.processes()[name]
    yield service
    yield from service.children(recursive=True)


PAUSES = {f"{name} paused": partial(pause, name) for name in SERVICES}
WHOLE = {**{f"{name} killed": partial(kill, name) for name in SERVICES}, **PAUSES}
"""Faults of `rookery up`."""

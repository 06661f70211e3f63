"""A child process in its own process group, which is ended together with all its descendants."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rookery.processes import watchdog

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServiceCommand:
    """How to start a service.

    `probe_url` answers 200 once the service is ready; None means that it is ready at once. `env` changes this
    process's environment for it; None removes a variable. `addresses` are the host and port of each of the
    service's listeners.
    """

    name: str
    argv: tuple[str, ...]
    log: Path
    probe_url: str | None = None
    env: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    addresses: tuple[tuple[str, int], ...] = ()


class Watchdog:
    """A process that ends the children if this process is killed; after `grace_s` seconds by SIGKILL."""

    def __init__(self, *, grace_s: float = 15.0) -> None:
        script = str(Path(watchdog.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-S", script, str(grace_s)],
            stdin=subprocess.PIPE,
            bufsize=0,  # a line that cannot be written is not written again by `close`
            start_new_session=True,
        )

    def guard(self, group: int) -> None:
        self._write_line(f"+{group}\n")

    def release(self, group: int) -> None:
        self._write_line(f"-{group}\n")

    def close(self) -> None:
        """Makes the watchdog end all groups that are still guarded, and waits for its exit."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.wait()

    def _write_line(self, line: str) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        try:
            pipe.write(line.encode())
        except BrokenPipeError:
            logger.warning(
                "the watchdog has ended: if this process is killed, its children will keep running"
            )


class Child:
    """A started command. The id of its process group is its pid."""

    def __init__(self, command: ServiceCommand, guard: Watchdog) -> None:
        self._guard = guard
        command.log.parent.mkdir(parents=True, exist_ok=True)
        with command.log.open("ab") as log:
            # A process group of its own has two effects: Ctrl-C in the terminal reaches only the supervisor,
            # which stops its children in order, and engines and workers can be ended after a crash.
            self._process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={k: v for k, v in {**os.environ, **command.env}.items() if v is not None},
                process_group=0,
            )
        self._released = False
        guard.guard(self.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, or None while the process runs. Once it has ended, its descendants are killed."""
        status = self._process.poll()
        if status is not None and not self._released:
            self._signal(signal.SIGKILL)
            self._guard.release(self.pid)
            self._released = True
        return status

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Kills the process and its descendants, unless it has ended: its id may be another's by now."""
        if self.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self.poll()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:  # of macOS, if only zombies are left in the group
            if self._process.poll() is None:
                raise


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` non-empty lines of a log file; empty if the file cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 16384))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]

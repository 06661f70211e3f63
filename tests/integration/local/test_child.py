import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.processes.child import Child, Watchdog, last_lines
from tests.conftest import ROOT
from tests.integration.local.children import WITH_WORKER, script
from tests.waiting import until


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    dog = Watchdog()
    yield dog
    dog.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def worker_of(log: Path) -> int:
    return int(until(lambda: last_lines(log, 1))[0])


def test_a_killed_child_takes_its_descendants_along(tmp_path: Path, watchdog: Watchdog) -> None:
    command = script("a", WITH_WORKER, tmp_path)
    child = Child(command, watchdog)
    worker = worker_of(command.log)
    child.kill()
    assert child.poll() == -signal.SIGKILL
    until(lambda: not alive(worker))


def test_a_crash_takes_the_descendants_along(tmp_path: Path, watchdog: Watchdog) -> None:
    command = script("a", WITH_WORKER, tmp_path)
    child = Child(command, watchdog)
    worker = worker_of(command.log)
    os.kill(child.pid, signal.SIGSEGV)
    until(lambda: child.poll() is not None)
    until(lambda: not alive(worker))


def test_logs_are_kept_and_their_end_is_found(tmp_path: Path, watchdog: Watchdog) -> None:
    command = script("a", "import sys; print('one'); print('two'); sys.exit('three')", tmp_path)
    for _ in range(2):
        child = Child(command, watchdog)
        until(lambda child=child: child.poll() is not None)  # type: ignore[misc]
    assert sorted(last_lines(command.log, 9)) == ["one", "one", "three", "three", "two", "two"]
    assert last_lines(tmp_path / "nothing", 3) == []


def test_a_child_that_has_ended_is_not_killed_by_an_id_that_may_be_anothers(
    tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Child(script("a", "", tmp_path), watchdog)
    until(lambda: child.poll() is not None)
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, number: killed.append(group))
    child.kill()
    assert not killed


@pytest.mark.parametrize("ended", [True, False])
def test_a_group_of_zombies_has_ended(
    tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    child = Child(script("a", "" if ended else "import time; time.sleep(600)", tmp_path), watchdog)

    def forbidden(group: int, number: int) -> None:
        if ended and child._process.returncode is None:
            os.waitid(os.P_PID, group, os.WEXITED | os.WNOWAIT)  # a zombie, which nobody has polled
        raise PermissionError(1, "Operation not permitted")  # as macOS says of zombies

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", forbidden)
        with contextlib.nullcontext() if ended else pytest.raises(PermissionError):
            child.kill()
    child.kill()
    assert child.poll() == (0 if ended else -signal.SIGKILL)


def test_a_watchdog_that_has_ended_is_reported_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog()
    dog._process.kill()
    dog._process.wait()
    dog.release(1)
    dog.close()
    assert "the watchdog has ended" in caplog.text


ORPHAN_MAKER = """
import sys, time
from pathlib import Path
from rookery.processes.child import Child, Watchdog
from tests.integration.local.children import STUBBORN, WITH_WORKER, script
folder, dog = Path(sys.argv[1]), Watchdog(grace_s=1.0)
for name, code in (("worker", WITH_WORKER), ("stubborn", STUBBORN)):
    print(Child(script(name, code, folder), dog).pid, flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_supervisor_killed_outright(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [sys.executable, "-c", ORPHAN_MAKER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout
    children = [int(supervisor.stdout.readline()) for _ in range(2)]
    children.append(worker_of(tmp_path / "worker.log"))
    until(lambda: last_lines(tmp_path / "stubborn.log", 1))
    assert all(map(alive, children))
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    until(lambda: not any(map(alive, children)))

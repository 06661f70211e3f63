"""Results of workers come in order, and a pool's processes end with the process that made them."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from rookery.errors import Unavailable
from rookery.processes.workers import Workers
from tests.conftest import ROOT

PARENT = """
import os, time
from rookery.processes.workers import process_pool
if __name__ == "__main__":
    pool = process_pool(2)
    list(pool.map(abs, range(4)))
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_is_ended_leaves_nobody(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout
    parent.stdout.readline()
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    if number == signal.SIGINT:
        os.killpg(parent.pid, number)  # as Ctrl-C in a terminal does
    else:
        parent.send_signal(number)
    _, said = parent.communicate()
    _, alive = psutil.wait_procs(children, timeout=120)
    assert alive == []
    assert said.count("Traceback") == (number == signal.SIGINT), said  # the parent's own


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order(jobs: int) -> None:
    with Workers(jobs) as workers:
        assert list(workers.map(abs, range(-30, 0))) == list(range(30, 0, -1))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_piece_is_the_callers(jobs: int) -> None:
    with Workers(jobs) as workers, pytest.raises(ValueError, match="invalid literal"):
        list(workers.map(int, ["1", "x"]))


def die_once(folder: str, number: int) -> int:
    """Kills its process the first time that it is called with 3."""
    mark = Path(folder) / "died"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_dead_process_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.processes.workers.RETRIES", 1)
    with Workers(2) as workers:
        assert list(workers.map(partial(die_once, str(tmp_path)), range(20))) == list(range(20))
        with pytest.raises(Unavailable, match="2 processes died over one piece of work"):
            list(workers.map(die, range(2)))
    assert (tmp_path / "died").exists()


def test_ctrl_c_reaches_a_process_that_has_begun() -> None:
    with Workers(2) as workers:
        blocked = workers.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert signal.SIGINT not in blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_ctrl_c_waits_until_a_call_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, a process that is being started would print a traceback."""
    begun = list[object]()

    def interrupted(pool: ProcessPoolExecutor, *call: object) -> None:
        signal.raise_signal(signal.SIGINT)
        begun.append(call)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    with Workers(2) as workers, pytest.raises(KeyboardInterrupt):
        workers.submit(abs, -1)
    assert begun == [(abs, -1)]

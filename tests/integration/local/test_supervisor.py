import math
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from launcher import supervisor as supervisor_module
from launcher.observer import probe
from launcher.supervisor import RESTARTS, State, Supervisor
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import ServiceCommand, Watchdog
from tests.conftest import free_port
from tests.integration.local.children import STUBBORN, script, service


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "_PAUSES_S", (0.05,))


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    dog = Watchdog()
    yield dog
    dog.close()


class Run:
    """A supervisor driven as a session drives it."""

    def __init__(self, stages: list[list[ServiceCommand]], watchdog: Watchdog) -> None:
        self.supervisor = Supervisor(stages, watchdog, finisher="trainer", optional={"viewer"})
        self._urls = {c.name: c.probe_url for stage in stages for c in stage if c.probe_url}

    def until(self, condition, *, timeout_s: float = 240.0) -> None:
        deadline = time.monotonic() + timeout_s
        with httpx.Client() as http:
            while not condition():
                assert time.monotonic() < deadline, self.states()
                self.supervisor.step({name: probe(url, http) for name, url in self._urls.items()})
                time.sleep(0.05)

    def states(self) -> dict[str, State]:
        return {member.command.name: member.state for member in self.supervisor.members}

    def stop(self, *names: str, hurry: bool = False) -> None:
        self.supervisor.stop(*names, hurry=lambda: hurry)


def marks(folder: Path) -> list[str]:
    return (folder / "marks").read_text().splitlines()


def test_stages_start_in_order_and_end_in_reverse(tmp_path: Path, watchdog: Watchdog) -> None:
    ports = [free_port() for _ in range(3)]
    run = Run([[service(f"s{port}", port, tmp_path)] for port in ports], watchdog)
    try:
        run.until(lambda: run.supervisor.all_ready)
    finally:
        run.stop()
    began = [f"began {port}" for port in ports]
    assert marks(tmp_path) == began + [f"ended {port}" for port in reversed(ports)]
    assert set(run.states().values()) == {State.STOPPED}


def test_a_stage_waits_for_the_one_before(tmp_path: Path, watchdog: Watchdog) -> None:
    never = script("never", STUBBORN, tmp_path, probe_url=f"http://127.0.0.1:{free_port()}/readyz")
    run = Run([[never], [service("later", free_port(), tmp_path)]], watchdog)
    with pytest.raises(AssertionError):
        run.until(lambda: run.supervisor.all_ready, timeout_s=1.0)
    assert run.states() == {"never": State.STARTING, "later": State.WAITING}
    assert run.supervisor.members[0].note == "not listening yet"
    run.stop(hurry=True)


def test_a_crashed_service_starts_again(tmp_path: Path, watchdog: Watchdog) -> None:
    run = Run([[service("s", free_port(), tmp_path)]], watchdog)
    run.until(lambda: run.supervisor.all_ready)
    (member,) = run.supervisor.members
    assert member.child
    first = member.child.pid
    member.child.kill()
    run.until(lambda: member.restarts == 1 and member.state is State.READY)
    assert member.child
    assert member.child.pid != first
    run.stop()


def test_a_service_starts_again_although_an_earlier_one_was_stopped(
    tmp_path: Path, watchdog: Watchdog
) -> None:
    run = Run([[script("feed", STUBBORN, tmp_path)], [service("arena", free_port(), tmp_path)]], watchdog)
    run.until(lambda: run.supervisor.all_ready)
    run.stop("feed", hurry=True)
    arena = run.supervisor.members[1]
    assert arena.child
    arena.child.kill()
    run.until(lambda: arena.restarts == 1 and arena.state is State.READY)
    run.stop()


def test_one_that_keeps_crashing_ends_the_run_with_its_last_words(tmp_path: Path, watchdog: Watchdog) -> None:
    run = Run([[script("bad", "import sys; sys.exit('out of luck')", tmp_path)]], watchdog)
    with pytest.raises(
        RookeryError, match=f"bad ended {RESTARTS + 1} times, the last time with status 1"
    ) as caught:
        run.until(lambda: False)
    assert "  | out of luck" in str(caught.value)


def test_one_that_cannot_start_is_not_tried_again(tmp_path: Path, watchdog: Watchdog) -> None:
    code = "import sys; sys.stderr.write('error: port 1 is taken\\n'); sys.exit(2)"
    run = Run([[script("bad", code, tmp_path)]], watchdog)
    with pytest.raises(SetupError, match="bad cannot start: error: port 1 is taken"):
        run.until(lambda: False)


def test_the_run_goes_on_without_an_optional_one(tmp_path: Path, watchdog: Watchdog) -> None:
    viewer = script("viewer", "import sys; sys.exit(2)", tmp_path)
    run = Run([[viewer], [service("s", free_port(), tmp_path)]], watchdog)
    run.until(lambda: run.states() == {"viewer": State.STOPPED, "s": State.READY})
    assert run.supervisor.all_ready
    run.stop()


def test_the_finisher_may_end(tmp_path: Path, watchdog: Watchdog) -> None:
    trainer = script("trainer", "import time; time.sleep(0.2)", tmp_path)
    run = Run([[trainer, service("s", free_port(), tmp_path)]], watchdog)
    run.until(lambda: run.supervisor.finished)
    assert run.states()["trainer"] is State.DONE
    run.stop()
    assert run.states()["trainer"] is State.DONE


def test_some_may_be_stopped_while_others_go_on(tmp_path: Path, watchdog: Watchdog) -> None:
    run = Run([[service("a", free_port(), tmp_path), service("b", free_port(), tmp_path)]], watchdog)
    run.until(lambda: run.supervisor.all_ready)
    run.stop("b")
    assert run.states() == {"a": State.READY, "b": State.STOPPED}
    run.stop()


def test_haste_kills_what_will_not_end(
    tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_module, "STOP_S", math.inf)
    run = Run([[script("stubborn", STUBBORN, tmp_path)]], watchdog)
    run.until(lambda: (tmp_path / "stubborn.log").exists() and (tmp_path / "stubborn.log").read_text())
    run.stop(hurry=True)

import io
from pathlib import Path

from rich.console import Console

from launcher import dashboard as board
from launcher.observer import Snapshot, StepLog
from launcher.supervisor import Member, State
from launcher.terminal import PlainDisplay, display
from rookery.processes.child import Command
from rookery.streams.account import Counts, Overview

STEP = {"step": 7, "reward": -0.5, "legal_rate": 0.75, "loss": 0.01, "device": "cpu"}


def member(name: str, state: State, note: str = "") -> Member:
    return Member(Command(name, (), Path("log")), state=state, note=note)


def overview(generated: int, trained: int, traces: int) -> Overview:
    counts = Counts(generated, trained, {"stale": 2}, {"traces": 1})
    return Overview(counts, positions=256, traces=traces, dead=1, committed=7)


def rendered(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_screen_shows_services_groups_and_learning() -> None:
    snapshot = Snapshot(overview=overview(13, 8, 2), served=6, steps=(STEP,), idle_s={"backpressure": 12.4})
    members = [member("reward", State.READY), member("inference", State.STARTING, "loading")]
    text = rendered(board.screen("run r", members, snapshot))
    for part in ("run r", "loading", "dropped: stale", "7 / 6", "75.0%", "-0.500", "12 s"):
        assert part in text
    assert "grad_norm" not in text


def test_groups_that_went_astray_are_counted() -> None:
    assert overview(13, 8, 2).astray == 0
    assert overview(14, 8, 2).astray == 1


def test_before_the_first_group_only_services_are_shown() -> None:
    assert "groups" not in rendered(board.screen("run r", [member("reward", State.STARTING)], Snapshot()))


def test_an_absent_redis_is_said() -> None:
    assert "redis does not answer" in rendered(board.flow(Snapshot()))


def test_learning_compares_the_first_with_the_last_steps() -> None:
    steps = [{"reward": -1.0}] * board.WINDOW + [{"reward": -0.2}] * board.WINDOW
    row = next(line for line in rendered(board.learning(steps)).splitlines() if "mean reward" in line)
    assert row.split()[-2:] == ["-1.000", "-0.200"]


def test_without_a_terminal_changes_become_lines() -> None:
    console = Console(file=io.StringIO(), width=40)
    shown = display(console)
    assert isinstance(shown, PlainDisplay)
    reward = member("reward", State.WAITING)
    with shown:
        shown.show("run r", [reward], Snapshot())
        reward.enter(State.STARTING, "not listening yet")
        for _ in range(2):
            shown.show("run r", [reward], Snapshot())
        reward.enter(State.READY)
        for _ in range(2):
            shown.show("run r", [reward], Snapshot(steps=(STEP,)))
        shown.pause()
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "reward: starting not listening yet",
        "reward: ready",
        "step 7: reward -0.500, legal_rate 75.0%, loss 0.010",
    ]


def test_a_half_written_record_waits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = StepLog(path)
    assert log.refresh() == ()
    path.write_text('{"step": 1}\n{"st')
    assert [dict(step) for step in log.refresh()] == [{"step": 1}]
    with path.open("a") as file:
        file.write('ep": 2}\n')
    assert [step["step"] for step in log.refresh()] == [1, 2]
    assert [step["step"] for step in log.refresh()] == [1, 2]

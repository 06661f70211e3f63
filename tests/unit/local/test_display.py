import contextlib
import io
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from rich.console import Console

from launcher import dashboard
from launcher.dashboard import Display
from launcher.observer import WINDOW, Observer, Snapshot, StepLog
from launcher.status import _page
from launcher.supervisor import Member, State
from rookery.errors import InvalidInput
from rookery.processes.child import ServiceCommand
from rookery.streams.state import Counts, Overview
from rookery.terminal import SafeConsole
from tests.conftest import free_port

STEP = {"step": 7, "reward": -0.5, "legal_rate": 0.75, "loss": 0.01, "device": "cpu"}


def member(name: str, state: State, note: str = "") -> Member:
    return Member(ServiceCommand(name, (), Path("log")), state=state, note=note)


def overview(generated: int, trained: int, traces: int) -> Overview:
    counts = Counts(generated, trained, {"stale": 2}, {"traces": 1})
    return Overview(counts, positions=256, traces=traces, dead=1, committed=7)


def rendered(renderable: object, *, width: int = 140, height: int = 60) -> str:
    """What a terminal of that size shows."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_screen_shows_services_groups_and_learning() -> None:
    snapshot = Snapshot(overview=overview(13, 8, 2), served=6, steps=(STEP,), idle_s={"backpressure": 12.4})
    members = [member("reward", State.READY), member("inference", State.STARTING, "loading")]
    text = rendered(dashboard.screen("run r", members, snapshot))
    for part in ("run r", "loading", "dropped: stale", "7 / 6", "75.0%", "-0.500", "12 s"):
        assert part in text
    assert "grad_norm" not in text


def test_the_first_and_the_last_evaluated_version_are_shown() -> None:
    def row(version: int, elo: dict[str, object]) -> dict[str, object]:
        legal = {"mean": 0.625, "ci95": [0.5, 0.75]}
        return {"version": version, "metrics": {"legal_rate_greedy": legal, "elo": elo}}

    rows = (row(0, {"mean": None, "ci95": [None, -53.0]}), row(50, {"mean": 12.4, "ci95": [-80.0, 101.0]}))
    snapshot = Snapshot(overview=overview(13, 8, 2), steps=(STEP,), strength=rows)
    text = rendered(dashboard.screen("run r", [], snapshot))
    for part in ("version 0", "version 50", "62% [50%, 75%]", "at most -53", "12 [-80, 101]"):
        assert part in text


def test_a_run_with_all_its_troubles_fits_a_small_terminal() -> None:
    trouble = "not ready yet: loads the model that has the longest of all names, for minutes"
    names = ("redis", "feed", "archive", "reward", "trainer", "inference", "arena", "rollouts", "viewer")
    figure = {"mean": 0.625, "ci95": [0.5, 0.75]}
    archive = {"archived": 11_998, "missed": 2}
    snapshot = Snapshot(
        redis="Redis 7.2.11",
        probes={name: trouble if name == "inference" else None for name in names},
        overview=Overview(
            Counts(12_345, 12_000, {"stale": 212}, {"traces": 1, "positions": 3}, archive),
            *(256, 132, 3),
            committed=1234,
        ),
        served=1233,
        steps=(dict.fromkeys(dashboard.LEARNING, -10.5),) * (2 * WINDOW),
        strength=tuple(
            {"version": version, "metrics": dict.fromkeys(dashboard.STRENGTH, figure)}
            for version in (0, 1200)
        ),
        idle_s={"backpressure": 1234.0, "positions wait": 0.0, "peers wait": 3.0},
        behind={"http://127.0.0.1:8000": 3.0},
        waits={f"rollouts for groups from redis at unix:///{'far/' * 30}redis.sock": 65.0},
    )
    members = [member(name, State.READY) for name in names]
    members[5].enter(State.UNREADY, trouble)
    members[7].restarts = 2
    url, name = f"unix:///{'folder/' * 6}redis.sock", "20260401-1530-keen-knight"
    for page in (
        dashboard.screen("run 20260401-1530-keen-knight  model rook-small-sft  step 1234", members, snapshot),
        _page({"run": name, "run_dir": Path("runs") / name, "redis_url": url}, snapshot),
    ):
        lines = rendered(page, width=80, height=24).splitlines()
        assert len(lines) <= 24, lines
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        for part in ("12,345", "12,000", "1234 / 1233", "1234 s", "-10.500", "0.625 [0.500, 0.750]"):
            assert part in text, part
        assert re.search("^ready: redis feed archive reward trainer arena .*viewer$", text, re.MULTILINE)
        assert re.search("^inference: .*loads the model.*…$", text, re.MULTILINE)
        assert re.search("^behind by 3 versions: http://127.0.0.1:8000$", text, re.MULTILINE)
    assert trouble in rendered(dashboard.screen("run r", members, snapshot), width=160)
    wide = rendered(dashboard.screen("run r", members, snapshot), width=dashboard.WIDE)
    assert len(re.findall(r"(?:0\.625 \[0\.500, 0\.750\] +){2}$", wide, re.MULTILINE)) == 3, "none is cut"
    narrow = rendered(dashboard.screen("run r", members, snapshot), width=40, height=50)
    assert max(map(len, narrow.splitlines())) <= 40
    for line in ("  trained +12,000", "mean reward +-10.500 +-10.500", r"regret +0\.625 \[0\.500, 0\.750\]"):
        assert re.search(f"^{line} *$", narrow, re.MULTILINE), line
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    SafeConsole(file=latin, width=80, height=24, force_terminal=True).print(
        dashboard.screen("run é ♞", members, snapshot)
    )
    latin.seek(0)
    text = latin.read()
    assert "run é ?" in text
    assert re.search(r"inference: .*loads the model.*\?$", re.sub(r"\x1b\[\d*m", "", text), re.MULTILINE)


def test_servers_that_are_left_behind_are_shown() -> None:
    snapshot = Snapshot(overview=overview(13, 8, 2), behind={"http://a:8000": 1.0, "http://b:8000": 4.0})
    text = rendered(dashboard.screen("run r", [], snapshot))
    assert "behind by 4 versions: http://b:8000" in text
    assert "http://a:8000" not in text, "one is on its way"


def test_the_observer_asks_the_trainer_who_is_behind(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    Gauge("rookery_server_behind_versions", "", ["server"], registry=registry).labels("http://a:8000").set(3)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    probes = {"trainer": f"http://127.0.0.1:{server.server_port}/readyz"}
    away = f"redis://127.0.0.1:{free_port()}/0"
    try:
        with contextlib.closing(Observer(probes, redis_url=away, run="r", run_dir=tmp_path)) as observer:
            seen = observer.look()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert (seen.behind, seen.idle_s, seen.overview) == ({"http://a:8000": 3.0}, {}, None)
    assert seen.redis.startswith("redis does not answer: Error")


def test_a_token_that_is_missing_is_said(tmp_path: Path) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/readyz" else 401)
            self.end_headers()

    away = f"redis://127.0.0.1:{free_port()}/0"
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        probes = {"inference": f"http://127.0.0.1:{server.server_port}/readyz"}
        with contextlib.closing(Observer(probes, redis_url=away, run="r", run_dir=tmp_path)) as observer:
            seen = observer.look()
        server.shutdown()
    assert seen.served is None
    assert str(seen.probes["inference"]).startswith("refuses the token: set ROOKERY_TOKEN")


def test_groups_that_went_astray_are_counted() -> None:
    assert overview(13, 8, 2).astray == 0
    assert overview(14, 8, 2).astray == 1


def test_before_the_first_group_only_services_are_shown() -> None:
    assert "groups" not in rendered(dashboard.screen("run r", [member("reward", State.STARTING)], Snapshot()))


def test_an_absent_redis_is_said() -> None:
    assert "redis does not answer" in rendered(dashboard.flow(Snapshot()))


def test_learning_compares_the_first_with_the_last_steps() -> None:
    steps = [{"reward": -1.0}] * WINDOW + [{"reward": -0.2}] * WINDOW
    row = next(line for line in rendered(dashboard.learning(steps)).splitlines() if "mean reward" in line)
    assert row.split()[-2:] == ["-1.000", "-0.200"]


def test_without_a_terminal_changes_become_lines() -> None:
    console = Console(file=io.StringIO(), width=40)
    shown = Display(console)
    reward = member("reward", State.WAITING)
    with shown:
        shown.show("run r", [reward], Snapshot())
        reward.enter(State.STARTING, "not listening yet")
        for _ in range(2):
            shown.show("run r", [reward], Snapshot())
        reward.enter(State.STARTING, "no engine")
        reward.changed_at -= 121
        for _ in range(2):
            shown.show("run r", [reward], Snapshot())
        reward.enter(State.READY)
        for _ in range(2):
            shown.show("run r", [reward], Snapshot(steps=(STEP,)))
        shown.pause()
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [
        "reward: starting not listening yet",
        "reward: starting for 2 min: no engine",
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


@pytest.mark.parametrize("line", [b'{"step": 2, "rew{"step": 3}', b"null", b"[1]", b'"\xff"'])
def test_a_damaged_record_is_quoted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b"\n")
    quoted = repr(line.decode(errors="replace"))
    with pytest.raises(InvalidInput, match=f"{path}: not a step: .* in {re.escape(quoted)}"):
        StepLog(path).refresh()


def test_a_long_run_is_kept_by_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = StepLog(path)
    with path.open("w", buffering=1) as file:
        for step in range(1, 1001):
            file.write(f'{{"step": {step}}}\n')
            if step in (4, 500):
                log.refresh()
    steps = [*range(1, WINDOW + 1), *range(1001 - WINDOW, 1001)]
    assert [row["step"] for row in log.refresh()] == steps
    assert [row["step"] for row in StepLog(path).refresh()] == steps

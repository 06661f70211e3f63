"""A session with Redis, feed and reward service alone: what it shares with a whole run, without a model."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest
import redis
from rich.console import Console

from launcher import plan as plan_module
from launcher.plan import HOST
from launcher.runs import ENDPOINTS_FILE, MANIFEST_FILE, latest_endpoints
from launcher.session import End, Session
from launcher.settings import SETTINGS_FILE, UpSettings
from rookery.errors import SetupError
from rookery.streams import RunStreams
from tests.conftest import ROOT, RedisServer, free_port
from tests.waiting import until

SECRET = "p@ss-sesame"

pytestmark = [pytest.mark.redis, pytest.mark.stockfish]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """It ends as soon as everything is ready."""
    monkeypatch.setattr(plan_module, "STAGES", (("redis",), ("feed", "reward")))
    monkeypatch.setattr(plan_module, "_check_together", lambda plan, **options: None)
    return Session(settings(tmp_path), Console(quiet=True))


def settings(folder: Path, *assignments: str) -> UpSettings:
    return UpSettings(
        run="r",
        runs_dir=folder,
        model=str(ROOT / "models" / "rook-tiny"),
        source=str(ROOT / "samples" / "lichess.pgn.zst"),
        engines=1,
        minutes=1e-6,
        set=assignments,
    )


@pytest.fixture
def strangers() -> Iterator["Strangers"]:
    with ExitStack() as exits:
        yield Strangers(exits)


class Strangers:
    """Processes that get in between: SO_REUSEADDR lets them listen on a port that is only bound."""

    def __init__(self, exits: ExitStack) -> None:
        self._exits = exits

    def take(self, port: int) -> None:
        sock = self._exits.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((HOST, port))
        sock.listen()


def test_a_run_goes_on_with_other_ports_when_its_own_are_taken(
    session: Session, strangers: Strangers
) -> None:
    with session:
        first = session.plan
        strangers.take(first.ports["reward"]["grpc_port"])
        strangers.take(first.ports["feed"]["port"])
        assert session.train() is End.TIME
        assert session.plan.ports["reward"]["grpc_port"] != first.ports["reward"]["grpc_port"]
        assert session.plan.ports["feed"]["port"] != first.ports["feed"]["port"]
        assert session.plan.ports["reward"]["port"] == first.ports["reward"]["port"]
        assert session.plan.redis_url in (session.plan.run_dir / ENDPOINTS_FILE).read_text()
    assert "starting again with another port" in (session.plan.run_dir / "logs" / "up.log").read_text()


def test_a_port_that_was_asked_for_is_not_exchanged(
    tmp_path: Path, session: Session, strangers: Strangers
) -> None:
    port = free_port()
    session.settings = settings(tmp_path, f"reward.port={port}")
    with session:
        strangers.take(port)
        with pytest.raises(SetupError, match=f"port {port} on {HOST} is taken: .*--set reward.port=PORT"):
            session.train()


def test_a_run_whose_folder_is_renamed_goes_on_with_its_positions(tmp_path: Path, session: Session) -> None:
    with session:
        session.train()
        with closing(RunStreams(session.plan.redis_url, "r")) as streams:
            until(lambda: streams.positions.cursor() > 0)
    (tmp_path / "r").rename(tmp_path / "renamed")
    renamed = session.settings.model_copy(update={"run": "renamed"})
    with Session(renamed, Console(quiet=True)) as again:
        again.train()
        with closing(redis.Redis.from_url(again.plan.redis_url)) as client:
            assert {key.split(b":")[1] for key in client.scan_iter()} == {b"r"}
    starts = json.loads((tmp_path / "renamed" / MANIFEST_FILE).read_text())["starts"]
    assert len(starts) == 2
    assert json.loads((tmp_path / "renamed" / ENDPOINTS_FILE).read_text())["run"] == "r"


def test_a_live_run_is_named_with_its_process_before_its_ports(tmp_path: Path, session: Session) -> None:
    session.settings = settings(tmp_path, f"reward.port={free_port()}")
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    with session:
        session.train()
        with (
            pytest.raises(SetupError, match=f"r' is in use by another `rookery up`, {holder}$"),
            Session(session.settings, Console(quiet=True)),
        ):
            pass
    assert (tmp_path / "r" / ENDPOINTS_FILE).exists(), "a run that was ready"


@pytest.mark.parametrize(
    ("assignment", "left"),
    [
        ("reward.nodes=1", set()),
        ("reward.engine_path=/nope", {"lock", "logs", "redis", "settings", SETTINGS_FILE, MANIFEST_FILE}),
    ],
)
def test_a_new_run_that_does_not_start_is_not_taken_for_the_newest(
    tmp_path: Path, session: Session, assignment: str, left: set[str]
) -> None:
    session.settings = settings(tmp_path / "runs", assignment)
    with pytest.raises(SetupError), session:
        session.train()
    assert {path.name for path in (tmp_path / "runs").glob("r/*")} == left
    assert latest_endpoints(tmp_path / "runs") is None


@pytest.mark.torch
def test_a_resume_that_the_trainer_refuses_leaves_the_settings_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "STAGES", (("redis",), ("feed",), ("trainer",)))
    monkeypatch.setattr(plan_module, "_check_together", lambda plan, **options: None)
    kept, profiles = tmp_path / "r" / SETTINGS_FILE, tmp_path / "r" / "memory_profiles.json"
    with Session(settings(tmp_path), Console(quiet=True)) as session:
        session.train()
    before = [kept.read_text(), profiles.read_text()]
    given = settings(tmp_path, "trainer.lora_rank=2")
    with (
        Session(given, Console(quiet=True)) as session,
        pytest.raises(SetupError, match="lora_rank was"),
    ):
        session.train()
    assert [kept.read_text(), profiles.read_text()] == before
    given = settings(tmp_path, "trainer.lr=1e-5")
    with Session(given, Console(quiet=True)) as session:
        session.train()
    assert json.loads(kept.read_text())["set"] == ["trainer.lr=1e-5"]


@pytest.mark.torch
def test_a_password_is_in_no_command_line_and_in_no_file_for_others(
    tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_module, "STAGES", (("feed", "reward", "trainer"),))
    monkeypatch.setattr(plan_module, "_check_together", lambda plan, **options: None)
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", SECRET)
    url = redis_server.url.replace("//", f"//:{SECRET}@")
    given = settings(tmp_path, f"reward.redis_url={url}").model_copy(update={"redis_url": url})
    with Session(given, Console(quiet=True)) as session:
        assert session.train() is End.TIME
        own = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
        assert len(own) >= 3
        assert not [child.cmdline() for child in own if SECRET in " ".join(child.cmdline())]
        run_dir = session.plan.run_dir
    told = [path for path in run_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert {path.name for path in told} == {SETTINGS_FILE, ENDPOINTS_FILE}
    assert {stat.S_IMODE(path.stat().st_mode) for path in told} == {0o600}
    assert url.replace(SECRET, "***") in (run_dir / "trainer.toml").read_text()

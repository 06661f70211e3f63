"""A version that the viewer serves, with stand-ins for the processes that would load it."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.access import Access
from rookery.errors import NotFound, Unavailable
from services.viewer import served
from services.viewer.runs import RunFolder, Runs
from services.viewer.served import VersionServer
from tests.viewed_runs import write_run
from tests.waiting import until

PLAYERS = """
import os, sys
names = ("ROOKERY_TOKEN", "ROOKERY_TLS_CERT", "ROOKERY_TLS_KEY")
open(sys.argv[1], "a").write(" ".join([*sys.argv[2:], *(os.environ.get(name, "") for name in names)]) + "\\n")
if sys.argv[2].endswith("@8"):
    print("http://127.0.0.1:1#policy-v000000,style=fen,max-tokens=9", flush=True)
    sys.stdin.read()
    open(sys.argv[1], "a").write("ended\\n")
if sys.argv[2].endswith("@9"):
    print("http://127.0.0.1:1#policy-v000000", flush=True)
    open(sys.argv[1] + ".wait").read()  # until the test writes there
    sys.exit("error: out of memory")
print("error: no such version", file=sys.stderr)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    write_run(tmp_path / "runs", "one", seed=0)
    for version in (0, 8, 9):
        folder = tmp_path / "runs" / "one" / "adapters" / f"policy-v{version:06d}"
        folder.mkdir(exist_ok=True)
        (folder / "adapter_model.safetensors").touch()
    return Runs(tmp_path / "runs").find("one")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VersionServer]:
    monkeypatch.setattr(served, "_PLAYERS", (sys.executable, "-c", PLAYERS, str(tmp_path / "asked")))
    monkeypatch.setattr(served, "_REWARD", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(served, "find_spec", lambda name: name)
    server = VersionServer(
        tmp_path / "served", Access(token="a-token", cert=Path("c.pem"), key=Path("k.pem"))
    )
    yield server
    server.stop()


def test_a_version_is_served_until_another_one_is(
    server: VersionServer, run: RunFolder, tmp_path: Path
) -> None:
    assert run.versions() == [0, 8, 9]
    started = server.serve(run, 8)
    assert json.loads(json.dumps(started.json())) == {
        "version": 8, "state": "starting", "problem": "", "model": "", "style": "",
    }  # fmt: skip
    until(lambda: server.served("one").state == "ready")  # type: ignore[union-attr]
    ready = server.served("one")
    assert ready
    assert (ready.inference_url, ready.model, ready.style) == ("http://127.0.0.1:1", "policy-v000000", "fen")
    assert ready.reward_url.startswith("https://127.0.0.1:")
    assert server.served("two") is None
    server.serve(run, 0)
    until(lambda: server.served("one").state == "failed")  # type: ignore[union-attr]
    failed = server.served("one")
    assert failed
    assert (failed.version, failed.problem) == (0, "error: no such version")
    specs = [
        f"run:{run.path.resolve()}@{version} --logs {tmp_path / 'served'} a-token c.pem k.pem"
        for version in (8, 0)
    ]
    assert (tmp_path / "asked").read_text().splitlines() == [specs[0], "ended", specs[1]]


def test_what_cannot_be_served_is_said(
    server: VersionServer, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match=r"no version 3 of run 'one' on this disk: \[0, 8, 9\]"):
        server.serve(run, 3)
    monkeypatch.setattr(served, "find_spec", lambda name: None if name == "vllm" else name)
    with pytest.raises(Unavailable, match="version 8 cannot be served here without vllm"):
        server.serve(run, 8)
    assert server.served("one") is None


def test_a_server_that_ends_is_said_and_takes_the_engine_with_it(
    server: VersionServer, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = "import os, sys, time; open(sys.argv[1], 'w').write(f'{os.getpid()} '); time.sleep(600)"
    monkeypatch.setattr(served, "_REWARD", (sys.executable, "-c", engine, str(tmp_path / "engine")))
    os.mkfifo(tmp_path / "asked.wait")
    server.serve(run, 9)
    until(lambda: server.served("one").state == "ready")  # type: ignore[union-attr]
    until(lambda: (tmp_path / "engine").exists() and (tmp_path / "engine").read_text().endswith(" "))
    (tmp_path / "asked.wait").write_text("")
    until(lambda: server.served("one").state == "failed")  # type: ignore[union-attr]
    ended = server.served("one")
    assert ended
    assert (ended.problem, ended.inference_url) == ("error: out of memory", "")
    server.stop()  # waits until the processes are gone
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "engine").read_text()), 0)


def test_a_version_that_is_loaded_is_not_started_anew(
    server: VersionServer, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = "import sys; open(sys.argv[1], 'a').write(sys.argv[2] + ' '); sys.stdin.read()"
    monkeypatch.setattr(served, "_PLAYERS", (sys.executable, "-c", loading, str(tmp_path / "asked")))
    server.serve(run, 8)
    until((tmp_path / "asked").exists)
    server.serve(run, 8)
    server.stop()
    assert (tmp_path / "asked").read_text().count("@8 ") == 1


def test_what_cannot_start_is_not_about_to_be_served(
    server: VersionServer, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_REWARD", ("/no/such/program",))
    with pytest.raises(FileNotFoundError):
        server.serve(run, 8)
    assert server.served("one") is None

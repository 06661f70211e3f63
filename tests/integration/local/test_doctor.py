"""`rookery doctor` beside a service that runs."""

import contextlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import redis
from rich.console import Console

from launcher.doctor import DoctorSettings, doctor
from rookery.streams import RunStreams
from tests.builders import generated
from tests.conftest import RedisServer, free_port
from tests.processes import started

pytestmark = pytest.mark.redis


def parts_of(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            name.partition("/")[2]: archive.extractfile(name).read().decode()  # type: ignore[union-attr]
            for name in archive.getnames()
        }


def test_a_redis_that_refuses_the_password_is_reported(redis_server: RedisServer, tmp_path: Path) -> None:
    with contextlib.closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "right")
    flags = ["--runs-dir", str(tmp_path), "--out", str(tmp_path / "x.tar.gz")]
    flags += ["--redis-url", redis_server.url]
    assert doctor(DoctorSettings.parse(flags, prog="rookery doctor"), Console(file=io.StringIO())) == 0
    parts = parts_of(tmp_path / "x.tar.gz")
    for name in ("status.txt", "streams.json"):
        assert "refuses the user or password" in " ".join(parts[name].split())


def test_all_of_a_sick_run_is_in_one_file(redis_url: str, tmp_path: Path) -> None:
    streams = RunStreams(redis_url, "sick")
    (entry,) = generated(streams, 1)
    streams.groups.dead_letter(entry.id, reason="poison")
    folder, port = tmp_path / "runs" / "sick", free_port()
    (folder / "logs").mkdir(parents=True)
    url = f"http://127.0.0.1:{port}/readyz"
    endpoints = {
        "run": "sick",
        "redis_url": redis_url,
        "probes": {"archive": url, "trainer": "http://127.0.0.1:1/readyz"},
    }
    (folder / "endpoints.json").write_text(json.dumps(endpoints))
    (folder / "settings.json").write_text(
        '{"url": "redis://user:hunter2@host/0", "set": ["viewer.token=hunter2"]}'
    )
    (folder / "metrics.jsonl").write_text("{}\n")
    (folder / "viewer.toml").write_text('[viewer]\ntoken = "hunter2 hunter2"\nmax_tokens = 9\n')
    (folder / "logs" / "viewer.log").write_text("http://h/#token=hunter2 Authorization: Bearer hunter2\n")
    command = ("services.data.archiver", "--run", "sick", "--redis-url", redis_url, "--port", port)
    log = folder / "logs" / "archive.log"
    with started(*command, "--out", tmp_path / "archive", log=log, ready=url) as service:
        flags = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path / "sick.tar.gz")]
        assert doctor(DoctorSettings.parse(flags, prog="rookery doctor"), Console(file=io.StringIO())) == 0
        assert service.poll() is None, "asked for its stacks, it goes on"
    parts = parts_of(tmp_path / "sick.tar.gz")
    assert json.loads(parts["versions.json"])["rookery"]
    assert "run sick" in parts["status.txt"]
    assert "settings.json" in parts["files.txt"]
    assert parts["logs/metrics.jsonl"] == "{}\n"
    assert not [name for name, text in parts.items() if "hunter2" in text]
    assert "max_tokens = 9" in parts["settings/viewer.toml"]
    assert '"status":"ready"' in parts["probes/archive.txt"]
    assert "rookery_archive_writable 1.0" in parts["probes/archive.txt"]
    assert "refused" in parts["probes/trainer.txt"]
    assert json.loads(parts["streams.json"])["overview"]["counts"]["generated"] == 1
    assert "poison" in parts["streams.json"]
    assert "services.data.archiver" in parts["stacks.txt"]
    assert "archiver.py" in parts["stacks.txt"] + parts["logs/archive.log"]
    assert "most recent call first" in parts["stacks.txt"] + parts["logs/archive.log"]

"""docker compose's volumes and settings, saved and restored in an empty folder. Only Redis runs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, free_port, require

pytestmark = [pytest.mark.compose, pytest.mark.docker]

NEEDED = ("docker-compose.yml", ".env", "deploy", "scripts", "launcher/redis.sh", "samples/lichess.pgn.zst")


class Checkout:
    """A copy of what docker compose needs of this repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in NEEDED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
        self.environment = clean | {"COMPOSE_PROJECT_NAME": f"rookery-backup-{os.getpid()}"}

    def run(self, *words: str, fails: bool = False, **variables: str) -> str:
        """What a command says."""
        environment = self.environment | variables
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert bool(done.returncode) is fails, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def compose(self, *words: str, fails: bool = False, **variables: str) -> str:
        return self.run(require("docker"), "compose", *words, fails=fails, **variables)

    def in_volumes(self, script: str) -> str:
        return self.compose("run", "--rm", "--no-deps", "-T", "backup", "sh", "-c", script)


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path / "first")
    made.run("scripts/secrets.sh")
    yield made
    made.compose("--profile", "*", "down", "--volumes", "--timeout", "5")


def test_a_run_goes_on_from_its_backup_in_an_empty_folder(checkout: Checkout, tmp_path: Path) -> None:
    (checkout.folder / "deploy/run.toml").write_text("[trainer]\nlr = 1e-3\n")
    (checkout.folder / "secrets").rename(tmp_path / "elsewhere")
    (checkout.folder / "our secrets").symlink_to(tmp_path / "elsewhere")
    settings = (checkout.folder / ".env").read_text() + 'SECRETS="./our secrets"\nSTYLE=fen'
    (checkout.folder / ".env").write_text(settings)
    port = str(free_port())
    checkout.compose("up", "--detach", "--wait", "redis", "prometheus", PROMETHEUS_HTTP=port)
    checkout.compose("exec", "-T", "redis", "redis-cli", "HSET", "rookery:mine:counts", "trained", "7")
    checkout.in_volumes("mkdir -m 700 /volumes/runs/mine && chown 10001 /volumes/runs/mine")
    password = "a$RUN #1"
    changed = {"RUN": "mine", "FEED_TASK": "rookworld", "GRAFANA_PASSWORD": password}
    changed["COMPOSE_PROFILES"] = "cpu"
    saved = checkout.run("scripts/backup.sh", "save", str(tmp_path / "my backup"), **changed)
    checkout.run(
        *("scripts/backup.sh", "save", str(tmp_path / "my backup")),
        ROOKERY_TOML="no.toml",
        fails=True,
    )
    assert "prometheus-1  Stopped" in saved, "a service of another profile may be mlflow"
    running = checkout.compose("ps", "--services", "--status", "running")
    assert running.split() == ["prometheus", "redis"]
    secrets = {path.name: path.read_text() for path in (tmp_path / "elsewhere").rglob("*.env")}
    assert len(secrets) > 9
    checkout.compose("down", "--volumes")
    shutil.rmtree(checkout.folder)

    restored = Checkout(tmp_path / "second")
    shutil.rmtree(tmp_path / "elsewhere")
    restored.run("scripts/backup.sh", "restore", str(tmp_path / "my backup"))
    copies = (restored.folder / "our secrets").rglob("*.env")
    assert {path.name: path.read_text() for path in copies} == secrets
    assert (restored.folder / "deploy/run.toml").read_text() == "[trainer]\nlr = 1e-3\n"
    lines = (restored.folder / ".env").read_text().splitlines()
    assert {"RUN=mine", "FEED_TASK=rookworld", "STYLE=fen"} <= set(lines)
    grafana = yaml.safe_load(restored.compose("--profile", "*", "config"))["services"]["grafana"][
        "environment"
    ]
    assert grafana["GF_SECURITY_ADMIN_PASSWORD"].replace("$$", "$") == password
    assert restored.in_volumes("stat -c '%u %a' /volumes/runs/mine").split() == ["10001", "700"]
    restored.compose("up", "--detach", "--wait", "redis")
    counts = restored.compose("exec", "-T", "redis", "redis-cli", "HGETALL", "rookery:mine:counts")
    assert counts.split() == ["trained", "7"]
    checkout.folder = restored.folder  # to be removed
    (restored.folder / ".env").write_text("\n".join([*lines, "# mine"]))
    refused = restored.run("scripts/backup.sh", "restore", str(tmp_path / "my backup"), fails=True)
    assert "has volumes here" in refused
    assert (restored.folder / ".env").read_text().endswith("# mine")


def test_what_is_no_backup_changes_nothing(checkout: Checkout, tmp_path: Path) -> None:
    before = (checkout.folder / ".env").read_text()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "env").write_text("RUN=other\n")
    said = checkout.run("scripts/backup.sh", "restore", str(tmp_path / "half"), fails=True)
    assert f"{tmp_path / 'half'} has no run.toml: it is no whole backup" in said
    for name in ("run.toml", "secrets", "volumes.tar.gz"):
        (tmp_path / "half" / name).touch()
    said = checkout.run(
        *("scripts/backup.sh", "restore", str(tmp_path / "half")), fails=True, DOCKER_HOST="unix:///nowhere"
    )
    assert "Cannot connect to the Docker daemon" in said
    assert (checkout.folder / ".env").read_text() == before


def test_no_folder_with_other_files_is_written_to(checkout: Checkout) -> None:
    """The repository itself has a folder of secrets, which an earlier backup's would be."""
    said = checkout.run("scripts/backup.sh", "save", ".", fails=True, ROOKERY_TOML="./deploy/users.acl")
    assert f"{checkout.folder} is neither empty nor a backup: name another folder" in said
    assert (checkout.folder / "secrets/token.env").exists()


def test_up_ends_if_no_profile_serves_the_policy(checkout: Checkout) -> None:
    said = checkout.compose("up", "--detach", "--wait", "redis", fails=True, COMPOSE_PROFILES="observability")
    assert 'service "profile-cpu-or-gpu" didn\'t complete successfully: exit 1' in said
    assert "COMPOSE_PROFILES is 'observability': without cpu or gpu" in checkout.compose(
        "logs", "profile-cpu-or-gpu"
    )
    assert not checkout.compose("ps", "--services", "--status", "running").split()

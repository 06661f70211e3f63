"""docker compose itself reads the file, for every profile; it needs no daemon for that."""

import json
import os
import re
import subprocess
import tempfile
from typing import Any

import pytest

from rookery.config.data import FeedSettings
from tests.conftest import ROOT, require

pytestmark = pytest.mark.compose

LOOP = {
    "profile-cpu-or-gpu",
    "redis",
    "feed",
    "data",
    "archive",
    "exporter",
    "reward",
    "gateway",
    "rollouts",
    "viewer",
}
WATCHERS = {"prometheus", "grafana", "mlflow"}
PROFILES = {
    None: LOOP | {"inference", "trainer"} | WATCHERS,
    "cpu": LOOP | {"inference", "trainer"},
    "gpu": LOOP | {"inference-gpu", "trainer-gpu"},
    "observability": LOOP | WATCHERS,
    "cpu,evaluation": LOOP | {"inference", "trainer", "arena"},
}
"""What each profile starts; None is what the committed .env chooses."""


def config(profile: str | None, **environment: str) -> dict[str, Any]:
    """The resolved configuration."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("COMPOSE_")} | environment
    if profile:
        clean["COMPOSE_PROFILES"] = profile
    with tempfile.TemporaryDirectory() as secrets:
        clean["SECRETS"] = secrets
        subprocess.run([ROOT / "scripts/secrets.sh"], env=clean, check=True)
        command = [require("compose"), "compose", "config", "--format", "json"]
        done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "variable is not set" not in done.stderr
    resolved: dict[str, Any] = json.loads(done.stdout)
    return resolved


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_starts_what_it_should(profile: str | None) -> None:
    assert set(config(profile)["services"]) == PROFILES[profile]


def test_gpus_are_pinned_by_device() -> None:
    services = config("gpu", MODEL="Qwen/Qwen3-4B", TRAINER_GPU="3")["services"]
    for name, device, model in (
        ("inference-gpu", "0", "INFERENCE_MODEL"),
        ("trainer-gpu", "3", "TRAINER_MODEL"),
    ):
        (reserved,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert reserved["device_ids"] == [device]
        assert services[name]["environment"][model] == "Qwen/Qwen3-4B"


def test_ports_are_bound_to_loopback_unless_told_otherwise() -> None:
    for bind in ("127.0.0.1", "0.0.0.0"):
        services = config(None, BIND=bind)["services"].values()
        hosts = {port["host_ip"] for service in services for port in service.get("ports", [])}
        assert hosts == {bind}


def test_members_of_a_run_agree() -> None:
    services = config(None, RUN="mine", BATCH_GROUPS="5")["services"]
    members = [s["environment"] for s in services.values() if "ROOKERY_RUN" in s.get("environment", {})]
    assert len(members) == 6
    for environment in members:
        assert environment["ROOKERY_RUN"] == "mine"
        assert environment["ROOKERY_REDIS_URL"].endswith("@redis:6379/0")
    assert services["trainer"]["environment"]["TRAINER_BATCH_GROUPS"] == "5"
    assert services["rollouts"]["environment"]["ROLLOUTS_BATCH_GROUPS"] == "5"
    assert services["trainer"]["environment"]["TRAINER_RUN_DIR"] == "runs/mine"


def test_what_the_shell_has_reaches_those_who_need_it() -> None:
    services = config("gpu", HF_TOKEN="hf", AWS_REGION="eu", INFERENCE_URLS="http://a,http://b")["services"]
    assert services["inference-gpu"]["environment"]["HF_TOKEN"] == "hf"
    assert services["trainer-gpu"]["environment"]["HF_TOKEN"] == "hf"
    assert services["archive"]["environment"]["AWS_REGION"] == "eu"
    assert services["trainer-gpu"]["environment"]["TRAINER_INFERENCE_URLS"] == "http://a,http://b"
    assert services["rollouts"]["environment"]["ROLLOUTS_INFERENCE_URLS"] == "http://a,http://b"


ROOKWORLD = {
    "feed": {"TASK": "rookworld", "SOURCES": "generated", "MAX_POSITIONS": "256", "STATE_SHARE": "0.3"},
    "rollouts": {"STATE_MAX_TOKENS": "96"},
    "inference": {"FULL_WEIGHTS": "true"},
    "trainer": {"LORA_RANK": "0", "KEEP": "3"},
}


def test_rookworlds_settings_reach_their_services() -> None:
    given = {f"{name.upper()}_{key}": value for name, own in ROOKWORLD.items() for key, value in own.items()}
    told, untold = (config("cpu", **variables)["services"] for variables in (given, {}))
    for name, own in ROOKWORLD.items():
        names = {f"{name.upper()}_{key}" for key in own}
        assert {key: told[name]["environment"][key] for key in names} == {key: given[key] for key in names}
        assert not any(untold[name]["environment"][key] for key in names), "run.toml decides"
    written = set(re.findall(r"^# (\w+)=", (ROOT / ".env").read_text(), re.MULTILINE))
    assert set(given) <= written
    feed = FeedSettings(**{key.lower(): value for key, value in ROOKWORLD["feed"].items()})
    assert (feed.sources, feed.max_positions) == ("generated", 256)


def test_our_services_have_the_token_and_nobody_else() -> None:
    profiles = "cpu,gpu,observability,evaluation,reward-model"
    services = config(profiles)["services"]
    tokens = {name: service.get("environment", {}).get("ROOKERY_TOKEN") for name, service in services.items()}
    without = {"profile-cpu-or-gpu", "redis", "gateway"} | WATCHERS
    assert {name for name, token in tokens.items() if not token} == without
    assert len(set(tokens.values())) == 2, "one token, or none"
    refused = subprocess.run(
        [require("compose"), "compose", "config"],
        cwd=ROOT,
        env={**os.environ, "SECRETS": "./no-such-folder"},
        capture_output=True,
        text=True,
    )
    assert refused.returncode != 0, "no service starts without a token by oversight"
    assert "no-such-folder" in refused.stderr


def test_each_service_has_the_password_of_its_own_user_of_redis() -> None:
    services = config("cpu,gpu,observability,evaluation,reward-model")["services"]
    users = {
        (name.removesuffix("-gpu"), *re.findall(r"redis://(\w+):(\w+)@", value))
        for name, service in services.items()
        for value in service.get("environment", {}).values()
        if "redis://" in str(value)
    }
    assert all(name == user for name, (user, _) in users)
    assert len({password for _, (_, password) in users}) == 9


def test_replicas_are_remembered() -> None:
    assert config("cpu", REWARD_REPLICAS="4")["services"]["reward"]["scale"] == 4


def test_a_service_waits_for_what_it_needs() -> None:
    services = config(None)["services"]
    waits = {name: set(service.get("depends_on", {})) for name, service in services.items()}
    assert waits["rollouts"] >= {"reward", "feed", "inference"}
    assert waits["trainer"] >= {"redis"}
    assert waits["redis"] == waits["data"] == {"profile-cpu-or-gpu"}
    for service in services.values():
        for name, needed in service.get("depends_on", {}).items():
            # MLflow is not waited for: the trainer sends it what it has missed.
            conditions = {"mlflow": "started", "profile-cpu-or-gpu": "completed_successfully"}
            assert needed["condition"] == f"service_{conditions.get(name, 'healthy')}"

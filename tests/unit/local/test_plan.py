import json
import os
import re
import socket
import sys
import tomllib
from collections.abc import Iterator
from contextlib import chdir, closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import redis
from rich.console import Console

from launcher.exporter import ExporterSettings
from launcher.plan import HOST, Plan, default_lines, make_plan
from launcher.services import SERVICES
from launcher.session import Session
from launcher.settings import UpSettings
from launcher.up import print_services
from launcher.view import ViewSettings, view
from rookery.commands import load
from rookery.config.reward import RewardSettings
from rookery.errors import SetupError
from rookery.processes.child import ServiceCommand
from rookery.processes.ports import Ports, is_listening
from tests import gpus
from tests.chat_models import HERMES_TEMPLATE
from tests.conftest import ROOT, RedisServer, free_port
from tests.hub import write_snapshot

ROOK_TINY = str(ROOT / "models" / "rook-tiny")


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and games, no GPU, and no variables of ours."""
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.json").touch()
    (tmp_path / "games.pgn").touch()
    monkeypatch.chdir(tmp_path)
    gpus.install(monkeypatch, tmp_path / "no-driver", [])
    for variable in ("REWARD_PORT", "TRAINER_PORT", "ROOKERY_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def plan(*argv: str) -> Plan:
    given = UpSettings.parse(["--model", "models/m", "--source", "games.pgn", *argv], prog="rookery up")
    with Ports(HOST) as ports:
        return make_plan(given.model_copy(update={"run": "r"}), ports)


def values(plan: Plan, service: str) -> dict[str, Any]:
    """The settings of a service, as JSON has them."""
    return plan.settings[service].values.model_dump(mode="json")


def read_by_services(plan: Plan, *services: str) -> list[dict[str, Any]]:
    """The settings as each service itself reads them in its environment."""
    read = []
    for service in services:
        variables = {**os.environ, **plan.commands[service].env}
        kept = {key: value for key, value in variables.items() if value is not None}
        with chdir(ROOT), patch.dict(os.environ, kept, clear=True):
            read.append(load(SERVICES[service].settings).parse([], prog="x").model_dump(mode="json"))
    return read


def test_services_read_what_the_plan_resolved(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags come before variables, although a service reads its variables before its file."""
    monkeypatch.setenv("TRAINER_LR", "0.5")
    monkeypatch.setenv("TRAINER_WARMUP_STEPS", "7")
    monkeypatch.setenv("ROOKERY_RUN", "another")
    monkeypatch.setenv("data_split", "heldout")
    monkeypatch.setenv("TRAINER_DRY_RUN", "true")
    (house / "models" / "m" / "reward_model.json").write_text("{}")
    made = plan(
        "--preset", "rook-small", "--model", "models/m", "--set", "trainer.lr=0.25", "--seed", "3",
        "--set", "archive.file_age_s=inf", "--evaluate-every", "5", "--reward-model", "models/m",
        "--set", "reward.scheme=candidates+model", "--runs-dir", "r\x7f \\'\"#ü",
    )  # fmt: skip
    assert made.settings["feed"].origins["split"] == "environment"
    made.write_settings()
    services = list(made.settings)
    resolved = dict(zip(services, read_by_services(made, *services), strict=True))
    trainer = resolved["trainer"]
    assert (trainer["lr"], trainer["warmup_steps"], trainer["run"], trainer["kl"]) == (
        0.25, 7, "r", "policy_reference",
    )  # fmt: skip
    assert resolved == {service: values(made, service) for service in services}


def test_everyone_agrees(house: Path) -> None:
    made = plan(
        "--group-size", "4", "--batch-groups", "16", "--staleness", "1", "--steps", "9", "--seed", "5",
        "--from-version", "0",
    )  # fmt: skip
    members = {name: values(made, name) for name in ("feed", "inference", "trainer", "rollouts")}
    assert {m["run"] for m in members.values()} == {"r"}
    assert {m["redis_url"] for m in members.values()} == {made.redis_url}
    rollouts, trainer = members["rollouts"], members["trainer"]
    assert (rollouts["group_size"], rollouts["batch_groups"], rollouts["staleness"]) == (4, 16, 1)
    assert (trainer["batch_groups"], trainer["max_steps"]) == (16, 9)
    assert trainer["from_version"] == 0
    assert rollouts["inference_urls"] == trainer["inference_urls"] == made.url("inference")
    assert rollouts["reward_target"] == f"dns:///127.0.0.1:{values(made, 'reward')['grpc_port']}"
    assert members["inference"]["adapter_root"] == str(Path(trainer["run_dir"]) / "adapters")
    assert trainer["model"] == members["inference"]["model"] == str(house / "models" / "m")


def test_a_model_at_a_url_is_copied_once_for_all(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(house / "cache"))
    made = plan("--model", f"file://{house}/models/m")
    copy = Path(values(made, "trainer")["model"])
    assert copy.is_relative_to(house / "cache")
    assert (copy.name, values(made, "inference")["model"]) == ("m", str(copy))
    with pytest.raises(SetupError, match="there is no folder at 'file:///nowhere/m'"):
        plan("--model", "file:///nowhere/m")


def test_rookworld_is_asked_and_shown_alike(house: Path) -> None:
    made = plan("--task", "rookworld")
    assert (values(made, "feed")["task"], values(made, "rollouts")["style"]) == ("rookworld", "rookworld")
    feed = values(plan("--source", "generated", "--max-positions", "256"), "feed")
    assert (feed["sources"], feed["max_positions"]) == ("generated", 256)
    plain = plan()
    assert (values(plain, "feed")["sources"], values(plain, "feed")["max_positions"]) == (
        str(house / "games.pgn"), 0,
    )  # fmt: skip
    assert (values(plain, "feed")["task"], values(plain, "rollouts")["style"]) == ("move", "mover-squares")


def test_a_reward_model_is_served_before_the_reward_service(house: Path) -> None:
    assert "reward-model" not in plan().commands
    assert values(plan(), "reward")["model_url"] == ""
    with pytest.raises(SetupError, match=r"'models/m' is not a reward model: it has no reward_model.json"):
        plan("--reward-model", "models/m")
    with pytest.raises(SetupError, match=r"scheme 'delta\+0.5\*model' needs .* \(--reward-model\)"):
        plan("--set", "reward.scheme=delta+0.5*model")
    with pytest.raises(SetupError, match="scheme 'model' needs a reward model"):
        plan("--preset", "pychess-ppo", "--model", "models/m")
    plan("--preset", "pychess-ppo", "--model", "models/m", "--set", "reward.scheme=delta")
    (house / "models" / "m" / "reward_model.json").write_text("{}")
    with pytest.raises(SetupError, match="scheme 'delta' does not ask the reward model"):
        plan("--reward-model", "models/m")
    own = ("--set", "reward.schemes=mod:my_model", "--set", "reward.scheme=my_model+0.5 * model")
    assert "reward-model" in plan("--reward-model", "models/m", *own).commands
    made = plan("--reward-model", "models/m", "--set", "reward.scheme=model", "--set", "reward-model.rows=4")
    assert [command.name for command in made.stages[0]] == ["redis", "reward-model", "viewer"]
    assert made.commands["reward-model"].argv[1:] == ("-m", "launcher", "serve", "reward-model")
    served = values(made, "reward-model")
    assert (served["model"], served["rows"]) == (str(house / "models" / "m"), 4)
    assert values(made, "reward")["model_url"] == made.url("reward-model")
    assert made.probe_urls["reward-model"] == f"{made.url('reward-model')}/readyz"


def test_a_gpt2_is_served_whole(house: Path) -> None:
    assert not values(plan(), "inference")["full_weights"]
    (house / "models" / "m" / "config.json").write_text('{"model_type": "gpt2"}')
    assert values(plan(), "inference")["full_weights"]


def test_the_server_accepts_the_trainers_versions(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert values(plan(), "inference")["max_lora_rank"] == 16
    made = values(plan("--set", "trainer.lora_rank=24"), "inference")
    assert made["max_lora_rank"] == 32
    given = plan("--set", "trainer.lora_rank=24", "--set", "inference.max_lora_rank=64")
    assert values(given, "inference")["max_lora_rank"] == 64
    for rank, highest in (("24", "16"), ("16", "8"), ("300", "256")):
        with pytest.raises(SetupError, match=f"have rank {rank}, and the server accepts {highest} at most"):
            plan("--set", f"trainer.lora_rank={rank}", "--set", f"inference.max_lora_rank={highest}")
    with pytest.raises(SetupError, match="have rank 16, and the server accepts 8 at most"):
        plan("--set", "inference.max_lora_rank=8")
    with pytest.raises(SetupError, match="have rank 300, and the server accepts 256 at most"):
        plan("--set", "trainer.lora_rank=300")
    monkeypatch.setenv("TRAINER_LORA_RANK", "64")
    assert values(plan("--preset", "rook-small", "--model", "models/m"), "inference")["max_lora_rank"] == 64


@pytest.mark.parametrize("service", ["inference", "arena"])
def test_thinking_is_switched_off_for_the_server_and_in_evaluations(house: Path, service: str) -> None:
    evaluated = ("--evaluate-every", "5")
    assert values(plan(*evaluated), service)["thinking"] is None
    assert values(plan(*evaluated, "--no-thinking"), service)["thinking"] is False


def test_redis_comes_first_and_rollouts_last(house: Path) -> None:
    names = [[command.name for command in stage] for stage in plan().stages]
    assert names == [["redis", "viewer"], ["feed", "archive", "reward", "trainer", "inference"], ["rollouts"]]


def test_versions_are_evaluated_on_request(house: Path) -> None:
    assert "arena" not in plan().commands
    assert values(plan(), "inference")["leases"] == 0
    made = plan("--evaluate-every", "25", "--max-tokens", "9", "--set", "arena.pairs=3")
    assert "arena" in [command.name for command in made.stages[1]], "before the first step"
    assert values(made, "inference")["leases"] == 1
    games = plan("--set", "feed.episode=move + game,opponent=policy,every=9")
    assert values(games, "inference")["leases"] == 2
    several = "+".join(f"game,opponent=policy,every={every}" for every in (9, 9, 5))
    games = plan("--set", f"feed.episode={several}", "--evaluate-every", "25")
    assert values(games, "inference")["leases"] == 1 + 2 * 2
    assert values(games, "trainer")["max_staleness"] == values(plan(), "trainer")["max_staleness"] + 1
    assert made.commands["arena"].argv[1:] == ("-m", "launcher", "serve", "arena")
    told, rollouts = values(made, "arena"), values(made, "rollouts")
    for name in ("run", "redis_url", "reward_target", "style", "max_tokens", "seed"):
        assert told[name] == rollouts[name]
    assert told["inference_url"] == made.url("inference")
    assert told["run_dir"] == values(made, "trainer")["run_dir"]
    assert (told["every"], told["pairs"], told["count"]) == (25, 3, 200)


def test_it_is_said_why_versions_cannot_be_evaluated(house: Path) -> None:
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* a run of --task move, and .* rookworld"):
        plan("--evaluate-every", "5", "--task", "rookworld")
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* held out, and .* --source generated"):
        plan("--evaluate-every", "5", "--source", "generated")
    (house / "models" / "m" / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* has one whole model at a time"):
        plan("--evaluate-every", "5")


def test_the_viewer_is_served_unless_asked_not_to(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "viewer" not in plan("--no-view").commands
    assert values(plan(), "viewer")["runs_dir"] == str(house / "runs")
    monkeypatch.setattr("launcher.plan.find_spec", lambda name: None)
    assert "viewer" not in plan().commands
    with pytest.raises(SetupError, match=r"--view: .* pip install 'rookery\[viewer\]'"):
        plan("--view")


def test_an_archive_in_a_store_is_viewed_beside_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[ServiceCommand] = []

    def interrupted(command: ServiceCommand) -> None:
        started.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr("launcher.view.running", interrupted)
    for place in ("run=x", "x"):
        view(ViewSettings(run=f"s3://b/{place}", runs_dir=str(tmp_path)), Console())
    placed = [" ".join(command.argv[9:]) for command in started]
    assert placed == [f"--runs-dir {tmp_path} --archive s3://b", "--runs-dir s3://b"]


def test_an_archive_that_is_not_wanted_is_not_made(house: Path) -> None:
    assert "archive" not in plan("--no-archive").commands
    assert values(plan(), "archive")["out"] == str(plan().run_dir / "archive")


@pytest.mark.redis
def test_a_given_redis_is_used(house: Path, redis_url: str) -> None:
    made = plan("--redis-url", redis_url)
    assert "redis" not in made.commands
    assert values(made, "feed")["redis_url"] == redis_url


def test_no_password_is_in_a_command_line(house: Path, redis_server: RedisServer) -> None:
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "sesame")
    url = redis_server.url.replace("//", "//:sesame@")
    made = plan("--redis-url", url, "--set", "reward.redis_url=redis://h/1?password=sesame")
    assert not [part for command in made.commands.values() for part in command.argv if "sesame" in part]
    assert "sesame" not in repr(made.commands)
    made.write_settings()
    assert not [
        path for path in made.settings_file("reward").parent.iterdir() if "sesame" in path.read_text()
    ]
    read = read_by_services(made, "feed", "trainer", "rollouts", "reward")
    assert [values["redis_url"] for values in read] == [url] * 3 + ["redis://h/1?password=sesame"]


def test_a_given_redis_that_refuses_the_password_is_named(house: Path, redis_server: RedisServer) -> None:
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "sesame")
    with pytest.raises(SetupError, match="refuses the user or password of --redis-url"):
        plan("--redis-url", redis_server.url)


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:{port}/0", "rediss://127.0.0.1:{port}/0", "unix:///none-{port}"]
)
def test_a_given_redis_that_is_not_there_is_named(house: Path, url: str) -> None:
    url = url.format(port=free_port())
    with pytest.raises(SetupError, match=f"no Redis at '{url}': redis does not answer: Error"):
        plan("--redis-url", url)


def test_no_two_services_have_one_default_port() -> None:
    ports = [port for service in SERVICES.values() for port in service.ports.values()]
    ports.append(ExporterSettings.model_fields["port"].default)
    assert len({*ports}) == len(ports)


def test_no_port_is_given_out_twice(house: Path) -> None:
    made = plan()
    ports = [port for service in made.ports.values() for port in service.values()]
    assert len(set(ports)) == len(ports)


def test_a_taken_default_is_avoided(house: Path, busy_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewardSettings.model_fields["port"], "default", busy_port)
    assert plan().ports["reward"]["port"] != busy_port


def test_a_chosen_port_is_kept_for_the_child() -> None:
    with Ports(HOST) as mine, Ports(HOST) as another:
        port = mine.choose(free_port())
        if sys.platform == "linux":
            assert another.choose(port) != port
        with socket.socket() as child:
            child.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            child.bind((HOST, port))
            child.listen()


@pytest.mark.parametrize("way", ["flag", "environment", "toml"])
def test_a_taken_port_that_was_asked_for_is_an_error_that_names_the_setting(
    house: Path, busy_port: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["--set", f"reward.port={busy_port}"] if way == "flag" else []
    if way == "environment":
        monkeypatch.setenv("REWARD_PORT", str(busy_port))
    if way == "toml":
        (house / "run.toml").write_text(f"[reward]\nport = {busy_port}\n")
        monkeypatch.setenv("ROOKERY_CONFIG", "run.toml")
    with pytest.raises(SetupError, match=rf"port {busy_port}.*--set reward.port=PORT or REWARD_PORT"):
        plan(*argv)


def test_a_port_is_in_the_table_of_its_service(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    (house / "run.toml").write_text(f"[reward_server]\nport = {port}\n")
    monkeypatch.setenv("ROOKERY_CONFIG", "run.toml")
    (house / "models" / "m" / "reward_model.json").write_text("{}")
    asked = ("--reward-model", "models/m", "--set", "reward.scheme=model")
    assert plan(*asked).ports["reward-model"]["port"] == port
    assert plan("--set", "reward.port=0").ports["reward"]["port"]
    with pytest.raises(SetupError, match="port: Input should be less than or equal to 65535"):
        ViewSettings.parse(["--port", "70000"], prog="rookery view")


def test_a_port_that_is_given_up_is_exchanged_and_the_others_stay() -> None:
    with Ports(HOST) as ports:
        first, second = (
            ports.choose(free_port()),
            ports.choose(asked := free_port(), asked=asked, setting="--x"),
        )
        assert not is_listening(HOST, first), "bound is not listening"
        with socket.socket() as stranger:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            stranger.bind((HOST, first))
            stranger.listen()
            assert is_listening(HOST, first)
            ports.replace(first)
            assert ports.choose(first) not in (first, second)
            assert ports.choose(first) == ports.choose(first)
        assert ports.choose(asked, asked=asked, setting="--x") == second
        with pytest.raises(SetupError, match=f"port {asked} on {HOST} is taken: choose another with --x"):
            ports.replace(asked)


def test_a_trainer_may_have_several_gpus(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.install(monkeypatch, house / "driver", ["8.0"] * 4)
    made = plan("--trainer-device", "1,2,3")
    assert (values(made, "inference")["device"], values(made, "trainer")["device"]) == ("0", "1,2,3")
    with pytest.raises(SetupError, match="no GPU 4: this machine has 4"):
        plan("--trainer-device", "3,4")
    assert values(plan("--trainer-device", "0,1"), "inference")["device"] == "2"
    made = plan("--inference-device", "0,1")
    assert (values(made, "inference")["device"], values(made, "trainer")["device"]) == ("0,1", "3")
    with pytest.raises(SetupError, match="GPU 0 serves, and is among those that train"):
        plan("--inference-device", "0", "--trainer-device", "0,1")


def test_games_may_be_at_a_url(house: Path) -> None:
    url = "https://database.lichess.org/standard/month.pgn.zst"
    assert values(plan("--source", url), "feed")["sources"] == url
    assert values(plan(), "feed")["sources"] == str(house / "games.pgn")


def test_what_dry_run_prints_pins_no_port_and_no_name(
    house: Path, busy_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*argv: str) -> dict[str, dict[str, Any]]:
        with pytest.raises(SystemExit):
            UpSettings.parse([*argv, "--dry-run"], prog="rookery up", show=print_services)
        text = capsys.readouterr().out
        (house / "run.toml").write_text(text)
        return tomllib.loads(text)

    port = free_port()
    asked = ("--model", "models/m", "--style", "fen", "--max-tokens", "9", "--source", "games.pgn")
    tables = printed(*asked, "--set", f"reward.grpc_port={port}")
    assert {name: table["port"] for name, table in tables.items() if "port" in table} == {}
    assert (tables["reward"]["grpc_port"], "run" in tables["up"]) == (port, False)
    monkeypatch.setattr(RewardSettings.model_fields["port"], "default", busy_port)
    monkeypatch.setenv("ROOKERY_CONFIG", str(house / "run.toml"))
    ports = plan().ports["reward"]
    assert (ports["port"] != busy_port, ports["grpc_port"]) == (True, port)
    assert {name: table.keys() for name, table in printed().items()} == {
        name: table.keys() for name, table in tables.items()
    }


@pytest.mark.parametrize(
    ("text", "variable", "message"),
    [
        ("", "abc", r"^trainer: lr: .*\(got 'abc'; TRAINER_LR in the environment\)$"),
        ("[trainer]\nlr = 'abc'", "", r"^trainer: lr: .*\(got 'abc'; \[trainer\] lr in run.toml\)$"),
        (
            "[trainer]\nlrr = 1",
            "",
            r"^trainer: lrr: no such setting; did you mean 'lr'\? \(got 1; .* in run.toml",
        ),
    ],
)
def test_a_wrong_value_of_a_service_is_named_with_its_place(
    house: Path, text: str, variable: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house / "run.toml").write_text(text)
    monkeypatch.setenv("ROOKERY_CONFIG", "run.toml")
    if variable:
        monkeypatch.setenv("TRAINER_LR", variable)
    with pytest.raises(SetupError, match=message):
        plan()


def test_overrides_reach_their_service(house: Path) -> None:
    made = plan("--set", "trainer.lr=5e-4", "--set", "trainer.normalise=false", "--set", "reward.k=0.002")
    trainer, reward = values(made, "trainer"), values(made, "reward")
    assert (trainer["lr"], trainer["normalise"], reward["k"]) == (5e-4, False, 0.002)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--set", "trainer.batch_groups=4"], "trainer.batch_groups: the run decides"),
        (["--set", "trainr.lr=1"], "SERVICE.SETTING=VALUE for one of feed"),
        (["--set", "trainer.lrr=1"], "^trainer has no setting 'lrr'; did you mean 'lr'?"),
        (
            ["--set", "rollouts.temperatur=2"],
            "^rollouts has no setting 'temperatur'; did you mean 'temperature'?",
        ),
        (["--set", "inference.max_model_len=abc"], "^inference: max_model_len: .*valid integer.*'abc'"),
        (["--set", "data.sources=x"], "SERVICE.SETTING=VALUE for one of feed"),
        (["--set", "arena.pairz=1"], "^arena has no setting 'pairz'; did you mean 'pairs'?"),
        (["--set", "trainer.dry_run=true"], "^trainer has no setting 'dry_run'"),
        (["--set", "trainer.lr=abc"], r"^trainer: lr: .*\(got 'abc'; --set trainer.lr\)$"),
        (["--set", "trainer.compile=maybe"], "^trainer: compile: 'maybe' is neither true nor false"),
        (["--set", "trainer.lr=true"], "^trainer: lr: .*valid number"),
        (
            ["--max-tokens", "300", "--set", "inference.max_model_len=300"],
            r"^answers of 300 tokens leave no room for a prompt in inference.max_model_len=300",
        ),
        (
            ["--set", "feed.episode=game,opponent=foo"],
            r"^feed: episode: .*no opponent 'foo': choose from random",
        ),
        (
            ["--set", "feed.episode=move + game,opponent=uci:/no/engine,nodes=9"],
            "^feed.episode: opponent=uci: uci:PATH is not a program: '/no/engine'",
        ),
        (
            ["--set", "feed.episode=game,opponent=uci:/bin/true,nodes=9"],
            "^feed.episode: opponent=uci: '/bin/true' is not a UCI engine",
        ),
        pytest.param(
            ["--set", "feed.episode=game,opponent=stockfish,nodes=1,elo=500"],
            "^feed.episode: opponent=stockfish: 500 is not a value of .*'UCI_Elo', which is from 13",
            marks=pytest.mark.stockfish,
        ),
        (
            ["--set", "feed.episode=game,start=/no/book.pgn"],
            "^feed.episode: openings '/no/book.pgn': .*No such file",
        ),
        (
            ["--set", "feed.episode=game,opponent=policy", "--set", "trainer.lora_rank=0"],
            "^feed.episode 'game,opponent=policy': opponent=policy needs adapters",
        ),
        (
            ["--group-size", "3", "--set", "feed.episode=move + game,colours=both"],
            "^feed.episode 'game,colours=both': half .*baseline=group-mean .* --group-size 3 leaves too few",
        ),
        (["--set", "trainer.ratio_cap=2"], r"^trainer: ratio_cap=2.0 has no .* \(--set trainer.ratio_cap\)$"),
        (
            ["--set", "trainer.lr_schedule=cosine"],
            r"max_steps, which is not set \(.*--steps.*--set trainer.lr_sch",
        ),
        (["--set", "trainer.lr=\x1b[2J"], "set: .* has a control character"),
        (["--set", "reward.port=eighty"], "'eighty' is not a port"),
        (["--set", "reward.port=70000"], "'70000' is not a port"),
        (["--model", "models/none"], "no model in 'models/none' .*: it has no config"),
        (["--source", "none.pgn"], "no such file: 'none.pgn'"),
        (["--trainer-device", "3"], "no GPU 3: this machine has 0"),
        (["--trainer-device", "tpu"], "index of a GPU"),
        (["--trainer-device", "0,cpu"], "index of a GPU"),
        (["--inference-device", "cpu,cpu"], "lists the CPU twice: a server has one"),
        (["--style", "runes"], "mover-squares"),
        (["--set", "trainer.sleep_inference=true"], "--set inference.sleep=true"),
        (
            ["--model", ROOK_TINY, "--set", "trainer.lora_targets=q_proj,c_attn"],
            "rook-tiny has no layer 'c_attn'",
        ),
        (
            ["--set", "trainer.process_rewards=true"],
            "needs a scheme with candidates, values, truth or influence, not 'delta'",
        ),
    ],
)
def test_mistakes_are_told_before_anything_starts(house: Path, argv: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        plan(*argv)


@pytest.mark.stockfish
def test_an_engine_of_this_folder_plays(house: Path, stockfish_path: str) -> None:
    (house / "eng").symlink_to(stockfish_path)
    assert plan("--set", "feed.episode=game,opponent=uci:eng,nodes=9").episode.endswith(":eng,nodes=9")


def test_a_hub_id_is_passed_on_as_what_the_cache_holds(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(house / "hub"))
    assert values(plan("--model", "some/gpt2"), "trainer")["model"] == "some/gpt2"
    snapshot = write_snapshot(house / "hub", "some/gpt2", {"model_type": "gpt2"})
    made = plan("--model", "some/gpt2")
    assert values(made, "trainer")["model"] == str(snapshot)
    served = values(made, "inference")
    assert (served["full_weights"], served["model"]) == (True, str(snapshot))


def test_a_run_does_not_begin_without_its_model(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(house / "hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    given = UpSettings.parse(["--model", "Qwen/Qwen3-4B", "--source", "games.pgn"], prog="rookery up")
    with pytest.raises(SetupError, match="hf download Qwen/Qwen3-4B"), Session(given, Console()):
        pass
    assert not (house / "runs").exists()


QWEN3_4B = {
    "model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
FOUR_BITS = ("--set", "trainer.base_bits=4", "--set", "trainer.gradient_checkpointing=true")


@pytest.mark.parametrize(("count", "places"), [(0, ("auto", "auto")), (1, ("0", "0")), (2, ("0", "1"))])
def test_the_second_gpu_trains(
    house: Path, monkeypatch: pytest.MonkeyPatch, count: int, places: tuple[str, str]
) -> None:
    gpus.install(monkeypatch, house / "driver", ["8.0"] * count)
    made = plan()
    assert (values(made, "inference")["device"], values(made, "trainer")["device"]) == places
    assert values(made, "trainer")["sleep_inference"] is (count == 1)


@pytest.mark.parametrize(
    ("flags", "places"),
    [
        (("--trainer-device", "0"), ("1", "0")),
        (("--inference-device", "1"), ("1", "0")),
        (("--inference-device", gpus.uuid(0)), (gpus.uuid(0), "1")),
        (("--inference-device", "0", "--trainer-device", "0"), ("0", "0")),
    ],
)
def test_auto_leaves_the_gpu_that_the_other_side_was_given(
    house: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], places: tuple[str, str]
) -> None:
    gpus.install(monkeypatch, house / "driver", ["8.0", "8.0"])
    made = plan(*flags)
    assert (values(made, "inference")["device"], values(made, "trainer")["device"]) == places
    assert values(made, "trainer")["sleep_inference"] is (places == ("0", "0"))


@pytest.mark.parametrize(
    ("gib", "flags", "share", "tokens"),
    [
        (80, (), 0.86, 8192),
        (24, FOUR_BITS, 0.81, 8192),
        (24, (*FOUR_BITS, "--set", "trainer.micro_batch_tokens=2048"), 0.81, 2048),
        (24, (*FOUR_BITS, "--set", "inference.gpu_memory=0.7"), 0.7, 8192),
    ],
)
def test_one_gpu_serves_and_trains_in_turns(
    house: Path,
    monkeypatch: pytest.MonkeyPatch,
    gib: float,
    flags: tuple[str, ...],
    share: float,
    tokens: int,
) -> None:
    monkeypatch.delenv("TRAINER_PRECISION")
    gpus.install(monkeypatch, house / "driver", ["8.0"], gib=gib)
    (house / "models" / "m" / "config.json").write_text(json.dumps(QWEN3_4B))
    made = plan(*flags)
    server, trainer = values(made, "inference"), values(made, "trainer")
    assert (server["sleep"], server["gpu_memory"]) == (True, share)
    assert (trainer["sleep_inference"], trainer["micro_batch_tokens"]) == (True, tokens)
    line = default_lines(UpSettings(model="models/m"), made)[-1]
    assert line.startswith("GPU 0 serves and trains in turns: inference.") and "inference.sleep=true" in line
    assert "trainer.sleep_inference=true" in line
    assert ("gpu_memory" in line, "micro_batch_tokens" in line) == (
        not any("gpu_memory" in flag for flag in flags), not any("micro_batch" in flag for flag in flags)
    )  # fmt: skip


def test_on_one_gpu_a_presets_measured_batch_is_computed(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` would measure beside the server."""
    gpus.install(monkeypatch, house / "driver", ["8.0"])
    (house / "models" / "m" / "config.json").write_text('{"model_type": "gpt2"}')
    flags = ("--preset", "rookworld-full", "--model", "models/m", "--source", "generated")
    trainer = values(plan(*flags), "trainer")
    assert (trainer["sleep_inference"], trainer["micro_batch_tokens"]) == (True, 8192)
    with pytest.raises(SetupError, match="micro_batch_tokens=auto measures"):
        plan(*flags, "--set", "trainer.micro_batch_tokens=auto")


def test_a_gpu_that_is_too_small_for_both_sides_is_refused_before_anything_starts(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.install(monkeypatch, house / "driver", ["8.0"], gib=16)
    (house / "models" / "m" / "config.json").write_text(json.dumps(QWEN3_4B))
    with pytest.raises(SetupError, match=r"one GPU of 16 GiB .* trainer.base_bits=4, trainer.offload=true"):
        plan()
    taking_turns = ("--set", "trainer.sleep_inference=false", "--set", "inference.sleep=false")
    with pytest.raises(SetupError, match="one GPU of 16 GiB"):
        plan(*taking_turns)


@pytest.mark.parametrize(
    ("template", "asked", "episode"),
    [
        (HERMES_TEMPLATE, "0.5*move+0.5*tools,turns=3", "0.5*move+0.5*tools,turns=3,calls=template"),
        ("{{ messages }}", "tools", "tools,calls=tags"),
        (HERMES_TEMPLATE, "tools,calls=tags", ""),
        (HERMES_TEMPLATE, "move", ""),
        ("{{ cycler().next() }}", "tools", "tools,calls=tags"),
    ],
)
def test_tools_are_called_as_the_models_template_has_it(
    house: Path, template: str, asked: str, episode: str
) -> None:
    pytest.importorskip("jinja2")
    (house / "models" / "m" / "config.json").write_text("{}")
    (house / "models" / "m" / "chat_template.jinja").write_text(template)
    flags = ("--style", "fen", "--set", f"feed.episode={asked}")
    made = plan(*flags)
    assert values(made, "feed")["episode"] == (episode or asked)
    lines = " ".join(default_lines(UpSettings.parse([*flags, "--model", "models/m"], prog="up"), made))
    assert (f"episodes {episode} (--set feed.episode): " in lines) == bool(episode)
    if episode:
        assert re.search(r"episode = .*# the model\n", made.settings["feed"].annotated_toml)


def test_a_run_that_goes_on_keeps_its_way_to_call_tools(house: Path) -> None:
    pytest.importorskip("jinja2")
    (house / "models" / "m" / "config.json").write_text("{}")
    (house / "models" / "m" / "chat_template.jinja").write_text(HERMES_TEMPLATE)
    made = plan("--style", "fen", "--set", "feed.episode=tools")
    made.write_settings()
    file = made.settings_file("feed")
    # The template that the model has now does not count. Runs before `calls=` had tags.
    (house / "models" / "m" / "chat_template.jinja").write_text("{{ messages }}")
    assert values(plan("--style", "fen", "--set", "feed.episode=tools"), "feed")["episode"] == (
        "tools,calls=template"
    )
    (house / "models" / "m" / "chat_template.jinja").write_text(HERMES_TEMPLATE)
    file.write_text(file.read_text().replace(",calls=template", ""))
    assert values(plan("--style", "fen", "--set", "feed.episode=tools"), "feed")["episode"] == (
        "tools,calls=tags"
    )


def test_prompts_without_a_chat_template_have_calls_in_tags(house: Path) -> None:
    (house / "models" / "m" / "config.json").write_text("{}")
    (house / "models" / "m" / "chat_template.jinja").write_text(HERMES_TEMPLATE)
    lines = ("--style", "game-san")
    assert values(plan(*lines, "--set", "feed.episode=tools"), "feed")["episode"] == "tools"
    with pytest.raises(SetupError, match="prompts of style game-san have no chat template: calls=tags"):
        plan(*lines, "--set", "feed.episode=tools,calls=template")


def test_a_preset_for_the_cpu_uses_the_gpu_where_vllm_can_only_use_that(
    house: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = ("--preset", "tiny-cpu", "--model", ROOK_TINY)
    gpus.install(monkeypatch, house / "driver", ["7.5"])
    made = plan(*preset)
    assert [values(made, name)["device"] for name in ("inference", "trainer")] == ["0", "cpu"]
    lines = default_lines(UpSettings.parse(list(preset), prog="up"), made)
    assert any("the server uses GPU 0, and not the CPU as in preset tiny-cpu" in line for line in lines)
    assert values(made, "inference")["sleep"] is False
    gpus.install(monkeypatch, house / "driver-2", ["7.5"], build="cpu")
    made = plan(*preset)
    assert [values(made, name)["device"] for name in ("inference", "trainer")] == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("flags", "device"),
    [((), "1"), (("--trainer-device", "cpu"), "cpu"), (("--set", "reward-model.device=0"), "0")],
)
def test_a_reward_model_is_not_beside_the_server(
    house: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], device: str
) -> None:
    gpus.install(monkeypatch, house / "driver", ["8.0", "8.0"])
    (house / "models" / "m" / "reward_model.json").touch()
    made = plan("--reward-model", "models/m", "--set", "reward.scheme=model", *flags)
    assert values(made, "reward-model")["device"] == device

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis
from rich.console import Console

from launcher import plan as plan_module
from launcher import services
from launcher.exporter import ExporterSettings
from launcher.plan import HOST, Plan, make_plan
from launcher.session import Session
from launcher.settings import UpSettings
from launcher.view import ViewSettings, view
from rookery.errors import SetupError
from rookery.processes.child import Command
from rookery.processes.ports import Ports, is_listening
from services.trainer.settings import RewardServerSettings
from tests.conftest import ROOT, RedisServer, free_port
from tests.hub import write_snapshot


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and games, no GPU, and no variables of ours."""
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "config.json").touch()
    (tmp_path / "games.pgn").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plan_module, "count_gpus", lambda: 0)
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


def flags(plan: Plan, service: str) -> dict[str, str]:
    argv = plan.commands[service].argv[3:]
    return dict(zip(argv[::2], argv[1::2], strict=True))


def test_everyone_agrees(house: Path) -> None:
    made = plan(
        "--group-size", "4", "--batch-groups", "16", "--staleness", "1", "--steps", "9", "--seed", "5",
        "--from-version", "0",
    )  # fmt: skip
    members = {name: flags(made, name) for name in ("feed", "inference", "trainer", "rollouts")}
    assert {m["--run"] for m in members.values()} == {"r"}
    assert {m["--redis-url"] for m in members.values()} == {made.redis_url}
    rollouts, trainer = members["rollouts"], members["trainer"]
    assert (rollouts["--group-size"], rollouts["--batch-groups"], rollouts["--staleness"]) == ("4", "16", "1")
    assert (trainer["--batch-groups"], trainer["--max-steps"]) == ("16", "9")
    assert trainer["--from-version"] == "0"
    assert rollouts["--inference-urls"] == trainer["--inference-urls"] == made.url("inference")
    assert rollouts["--reward-target"] == f"dns:///127.0.0.1:{flags(made, 'reward')['--grpc-port']}"
    assert members["inference"]["--adapter-root"] == str(Path(trainer["--run-dir"]) / "adapters")
    assert trainer["--model"] == members["inference"]["--model"] == str(house / "models" / "m")


def test_a_model_at_a_url_is_copied_once_for_all(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(house / "cache"))
    made = plan("--model", f"file://{house}/models/m")
    copy = Path(flags(made, "trainer")["--model"])
    assert copy.is_relative_to(house / "cache")
    assert (copy.name, flags(made, "inference")["--model"]) == ("m", str(copy))
    with pytest.raises(SetupError, match="there is no folder at 'file:///nowhere/m'"):
        plan("--model", "file:///nowhere/m")


def test_rookworld_is_asked_and_shown_alike(house: Path) -> None:
    made = plan("--task", "rookworld")
    assert (flags(made, "feed")["--task"], flags(made, "rollouts")["--style"]) == ("rookworld", "rookworld")
    feed = flags(plan("--source", "generated", "--max-positions", "256"), "feed")
    assert (feed["--sources"], feed["--max-positions"]) == ("generated", "256")
    plain = plan()
    assert (flags(plain, "feed")["--sources"], flags(plain, "feed")["--max-positions"]) == (
        str(house / "games.pgn"), "0",
    )  # fmt: skip
    assert (flags(plain, "feed")["--task"], flags(plain, "rollouts")["--style"]) == ("move", "mover-squares")


def test_a_reward_model_is_served_before_the_reward_service(house: Path) -> None:
    assert "reward-model" not in plan().commands
    assert "--model-url" not in flags(plan(), "reward")
    with pytest.raises(SetupError, match=r"'models/m' is not a reward model: it has no reward_model.json"):
        plan("--reward-model", "models/m")
    with pytest.raises(SetupError, match=r"scheme 'delta\+0.5\*model' needs .* with --reward-model"):
        plan("--set", "reward.scheme=delta+0.5*model")
    with pytest.raises(SetupError, match="scheme 'model' needs a reward model"):
        plan("--preset", "pychess-ppo", "--model", "models/m")
    plan("--preset", "pychess-ppo", "--model", "models/m", "--set", "reward.scheme=delta")
    (house / "models" / "m" / "reward_model.json").write_text("{}")
    made = plan("--reward-model", "models/m", "--set", "reward.scheme=model", "--set", "reward-model.rows=4")
    assert [command.name for command in made.stages[0]] == ["redis", "reward-model"]
    argv = made.commands["reward-model"].argv
    assert argv[1:4] == ("-m", "services.trainer", "serve-reward-model")
    served = dict(zip(argv[4::2], argv[5::2], strict=True))
    assert (served["--model"], served["--rows"]) == (str(house / "models" / "m"), "4")
    assert flags(made, "reward")["--model-url"] == made.url("reward-model")
    assert made.probe_urls["reward-model"] == f"{made.url('reward-model')}/readyz"


def test_a_gpt2_is_served_whole(house: Path) -> None:
    assert "--full-weights" not in plan().commands["inference"].argv
    (house / "models" / "m" / "config.json").write_text('{"model_type": "gpt2"}')
    assert "--full-weights" in plan().commands["inference"].argv


def test_the_server_accepts_the_trainers_versions(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--max-lora-rank" not in flags(plan(), "inference")
    made = flags(plan("--set", "trainer.lora_rank=24"), "inference")
    assert made["--max-lora-rank"] == "32"
    given = plan("--set", "trainer.lora_rank=24", "--set", "inference.max_lora_rank=64")
    assert flags(given, "inference")["--max-lora-rank"] == "64"
    for rank, highest in (("24", "16"), ("16", "8"), ("300", "256")):
        with pytest.raises(SetupError, match=f"have rank {rank}, and the server accepts {highest} at most"):
            plan("--set", f"trainer.lora_rank={rank}", "--set", f"inference.max_lora_rank={highest}")
    with pytest.raises(SetupError, match="have rank 16, and the server accepts 8 at most"):
        plan("--set", "inference.max_lora_rank=8")
    with pytest.raises(SetupError, match="have rank 300, and the server accepts 256 at most"):
        plan("--set", "trainer.lora_rank=300")
    monkeypatch.setenv("TRAINER_LORA_RANK", "64")
    assert (
        flags(plan("--preset", "rook-small", "--model", "models/m"), "inference")["--max-lora-rank"] == "64"
    )


@pytest.mark.parametrize("service", ["inference", "arena"])
def test_thinking_is_switched_off_for_the_server_and_in_evaluations(house: Path, service: str) -> None:
    evaluated = ("--evaluate-every", "5")
    assert not {"--thinking", "--no-thinking"} & set(plan(*evaluated).commands[service].argv)
    assert "--no-thinking" in plan(*evaluated, "--no-thinking").commands[service].argv


def test_redis_comes_first_and_rollouts_last(house: Path) -> None:
    names = [[command.name for command in stage] for stage in plan().stages]
    assert names == [["redis"], ["feed", "archive", "reward", "inference", "trainer"], ["rollouts", "viewer"]]


def test_versions_are_evaluated_on_request(house: Path) -> None:
    assert "arena" not in plan().commands
    assert "--leases" not in flags(plan(), "inference")
    made = plan("--evaluate-every", "25", "--max-tokens", "9", "--set", "arena.pairs=3")
    assert "arena" in [command.name for command in made.stages[1]], "before the first step"
    assert flags(made, "inference")["--leases"] == "1"
    argv = made.commands["arena"].argv
    assert argv[1:4] == ("-m", "services.arena", "watch")
    told = dict(zip(argv[4::2], argv[5::2], strict=True))
    rollouts = flags(made, "rollouts")
    for name in ("--run", "--redis-url", "--reward-target", "--style", "--max-tokens", "--seed"):
        assert told[name] == rollouts[name]
    assert told["--inference-url"] == made.url("inference")
    assert told["--run-dir"] == flags(made, "trainer")["--run-dir"]
    assert (told["--every"], told["--pairs"], told["--count"]) == ("25", "3", "200")


def test_it_is_said_why_versions_cannot_be_evaluated(house: Path) -> None:
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* a run of --task move, and .* rookworld"):
        plan("--evaluate-every", "5", "--task", "rookworld")
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* held out, and .* --source generated"):
        plan("--evaluate-every", "5", "--source", "generated")
    (house / "models" / "m" / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(SetupError, match=r"--evaluate-every 5: .* the GPT-2 'models/m' has one at a time"):
        plan("--evaluate-every", "5")


def test_the_viewer_is_served_unless_asked_not_to(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "viewer" not in plan("--no-view").commands
    assert flags(plan(), "viewer")["--runs-dir"] == str(house / "runs")
    monkeypatch.setattr("launcher.plan.find_spec", lambda name: None)
    assert "viewer" not in plan().commands
    with pytest.raises(SetupError, match=r"--view: .* pip install 'rookery\[viewer\]'"):
        plan("--view")


def test_an_archive_in_a_store_is_viewed_beside_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Command] = []

    def interrupted(command: Command) -> None:
        started.append(command)
        raise KeyboardInterrupt

    monkeypatch.setattr("launcher.view.running", interrupted)
    for place in ("run=x", "x"):
        view(ViewSettings(run=f"s3://b/{place}", runs_dir=str(tmp_path)), Console())
    placed = [" ".join(command.argv[7:]) for command in started]
    assert placed == [f"--runs-dir {tmp_path} --archive s3://b", "--runs-dir s3://b"]


def test_an_archive_that_is_not_wanted_is_not_made(house: Path) -> None:
    assert "archive" not in plan("--no-archive").commands
    assert flags(plan(), "archive")["--out"] == str(plan().run_dir / "archive")


@pytest.mark.redis
def test_a_given_redis_is_used(house: Path, redis_url: str) -> None:
    made = plan("--redis-url", redis_url)
    assert "redis" not in made.commands
    assert flags(made, "feed")["--redis-url"] == redis_url


def test_no_password_is_in_a_command_line(house: Path, redis_server: RedisServer) -> None:
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.config_set("requirepass", "sesame")
    url = redis_server.url.replace("//", "//:sesame@")
    made = plan("--redis-url", url, "--set", "reward.redis_url=redis://h/1?password=sesame")
    assert not [part for command in made.commands.values() for part in command.argv if "sesame" in part]
    members = ("feed", "archive", "inference", "trainer", "rollouts")
    assert {made.commands[name].env[f"{name.upper()}_REDIS_URL"] for name in members} == {url}
    assert made.commands["reward"].env == {"REWARD_REDIS_URL": "redis://h/1?password=sesame"}
    assert "sesame" not in repr(made.commands)
    argv = [*made.commands["trainer"].argv, "--dry-run"]
    told = {**os.environ, **made.commands["trainer"].env}
    done = subprocess.run(argv, env=told, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f'redis_url = "{url.replace("sesame", "***")}"' in done.stdout


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
    ports = [port for service in services.PORTS.values() for port in service.values()]
    assert services.PORTS["reward-model"]["port"] == RewardServerSettings.model_fields["port"].default
    ports.append(ExporterSettings.model_fields["port"].default)
    assert len({*ports}) == len(ports)


def test_no_port_is_given_out_twice(house: Path) -> None:
    made = plan()
    ports = [port for service in made.ports.values() for port in service.values()]
    assert len(set(ports)) == len(ports)


def test_a_taken_default_is_avoided(house: Path, busy_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(services.PORTS, "reward", {"port": busy_port, "grpc_port": free_port()})
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
    assert plan().ports["reward-model"]["port"] == port
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
    monkeypatch.setattr(plan_module, "count_gpus", lambda: 4)
    made = plan("--trainer-device", "1,2,3")
    assert (flags(made, "inference")["--device"], flags(made, "trainer")["--device"]) == ("0", "1,2,3")
    with pytest.raises(SetupError, match="no GPU 4: this machine has 4"):
        plan("--trainer-device", "3,4")


def test_games_may_be_at_a_url(house: Path) -> None:
    url = "https://database.lichess.org/standard/month.pgn.zst"
    assert flags(plan("--source", url), "feed")["--sources"] == url
    assert flags(plan(), "feed")["--sources"] == str(house / "games.pgn")


def test_overrides_reach_their_service(house: Path) -> None:
    made = plan("--set", "trainer.lr=5e-4", "--set", "trainer.normalise=false", "--set", "reward.k=0.002")
    assert made.commands["trainer"].argv[-3:] == ("--lr", "5e-4", "--no-normalise")
    assert made.commands["reward"].argv[-2:] == ("-k", "0.002")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--set", "trainer.batch_groups=4"], "trainer.batch_groups: the run decides"),
        (["--set", "trainr.lr=1"], "SERVICE.SETTING=VALUE for one of feed"),
        (["--set", "reward.port=eighty"], "'eighty' is not a port"),
        (["--set", "reward.port=70000"], "'70000' is not a port"),
        (["--model", "models/none"], "'models/none' is not a model directory"),
        (["--source", "none.pgn"], "no such file: 'none.pgn'"),
        (["--trainer-device", "3"], "no GPU 3: this machine has 0"),
        (["--trainer-device", "tpu"], "index of a GPU"),
        (["--trainer-device", "0,cpu"], "index of a GPU"),
        (["--inference-device", "cpu,cpu"], "index of a GPU"),
        (["--style", "runes"], "mover-squares"),
        (["--set", "trainer.sleep_inference=true"], "--set inference.sleep=true"),
        (["--set", "trainer.process_rewards=true"], "needs a scheme with candidates or truth, not 'delta'"),
    ],
)
def test_mistakes_are_told_before_anything_starts(house: Path, argv: list[str], said: str) -> None:
    with pytest.raises(SetupError, match=said):
        plan(*argv)


def test_a_hub_id_is_passed_on_as_what_the_cache_holds(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(house / "hub"))
    assert flags(plan("--model", "some/gpt2"), "trainer")["--model"] == "some/gpt2"
    snapshot = write_snapshot(house / "hub", "some/gpt2", {"model_type": "gpt2"})
    made = plan("--model", "some/gpt2")
    assert flags(made, "trainer")["--model"] == str(snapshot)
    assert {"--full-weights", str(snapshot)} <= set(made.commands["inference"].argv)


def test_a_run_does_not_begin_without_its_model(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(house / "hub"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # no network
    given = UpSettings.parse(["--model", "Qwen/Qwen3-4B", "--source", "games.pgn"], prog="rookery up")
    with pytest.raises(SetupError, match="hf download Qwen/Qwen3-4B"), Session(given, Console()):
        pass
    assert not (house / "runs").exists()


@pytest.mark.parametrize(("gpus", "places"), [(0, ("auto", "auto")), (1, ("0", "0")), (2, ("0", "1"))])
def test_the_second_gpu_trains(
    house: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, places: tuple[str, str]
) -> None:
    monkeypatch.setattr(plan_module, "count_gpus", lambda: gpus)
    made = plan()
    assert (flags(made, "inference")["--device"], flags(made, "trainer")["--device"]) == places

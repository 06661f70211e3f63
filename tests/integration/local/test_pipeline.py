"""`rookery pipeline` with real commands: what is run, skipped, continued, and how failures are named."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.pipeline.pipeline import Pipeline
from launcher.pipeline.state import digest_of
from rookery.command_line import main
from tests.commands import call
from tests.conftest import ROOT
from tests.waiting import until

PIPELINE = """
description = "Positions, then questions about them"

[settings]
games = "samples/lichess.pgn.zst"
count = 20

[[steps]]
name = "positions"
run = "data sample --source {games} --count {count} --out {positions}"
reads = ["{games}"]

[[steps]]
name = "questions"
run = "data tasks legal-moves --count 5 --positions {positions}/positions.parquet --out {questions}"
outputs = ["tasks.parquet"]
"""


class Runner:
    """A pipeline file in a folder of its own."""

    def __init__(self, folder: Path, text: str = PIPELINE) -> None:
        self.file, self.out = folder / "pipeline.toml", folder / "out"
        self.file.write_text(text)

    def words(self, action: str, *flags: str) -> list[str]:
        return ["pipeline", action, str(self.file), "--out", str(self.out), *flags]

    def start(self, **how: Any) -> "subprocess.Popen[str]":
        """A run in a process of its own."""
        command = [sys.executable, "-m", "launcher", *self.words("run")]
        return subprocess.Popen(command, cwd=ROOT, text=True, **how)

    def said(self, *flags: str, action: str = "run") -> tuple[int, str]:
        done = call(main, self.words(action, *flags))
        return done.returncode, done.stdout + done.stderr

    def __call__(self, *flags: str, action: str = "run", status: int = 0) -> str:
        ended, said = self.said(*flags, action=action)
        assert ended == status, said
        return said

    def records(self) -> dict[str, dict[str, object]]:
        return dict(json.loads((self.out / "pipeline.json").read_text())["steps"])


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    made = Runner(tmp_path_factory.mktemp("pipeline"))
    said = made()
    assert "1/2 positions: it has not been run" in said
    assert f"$ rookery data sample --source samples/lichess.pgn.zst --count 20 --out {made.out}" in said
    assert "2/2 questions: done after" in said
    return made


def test_what_is_up_to_date_is_not_run_again(runner: Runner) -> None:
    table = runner.out / "2-questions" / "tasks.parquet"
    before = table.stat().st_mtime_ns
    assert runner().splitlines() == ["1/2 positions: up to date", "2/2 questions: up to date"]
    assert table.stat().st_mtime_ns == before
    os.utime(table)
    assert "2/2 questions: up to date" in runner(), "the content decides, not the time"


def test_the_state_can_be_read(runner: Runner) -> None:
    record = runner.records()["questions"]
    assert record["status"] == "done"
    assert str(record["command"]).startswith("data tasks legal-moves --count 5 --positions")
    assert list(record["inputs"]) == [str(runner.out / "1-positions")]  # type: ignore[call-overload]
    assert "up to date" in runner(action="status")


def test_the_state_is_that_of_the_settings_last_run_with(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner("--set", "count=6")
    assert runner(action="status").count("up to date") == 2
    assert runner("--set", "count=20", action="status").count("its command has changed") == 1


def test_steps_that_depend_on_a_change_are_run_again(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner()
    said = runner("--set", "count=30")
    assert "1/2 positions: its command has changed" in said
    assert "2/2 questions: " in said
    assert "which it reads, has changed" in said
    assert (runner.out / "1-positions.previous" / "manifest.json").exists()
    (runner.out / "2-questions" / "tasks.parquet").write_bytes(b"damaged")
    said = runner("--set", "count=30")
    assert "1/2 positions: up to date" in said
    assert "tasks.parquet, which it wrote, has changed" in said
    said = runner("--set", "count=31", "--only", "2", "--force")
    assert "1/2" not in said
    assert "warning: step 'positions' wrote what it reads with other settings" in said
    assert "--count 30" in said


def test_an_interrupted_step_goes_on(tmp_path: Path) -> None:
    """The second step asks for more than can be done before the interrupt, and keeps what it has."""
    text = PIPELINE.replace("--count 5", "--count 20000").replace("count = 20\n", "count = 20000\n")
    runner = Runner(tmp_path, text)
    parts = runner.out / "2-questions" / "parts"
    with runner.start(stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        # Not the hidden file that is still being written: the interrupt deletes it.
        until(lambda: any(parts.glob("[!.]*")), of=process, within_s=240)
        assert "running" in runner(action="status")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "it was interrupted" in runner(action="status")
    assert "interrupted: the same command goes on from here" in said
    kept = {path.name for path in parts.iterdir()}
    assert runner.records()["questions"]["status"] == "running"
    assert kept
    said = runner()
    assert "1/2 positions: up to date" in said
    assert "2/2 questions: it was interrupted" in said
    assert not (runner.out / "2-questions.previous").exists()


def test_failures_name_the_step(tmp_path: Path) -> None:
    runner = Runner(tmp_path, PIPELINE.replace("legal-moves", "no-such-task"))
    assert "error: step 'questions' ended with status 2: rookery data tasks no-such-task" in runner(status=1)
    assert runner.records()["questions"]["status"] == "failed"
    assert "2 questions" in runner(action="status")
    silent = Runner(tmp_path, PIPELINE.replace('"tasks.parquet"', '"other.parquet"'))
    assert "did not write" in silent(status=1)
    said = Runner(tmp_path, PIPELINE.replace("samples/lichess", "samples/lychees"))(status=2)
    assert "step 'positions' reads 'samples/lychees.pgn.zst', which does not exist" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{count}", "{cuont}", "step 'positions': there is no setting or earlier step {cuont}"),
        (
            "{positions}/positions",
            "{questoins}/positions",
            "step 'questions': there is no setting or earlier step {questoins}",
        ),
        ('name = "questions"', 'name = "positions"', "a name is used twice"),
        ('name = "questions"', 'name = "Bad Name"', "steps.1.name"),
        ("outputs =", "output =", "steps.1.output"),
        ("[settings]", "[settings", "pipeline.toml"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in Runner(tmp_path, PIPELINE.replace(old, new))(status=2)


def test_flags_are_checked(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    assert "has no setting 'cuont' (--set): it has games, count" in runner("--set", "cuont=3", status=2)
    assert "'count' is not SETTING=VALUE (--set)" in runner("--set", "count", status=2)
    assert "has no step '3' (--only): it has 1 positions, 2 questions" in runner("--only", "3", status=2)


def test_steps_on_several_machines_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each machine has its own folder, and runs one step."""
    store = tmp_path / "store"
    machines = [tmp_path / name for name in ("first", "second", "third")]
    text = PIPELINE.replace("samples/lichess", str(ROOT / "samples" / "lichess"))

    def run(machine: Path, *flags: str) -> str:
        machine.mkdir(exist_ok=True)
        (machine / "pipeline.toml").write_text(text)
        monkeypatch.chdir(machine)
        done = call(main, ["pipeline", "run", "pipeline.toml", "--store", store, *flags])
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "1/2 positions: done" in run(machines[0], "--only", "positions")
    assert "2/2 questions: done" in run(machines[1], "--only", "questions")
    assert run(machines[2]).splitlines() == ["1/2 positions: up to date", "2/2 questions: up to date"]
    tables = [machine / "runs/pipelines/pipeline/2-questions/tasks.parquet" for machine in machines[1:]]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    assert "1/2 positions: its command has changed" in run(machines[0], "--set", "count=21", "--only", "1")
    assert "1-positions, which it reads, has changed" in run(machines[2], "--set", "count=21", "--only", "2")

    older = shutil.copytree(store, tmp_path / "older")  # as after a step whose copying failed
    run(machines[0], "--set", "count=22", "--only", "1")
    shutil.rmtree(store)
    older.rename(store)
    assert "1/2 positions: up to date" in run(machines[0], "--set", "count=22", "--only", "1")
    assert "1/2 positions: up to date" in run(machines[1], "--set", "count=22", "--only", "1")


@pytest.mark.stockfish
def test_mlflow_has_the_steps_and_their_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from rookery.mlflow_run import connect

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    text = """
    [[steps]]
    name = "examples"
    run = "data moves --count 40 --out {examples}"
    [[steps]]
    name = "sft"
    run = "sft --model models/rook-tiny --data {examples}/moves.jsonl --steps 2 --batch-size 2 --out {sft}"
    outputs = ["model"]
    [[steps]]
    name = "match"
    run = "evaluate random first-legal --sections matches --pairs 1 --nodes 100 --out {match}"
    outputs = ["report.json"]
    """
    runner = Runner(tmp_path, text)
    runner("--mlflow")
    client = connect(runner.out)
    (experiment,) = [found for found in client.search_experiments() if found.name == "rookery"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    parents = {name: run.data.tags.get("mlflow.parentRunId") for name, run in runs.items()}
    ids = {name: run.info.run_id for name, run in runs.items()}
    assert parents == {
        "pipeline pipeline": None,
        "1 examples": ids["pipeline pipeline"],
        "2 sft": ids["pipeline pipeline"],
        "2-sft": ids["2 sft"],
        "3 match": ids["pipeline pipeline"],
    }
    (registered,) = client.search_model_versions("name = 'pipeline-2-sft'")
    assert (registered.run_id, registered.source) == (ids["2-sft"], f"runs:/{ids['2-sft']}/model")
    evaluated = {name for name in runs["3 match"].data.metrics if name.startswith("matches/")}
    assert {name.rpartition("/")[2] for name in evaluated} >= {"random", "first-legal"}
    assert runs["2 sft"].data.params["command"].startswith("sft --model models/rook-tiny")
    assert (
        runs["2 sft"].data.tags["output model"]
        == runner.records()["sft"]["outputs"][  # type: ignore[index]
            str(runner.out / "2-sft" / "model")
        ]["sha256"]
    )
    assert "loss" in runs["2-sft"].data.metrics
    assert {run.info.status for run in runs.values()} == {"FINISHED"}


def test_two_runners_do_not_share_a_folder(tmp_path: Path) -> None:
    """The lock outlives a runner that is killed until its command has ended."""
    runner = Runner(tmp_path, PIPELINE.replace("count = 20\n", "count = 20000\n"))
    with runner.start(stdout=subprocess.DEVNULL) as process:
        until((runner.out / "pipeline.json").exists)
        assert f"'{runner.out}' is in use by another `rookery pipeline`" in runner(status=2)
        process.kill()
    until(lambda: "in use by another" not in runner.said()[1], within_s=240)
    assert "up to date" in runner(action="status")


def test_what_is_missing_is_said_before_anything_is_run(tmp_path: Path) -> None:
    text = PIPELINE + 'reads = ["samples/none.pgn"]\n'
    runner = Runner(tmp_path, text)
    assert "error: step 'questions' reads 'samples/none.pgn', which does not exist" in runner(status=2)
    assert not (runner.out / "pipeline.json").exists()
    runner = Runner(tmp_path)
    said = runner("--only", "questions", status=2)
    assert "step 'questions' reads what step 'positions' writes: run that first" in said
    runner()
    said = runner("--set", "games=samples/none.pgn", status=2)
    assert "1/2 positions: up to date" in runner(), "nothing was put aside"
    (runner.out / "pipeline.json").write_text('{"steps": []}')
    assert "pipeline.json: steps: Input should be" in runner(status=2)


def test_a_step_folder_can_be_a_link(tmp_path: Path) -> None:
    """For example to a larger disk. What was there is kept."""
    runner = Runner(tmp_path)
    runner("--only", "1")
    folder, elsewhere = runner.out / "1-positions", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert runner("--only", "1") == "1/2 positions: up to date\n"
    for count in ("21", "22"):
        runner("--only", "1", "--set", f"count={count}")
    assert (elsewhere / "positions.parquet").exists()
    (runner.out / "pipeline.json").unlink()
    (runner.out / "pipeline.json").mkdir()
    assert "error: [Errno 21] Is a directory" in runner(status=1)


def test_a_step_is_run_again_if_what_it_serves_has_changed(tmp_path: Path) -> None:
    runner = Runner(tmp_path, PIPELINE + 'serve = "model:models/none-{count}"\n')
    assert "  # while serving model:models/none-20" in runner(status=2)
    assert "its command has changed" in runner("--set", "count=21", "--only", "1", "--only", "2", status=2)


def test_files_that_change_places_are_noticed(tmp_path: Path) -> None:
    """Sizes and times are the same then."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    before = digest_of(tmp_path)
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    (tmp_path / "c").rename(tmp_path / "b")
    os.utime(tmp_path / "a", ns=(1, 1))
    os.utime(tmp_path / "b", ns=(1, 1))
    assert digest_of(tmp_path, known=before).sha256 != before.sha256


@pytest.mark.parametrize("value", ["a,b=c", '{"a": [1, 2]}', "[1]", '"', "C:\\new", "ü, {count}", ""])
def test_values_are_taken_as_they_are(tmp_path: Path, value: str) -> None:
    machine = json.loads(Runner(tmp_path)("--set", f"games={value}", action="export"))
    job = machine["States"]["1 positions"]["Parameters"]["ContainerOverrides"]
    assert job["Command"][-2:] == ["--set", f"games={value}"]


def test_names_are_valid_for_aws(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.file = runner.file.rename(tmp_path / "my (tiny) schönes pipeline.toml")
    states = json.loads(runner(action="export"))["States"]
    jobs = [
        state["Parameters"]["JobName"] for state in states.values() if "batch" in state.get("Resource", "")
    ]
    assert jobs == ["my-tiny-sch-nes-pipeline-positions", "my-tiny-sch-nes-pipeline-questions"]
    assert states["Notify success"]["Parameters"]["Subject"] == "my (tiny) sch?nes pipeline: done"


def test_a_store_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """In a process of its own: s3fs keeps the address that it was first used with."""
    pytest.importorskip("s3fs")
    place = {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}
    command = [sys.executable, "-m", "launcher", *Runner(tmp_path).words("run", "--store", "s3://none/x")]
    environment = os.environ | {f"AWS_{name}": value for name, value in place.items()}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "error: cannot reach 's3://none/x' now: Could not connect" in done.stderr


@pytest.mark.parametrize("file", sorted((ROOT / "pipelines").glob("*.toml")), ids=lambda path: path.stem)
def test_models_are_compared_at_the_token_limit_of_the_run(file: Path) -> None:
    """A run has its own; a model without one would be cut at that of the arena."""
    *_, rl, evaluation = Pipeline.read(file, settings={}, out=None).steps
    limit = rl.argv[rl.argv.index("--max-tokens") + 1]
    players = [word for word in evaluation.argv if word.startswith("model:")]
    assert players
    assert all(f"max-tokens={limit}" in player.split(",") for player in players)

"""Trackers: the real ones on files, and one that is away."""

import contextlib
import importlib.util
import json
import logging
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher import evaluate
from rookery.errors import SetupError
from rookery.mlflow_run import ID_FILE
from services.trainer.records import tracking
from services.trainer.records.tracking import track
from tests.conftest import TRAINERS
from tests.waiting import until


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "mlruns"


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The texts of the warnings and errors logged; libraries log more if another test lowered a level."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def client_of(store: Path):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=store.as_uri())


def train(folder: Path, rows: list[dict], params: dict | None = None) -> None:
    kept = folder / "metrics.jsonl"
    with track(folder, to={"mlflow"}, params=params or {"lr": 0.1}) as tracker:
        kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for row in rows:
            tracker.log(row)


def test_a_run_and_its_resumption_are_one_run(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "quick-rook"
    train(folder, [{"step": 1, "time": 5.0, "reward": -0.5, "regret": None, "note": "x"}])
    train(folder, [{"step": 2, "time": 6.0, "reward": -0.25}], params={"lr": 0.2, "seed": 1})
    run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
    client = client_of(store)
    history = client.get_metric_history(run_id, "reward")
    assert [(m.step, m.value, m.timestamp) for m in history] == [(1, -0.5, 5000), (2, -0.25, 6000)]
    run = client.get_run(run_id)
    assert run.data.params == {"lr": "0.1", "seed": "1"}
    assert "MLflow keeps the first values of lr ('0.1', now '0.2')" in caplog.text
    assert set(run.data.metrics) == {"reward"}
    assert (run.info.run_name, run.info.status) == ("quick-rook", "FINISHED")
    assert [file.path for file in client.list_artifacts(run_id)] == ["curves.png", "metrics.jsonl"]
    assert len(client.search_runs([run.info.experiment_id])) == 1


def make_anew(store: Path, run_id: str) -> None:
    from mlflow.store.tracking.file_store import FileStore

    shutil.rmtree(store)
    FileStore(str(store))


GONE: dict[str, Callable[[Path, str], object]] = {
    "deleted": lambda store, run_id: client_of(store).delete_run(run_id),
    "a new store": make_anew,
}


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_run_that_mlflow_has_lost_begins_anew(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture, gone: str, meanwhile: bool
) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"

    def run_id() -> str:
        return str(json.loads((folder / ID_FILE).read_text())["run_id"])

    def steps() -> list[int]:
        return [metric.step for metric in client_of(store).get_metric_history(run_id(), "reward")]

    with track(folder, to={"mlflow"}, params={"lr": 0.1}) as tracker:
        tracker.log({"step": 1, "reward": -0.5})
        until(lambda: (folder / ID_FILE).exists() and steps() == [1])
        first = run_id()
        if meanwhile:
            GONE[gone](store, first)
            tracker.log({"step": 2, "reward": -0.4})
    if not meanwhile:
        GONE[gone](store, first)
        train(folder, [{"step": 2, "reward": -0.4}])
    assert run_id() != first
    assert steps() == [2]
    run = client_of(store).get_run(run_id())
    assert (run.info.status, run.data.params) == ("FINISHED", {"lr": "0.1"})
    assert f"MLflow has no run {first} any more" in caplog.text


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_run_goes_on_in_an_experiment_that_was_deleted(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture, meanwhile: bool
) -> None:
    folder, client = tmp_path / "run", client_of(store)

    def steps() -> list[int]:
        run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
        return [metric.step for metric in client.get_metric_history(run_id, "reward")]

    def delete_experiment() -> None:
        client.delete_experiment(client.get_experiment_by_name("rookery").experiment_id)

    with track(folder, to={"mlflow"}, params={"lr": 0.1}) as tracker:
        tracker.log({"step": 1, "reward": -0.5})
        until(lambda: (folder / ID_FILE).exists() and steps() == [1])
        if meanwhile:
            delete_experiment()
            tracker.log({"step": 2, "reward": -0.4})
    if not meanwhile:
        delete_experiment()
        train(folder, [{"step": 2, "reward": -0.4}])
    assert steps() == [1, 2]
    assert _warnings(caplog) == [
        "MLflow's experiment 'rookery' was deleted: restored, because runs go on in it"
    ]


def test_what_mlflow_refuses_is_left_out_alone(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    train(folder, [{"step": step, "regret": 0.5, "mate(1)": 1.0, "reward": 0.1} for step in (1, 2)])
    run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
    client = client_of(store)
    for name in ("regret", "reward"):
        assert [metric.step for metric in client.get_metric_history(run_id, name)] == [1, 2]
    said = [record.getMessage() for record in caplog.records if record.name == tracking.__name__]
    assert len(said) == 1
    assert said[0].startswith("MLflow refuses mate(1) of step 1: Invalid")


def test_a_kl_recorded_under_its_alias_is_no_conflict(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    for kl in ("forward", "policy_reference"):
        train(folder, [], params={"kl": kl, "lr": 0.1})
    run = client_of(store).get_run(json.loads((folder / ID_FILE).read_text())["run_id"])
    assert run.data.params == {"kl": "forward", "lr": "0.1"}
    assert not _warnings(caplog)


def test_a_password_stays_here(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    train(folder, [], params={"redis_url": "redis://:secret@redis:6379/0"})
    run = client_of(store).get_run(json.loads((folder / ID_FILE).read_text())["run_id"])
    assert run.data.params == {"redis_url": "redis://:***@redis:6379/0"}


@pytest.mark.parametrize(
    ("end", "status"), [(ArithmeticError("loss is nan"), "FAILED"), (SystemExit(143), "KILLED")]
)
def test_how_a_run_ends_is_told(tmp_path: Path, store: Path, end: BaseException, status: str) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    with pytest.raises(type(end)), track(folder, to={"mlflow"}, params={}):
        raise end
    run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
    assert client_of(store).get_run(run_id).info.status == status


def test_a_file_that_cannot_be_kept_leaves_no_run_running(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    folder = tmp_path / "run"
    with track(folder, to={"mlflow"}, params={}):
        (folder / "metrics.jsonl").write_text("damaged\n")
    run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
    assert client_of(store).get_run(run_id).info.status == "FINISHED"
    assert "could not send the run's files to MLflow" in caplog.text


def test_mlflow_away_is_said_and_stops_nothing(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with caplog.at_level(logging.WARNING):
        train(tmp_path / "run", [{"step": 1, "reward": 0.0}])
    said = [record.getMessage() for record in caplog.records if record.name == tracking.__name__]
    assert said[0].startswith("MLflow does not answer, training continues")
    assert said[-1].startswith("MLflow did not get 1 of the steps")


def test_figures_wait_for_mlflow_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setattr(tracking, "_RETRY_S", 0.01)
    real, failures = tracking.connect, iter([True, True])

    def connect(folder: Path):
        if next(failures, False):
            raise ConnectionError("not yet")
        return real(folder)

    monkeypatch.setattr(tracking, "connect", connect)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = tmp_path / "run"
    with track(folder, to={"mlflow"}, params={}) as tracker:
        for step in range(3):
            tracker.log({"step": step, "reward": 1.0})
        until((folder / ID_FILE).exists)
    run_id = json.loads((folder / ID_FILE).read_text())["run_id"]
    assert len(client_of(tmp_path / "mlruns").get_metric_history(run_id, "reward")) == 3


def test_tensorboard_gets_every_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "quick-rook"
    for step in (1, 2):  # the second time the run goes on
        with track(folder, to={"tensorboard"}, params={"lr": 0.1, "url": "redis://:secret@h:1"}) as tracker:
            tracker.log({"step": step, "time": 5.0, "reward": -0.5 / step, "note": "x", "kl": float("nan")})
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(1, -0.5), (2, -0.25)]
    assert events.Tags()["scalars"] == ["reward"]
    texts = [path.read_text() for path in folder.rglob("hparams.yml")]
    assert texts and not any("secret" in text for text in texts)


def _report_in(folder: Path) -> Path:
    """A folder with the report of an evaluation."""
    cells = {"a": {"mean": 0.5, "ci95": [0.4, 0.6]}, "b": {"mean": None}}
    report = {"sections": {"positions": {"metrics": {"legal_rate": cells}, "n": 3}}}
    (folder / "battery").mkdir()
    (folder / "battery" / "report.json").write_text(json.dumps(report))
    return folder / "battery"


def test_an_evaluation_sends_its_means(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("mlflow")
    out = _report_in(tmp_path)
    evaluate._record(evaluate.EvaluateSettings(players=("a",), report_to="mlflow", out=out))
    client = client_of(store)
    (run,) = client.search_runs([client.get_experiment_by_name("rookery").experiment_id])
    assert run.data.metrics == {"positions/metrics/legal_rate/a": 0.5}
    assert (run.info.run_name, run.data.params["report_to"]) == ("battery", "mlflow")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B and trackio write here, and ask nobody."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(TRAINERS)])
    # trackio reads TRACKIO_DIR when it is imported, and another test's TRL may have imported it.
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "TRACKIO_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    for name, value in (("MODE", "offline"), ("SILENT", "true"), ("ERROR_REPORTING", "false")):
        monkeypatch.setenv(f"WANDB_{name}", value)


@pytest.mark.trainers
@pytest.mark.usefixtures("offline")
def test_trackio_gets_trainings_and_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "quick-rook"
    for step in (1, 2):
        with track(folder, to={"trackio"}, params={"lr": 0.1, "url": "redis://:secret@h:1"}) as tracker:
            tracker.log({"step": step, "reward": -0.5 / step})
    monkeypatch.setenv("TRACKIO_PROJECT", "exams")
    out = _report_in(tmp_path)
    evaluate._record(evaluate.EvaluateSettings(players=("a",), report_to="trackio", out=out))
    rows, settings = _logged(tmp_path / "trackio_dir" / "rookery.db")
    assert rows == [("quick-rook", 1, {"reward": -0.5}), ("quick-rook", 2, {"reward": -0.25})]
    assert len(settings) == 1  # the second time the run goes on
    assert "'lr': '0.1'" in str(settings) and "secret" not in str(settings)
    rows, settings = _logged(tmp_path / "trackio_dir" / "exams.db")
    assert [(run, metrics) for run, _, metrics in rows] == [
        ("battery", {"positions/metrics/legal_rate/a": 0.5})
    ]
    assert not _warnings(caplog)


def _logged(path: Path) -> tuple[list[tuple[str, int, dict]], list[dict]]:
    """The metrics and the settings in a database of trackio."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        settings = database.execute("SELECT config FROM configs").fetchall()
    return [(run, step, json.loads(metrics)) for run, step, metrics in rows], [
        json.loads(s) for (s,) in settings
    ]


@pytest.mark.trainers
@pytest.mark.usefixtures("offline")
def test_wandb_goes_on_in_one_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "quick-rook"
    for step in (1, 2):
        with track(folder, to={"wandb"}, params={"lr": 0.1}) as tracker:
            tracker.log({"step": step, "reward": -0.5})
    runs = sorted((folder / "wandb").glob("offline-run-*"))
    assert len({path.name.rpartition("-")[2] for path in runs}) == 1 <= len(runs)
    # Its process writes the file soon after the end of the run.
    until(lambda: all(b"reward" in _written(run) for run in runs))
    out = _report_in(tmp_path)
    evaluate._record(evaluate.EvaluateSettings(players=("a",), report_to="wandb", out=out))
    (run,) = out.glob("wandb/offline-run-*")
    until(lambda: b"positions/metrics/legal_rate/a" in _written(run))
    assert not _warnings(caplog)


def _written(run: Path) -> bytes:
    """The file of an offline run of W&B."""
    return b"".join(path.read_bytes() for path in run.glob("run-*.wandb"))


def test_a_tracker_that_fails_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("a file, where the events should go")
    with track(tmp_path, to={"tensorboard"}, params={}) as tracker:
        tracker.log({"step": 1, "reward": 1.0})
    assert "tensorboard gets no metrics from now on, the work continues" in caplog.text


def test_not_wanted_is_nothing(tmp_path: Path) -> None:
    with track(tmp_path / "run", to=frozenset(), params={}) as tracker:
        tracker.log({"step": 1})
    assert not (tmp_path / "run").exists()


def test_without_mlflow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(SetupError, match=r"pip install 'rookery\[mlflow\]'"),
        track(tmp_path, to={"mlflow"}, params={}),
    ):
        pass

"""Tracks runs in MLflow: parameters, metrics of every step, the version of the code, and artifacts.

A thread sends them, so that training never waits for MLflow. While MLflow does not answer, metrics wait in a
bounded queue. A resumed run continues the same MLflow run, whose id is in `mlflow.json` of its folder, or
begins a new one if MLflow has lost it.
"""

import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from rookery.config.objective import KL_ALIASES
from rookery.files import replace_file
from rookery.masking import mask_setting
from rookery.mlflow_run import (
    ID_FILE,
    LONGEST_VALUE,
    MODEL_VARIABLE,
    connect,
    experiment_id,
    is_active,
    log_metrics,
    refuses,
    source_tags,
)
from rookery.plots import CURVES_FILE
from rookery.plots.panels import choose
from rookery.plots.picture import Curve, draw
from rookery.plots.steps import METRICS_FILE, keys_of, read_metrics
from rookery.trackers import Trackers, check_trackers
from services.trainer.distributed.process_group import is_rank_zero
from services.trainer.versions import commits
from services.trainer.versions.files import read_object

logger = logging.getLogger(__name__)

_QUEUE_SIZE = 4096
"""The most steps that wait for MLflow. When the queue is full, new steps are dropped and counted."""
_RETRY_S = 15.0
_CLOSE_S = 30.0
_FIGURES = (METRICS_FILE, CURVES_FILE, "report.json", "calibration.png")
_FOR_RESUMING = {commits.OPTIMIZER, commits.STATE, commits.SUMS}

Artifact: TypeAlias = tuple[Path, str | None]
"""A file, and the artifact folder for it."""


class Tracker:
    """A tracker that records nothing, for runs without --mlflow."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Records the metrics of one step. Returns at once."""


class MlflowTracker(Tracker):
    """Sends steps to one MLflow run from a thread."""

    def __init__(self, connect: Callable[[], Any], folder: Path, params: Mapping[str, Any]) -> None:
        self._connect = connect
        self._folder = folder
        self._params = params
        self._rows: queue.Queue[Mapping[str, Any]] = queue.Queue(maxsize=_QUEUE_SIZE)
        self._closing = threading.Event()
        self._client: Any = None  # an `mlflow.MlflowClient` once MLflow has answered
        self._run_id = ""
        self._refused: set[str] = set()
        self._unreachable = False
        self._received = self._sent = 0
        self._thread = threading.Thread(target=self._run, name="mlflow", daemon=True)
        self._thread.start()

    def log(self, row: Mapping[str, Any]) -> None:
        self._received += 1
        with suppress(queue.Full):
            self._rows.put_nowait(row)

    def close(self, *, status: str) -> None:
        """Sends the remaining steps and the artifacts, and registers the model of a finished run. Gives up if
        the steps take more than half a minute."""
        self._closing.set()
        self._thread.join(timeout=_CLOSE_S)
        unsent = self._received - self._sent
        if unsent:
            logger.warning("MLflow did not get %d of the steps of %s", unsent, self._folder)
        if self._thread.is_alive() or self._client is None:
            return
        with _logged_errors("send the run's files to MLflow"):
            sent = run_artifacts(self._folder)
            for path, place in sent:
                self._client.log_artifact(self._run_id, str(path), place)
            if status == "FINISHED":
                self._register({place for _, place in sent})
        with _logged_errors("mark the run as ended in MLflow"):
            self._client.set_terminated(self._run_id, status)

    def _register(self, places: Set[str | None]) -> None:
        """Makes the whole model, or else the adapter, a version in MLflow's model registry."""
        from mlflow.exceptions import MlflowException

        artifact = next((place for place in ("model", "adapter") if place in places), None)
        if artifact is None:
            return
        name = "-".join(filter(None, (os.environ.get(MODEL_VARIABLE), self._folder.name)))
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        self._client.create_model_version(name, f"runs:/{self._run_id}/{artifact}", run_id=self._run_id)

    def _run(self) -> None:
        row: Mapping[str, Any] | None = None
        while True:
            if row is None:
                with suppress(queue.Empty):
                    row = self._rows.get(timeout=0.1)
            if row is None and self._closing.is_set() and self._client is not None:
                return
            try:
                self._client = self._client or self._start_run()
                if row is not None:
                    self._send(row)
                    row = None
                    self._sent += 1
                self._unreachable = False
            except Exception as error:
                if not self._unreachable:
                    what = "refuses the run" if refuses(error) else "does not answer"
                    logger.warning("MLflow %s, training continues: %s", what, error)
                self._unreachable = True
                if self._closing.is_set():
                    return
                self._closing.wait(_RETRY_S)

    def _send(self, row: Mapping[str, Any]) -> None:
        metrics = _metrics(row)
        refused = log_metrics(self._client, self._run_id, metrics)
        if refused and not is_active(self._client, self._run_id):
            self._client = self._start_run()
            refused = log_metrics(self._client, self._run_id, metrics)
        for name in refused.keys() - self._refused:
            logger.warning("MLflow refuses %s of step %s: %s", name, row["step"], refused[name])
        self._refused |= refused.keys()

    def _start_run(self) -> Any:
        client = self._connect()
        experiment = experiment_id(client)  # restored with the earlier run, if both were deleted
        self._run_id = self._earlier_run(client) or self._new_run(client, experiment)
        from mlflow.entities import Param, RunTag

        tags = [RunTag(key, value) for key, value in source_tags().items()]
        client.log_batch(self._run_id, tags=tags)
        params = {key: str(mask_setting(value))[:LONGEST_VALUE] for key, value in self._params.items()}
        recorded = client.get_run(self._run_id).data.params
        new_params = [Param(key, value) for key, value in params.items() if key not in recorded]
        with _logged_errors("send parameters to MLflow"):
            client.log_batch(self._run_id, params=new_params)
        changed = [
            f"{key} ({recorded[key]!r:.60}, now {value!r:.60})"
            for key, value in params.items()
            if value != recorded.get(key, value) and (key, KL_ALIASES.get(recorded[key])) != ("kl", value)
        ]
        if changed:
            logger.warning("MLflow keeps the first values of %s", ", ".join(changed))
        return client

    def _earlier_run(self, client: Any) -> str | None:
        path = self._folder / ID_FILE
        if not path.exists():
            return None
        run_id = str(read_object(path, "run_id")["run_id"])
        if not is_active(client, run_id):
            logger.warning(
                "MLflow has no run %s any more (%s): a new one gets the steps from now on", run_id, path
            )
            return None
        client.update_run(run_id, status="RUNNING")
        return run_id

    def _new_run(self, client: Any, experiment: str) -> str:
        run = client.create_run(experiment, run_name=self._folder.name)
        run_id = str(run.info.run_id)
        replace_file(self._folder / ID_FILE, (json.dumps({"run_id": run_id}) + "\n").encode())
        return run_id


def run_artifacts(folder: Path) -> list[Artifact]:
    """Draws the curves of metrics.jsonl. Returns the run's files to send; of its versions only the newest."""
    metrics = folder / METRICS_FILE
    if metrics.exists() and (steps := read_metrics(metrics)):
        (folder / CURVES_FILE).write_bytes(draw([Curve("", (steps,))], choose(keys_of(steps))))
    figures = [folder / name for name in _FIGURES]
    artifacts: list[Artifact] = [
        (path, None) for path in (*figures, *sorted(folder.glob("*.toml"))) if path.exists()
    ]
    newest = list(commits.folders(folder / "adapters").values())[-1:]
    for model in (*newest, folder / "model"):
        place = "adapter" if (model / "adapter_model.safetensors").exists() else "model"
        artifacts += [(path, place) for path in sorted(model.glob("*")) if path.name not in _FOR_RESUMING]
    return artifacts


@contextmanager
def track(folder: Path, *, to: Set[str], params: Mapping[str, Any]) -> Iterator[Tracker]:
    """Yields the tracker of a run folder, which records in the trackers `to`. The folder's `run_artifacts` go
    to MLflow at the end. Of several processes, only rank 0 records. Raises `SetupError` if a tracker is not
    installed."""
    if not to or not is_rank_zero():
        yield Tracker()
        return
    check_trackers(to)
    folder.mkdir(parents=True, exist_ok=True)
    mlflow = MlflowTracker(lambda: connect(folder), folder, params) if "mlflow" in to else None
    others = Trackers(to - {"mlflow"}, folder, params)
    status = "FAILED"
    try:
        yield _Every(mlflow or Tracker(), others)
        status = "FINISHED"
    except (KeyboardInterrupt, SystemExit):
        status = "KILLED"
        raise
    finally:
        others.close()
        if mlflow:
            mlflow.close(status=status)


class _Every(Tracker):
    """MLflow and the other trackers."""

    def __init__(self, mlflow: Tracker, others: Trackers) -> None:
        self._mlflow, self._others = mlflow, others

    def log(self, row: Mapping[str, Any]) -> None:
        self._mlflow.log(row)
        self._others.log(dict(_numbers(row)), step=int(row["step"]))


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The metrics of a row: its numbers, but for the step, the time and NaN."""
    for name, value in row.items():
        if isinstance(value, int | float) and name not in ("step", "time") and value == value:
            yield name, float(value)


def _metrics(row: Mapping[str, Any]) -> list[Any]:
    from mlflow.entities import Metric

    step, now_ms = int(row["step"]), int(1000 * row.get("time", time.time()))
    return [Metric(name, value, now_ms, step) for name, value in _numbers(row)]


@contextmanager
def _logged_errors(purpose: str) -> Iterator[None]:
    """Logs MLflow's errors and never raises them: they must not stop training."""
    try:
        yield
    except Exception as error:
        logger.warning("could not %s: %s", purpose, error)

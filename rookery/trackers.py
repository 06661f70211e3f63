"""Trackers of metrics by accelerate: Weights & Biases, trackio, TensorBoard, and MLflow for evaluations.

accelerate and the packages of the trackers are imported only where they are used. A tracker that fails is
warned about once, and never stops what it records.
"""

import importlib.util
import logging
import os
import re
import secrets
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rookery.errors import SetupError
from rookery.files import replace_file
from rookery.masking import mask_setting
from rookery.mlflow_run import EXPERIMENT, LONGEST_VALUE, connect

logger = logging.getLogger(__name__)

_ID_FILE = "tracker_id"
"""It is in the folder of what is recorded, which therefore goes on in the same run."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")


def check_trackers(names: Collection[str]) -> None:
    """Raises `SetupError` if a tracker is not installed."""
    for name in sorted(names):
        needs = (name,) if name == "mlflow" else ("accelerate", name)
        if missing := [package for package in needs if importlib.util.find_spec(package) is None]:
            extra = "mlflow" if name == "mlflow" else "trackers"
            packages = " and ".join(missing)
            raise SetupError(f"report_to={name} needs {packages}: pip install 'rookery[{extra}]'")


class Trackers:
    """The trackers of a folder: of a run, a training or an evaluation."""

    def __init__(self, names: Collection[str], folder: Path, params: Mapping[str, Any]) -> None:
        self._open: dict[str, Any] = {}
        values = {key: str(mask_setting(value))[:LONGEST_VALUE] for key, value in params.items()}
        for name in sorted(names):
            try:
                self._open[name] = _start(name, folder)
                self._open[name].store_init_configuration(values)
            except Exception as error:
                self._drop(name, error)

    def log(self, metrics: Mapping[str, float], *, step: int | None = None) -> None:
        """Records metrics."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.log(dict(metrics), step=step)
            except Exception as error:
                self._drop(name, error)

    def close(self) -> None:
        """Ends the runs."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.finish()
            except Exception as error:
                self._drop(name, error)

    def _drop(self, name: str, error: Exception) -> None:
        self._open.pop(name, None)
        logger.warning("%s gets no metrics from now on, the work continues: %s", name, error)


def _start(name: str, folder: Path) -> Any:
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS

    PartialState(cpu=True)  # which accelerate's loggers need
    project = os.environ.get(f"{name.upper()}_PROJECT", EXPERIMENT)
    if name == "tensorboard":
        tracker = LOGGER_TYPE_TO_CLASS[name]("tensorboard", logging_dir=str(folder))
    elif name == "mlflow":
        from mlflow import set_tracking_uri

        set_tracking_uri(connect(folder).tracking_uri)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        tracker = LOGGER_TYPE_TO_CLASS[name](experiment, run_name=folder.name)
    else:
        options = {"name": folder.name, "resume": "allow"}
        if name == "wandb":
            options |= {"id": _id_of(folder), "dir": str(folder)}
        tracker = LOGGER_TYPE_TO_CLASS[name](project, **options)
    tracker.main_process_only = False  # the caller decides which process records
    tracker.start()
    return tracker


def _id_of(folder: Path) -> str:
    path = folder / _ID_FILE
    if not path.exists():
        replace_file(path, secrets.token_hex(8).encode())
    return path.read_text()


def means(node: Any, *path: str) -> Iterator[tuple[str, float]]:
    """The means in sections of a report.json of `rookery evaluate`, named SECTION/TABLE/METRIC/PLAYER."""
    if isinstance(node, dict) and isinstance(mean := node.get("mean"), int | float):
        yield _NOT_IN_NAMES.sub("_", "/".join(path)), mean
    elif isinstance(node, dict):
        for name, below in node.items():
            yield from means(below, *path, name)

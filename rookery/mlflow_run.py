"""The MLflow run that belongs to a run's folder. mlflow is imported only where it is used."""

import logging
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rookery

logger = logging.getLogger(__name__)

ID_FILE = "mlflow.json"
"""The trainer writes it to the run's folder; `run_id` is the id of the MLflow run."""
EXPERIMENT = "rookery"
"""The experiment of all runs, unless MLFLOW_EXPERIMENT_NAME names another."""
PARENT_VARIABLE = "ROOKERY_MLFLOW_PARENT"
"""The id of the MLflow run of which new runs are children: of a pipeline's step."""
LONGEST_VALUE = 500
"""MLflow's limit for the length of a parameter."""
MODEL_VARIABLE = "ROOKERY_MLFLOW_MODEL"
"""The beginning of the names under which models are registered: the pipeline that trains them."""
_ROOT = Path(rookery.__file__).parents[1]


def connect(folder: Path) -> Any:
    """An `MlflowClient` for MLFLOW_TRACKING_URI, or else for the folder `mlruns` beside the run's folder."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder.absolute().parent / "mlruns").as_uri()
    # Since MLflow 3.7 the file store is in maintenance and needs this flag; a database needs more packages.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def experiment_id(client: Any) -> str:
    """The id of the experiment of Rookery's runs, which is created if there is none, and restored with its
    runs if it was deleted: MLflow gives its name to no other."""
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    if experiment and experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
        logger.warning("MLflow's experiment %r was deleted: restored, because runs go on in it", name)
    return str(experiment.experiment_id if experiment else client.create_experiment(name))


def is_active(client: Any, run_id: str) -> bool:
    """Whether MLflow has this run and can add to it: False if it was deleted, or the store was made anew."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException as error:
        if not refuses(error):
            raise
        return False


def log_metrics(client: Any, run_id: str, metrics: Sequence[Any]) -> dict[str, str]:
    """Sends metrics. Returns the names of those that MLflow refuses, with the reason; it gets the others."""
    try:
        client.log_batch(run_id, metrics=metrics)
    except Exception as error:
        if not refuses(error):
            raise
        if len(metrics) == 1:
            return {metrics[0].key: str(error)}
        refusals = (log_metrics(client, run_id, [metric]) for metric in metrics)
        return {name: reason for refusal in refusals for name, reason in refusal.items()}
    return {}


def refuses(error: Exception) -> bool:
    """Whether MLflow has answered that what it was sent is wrong, so that a retry would fail alike."""
    from mlflow.exceptions import MlflowException

    return isinstance(error, MlflowException) and error.get_http_status_code() in (400, 404)


def source_tags(*, parent: str = "") -> Mapping[str, str]:
    """Returns tags for MLflow. Those that begin with `mlflow.` are names that MLflow itself uses. `parent` is
    the run below which MLflow shows this one; the default is that of `PARENT_VARIABLE`."""
    commit, parent = git_commit(), parent or os.environ.get(PARENT_VARIABLE, "")
    return {
        "rookery.version": rookery.__version__,
        **({"mlflow.source.git.commit": commit} if commit else {}),
        **({"mlflow.parentRunId": parent} if parent else {}),
    }


def git_commit() -> str:
    """Returns the commit, with `-dirty` if files have changed since; empty outside Rookery's repository."""
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()

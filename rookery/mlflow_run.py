"""The MLflow run that belongs to a run's folder. mlflow is imported only where it is used."""

import os
from pathlib import Path
from typing import Any

ID_FILE = "mlflow.json"
"""The trainer writes it to the run's folder; `run_id` is the id of the MLflow run."""


def connect(folder: Path) -> Any:
    """An `MlflowClient` for MLFLOW_TRACKING_URI, or else for the folder `mlruns` beside the run's folder."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder.absolute().parent / "mlruns").as_uri()
    # Since MLflow 3.7 the file store is in maintenance and needs this flag; a database needs more packages.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)

"""Records a pipeline in MLflow: a run for the pipeline, a child for each step that is run."""

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from launcher.pipeline.pipeline import Pipeline, PipelineStep
from launcher.pipeline.state import STATE_FILE, StepRecord
from rookery.masking import mask_setting
from rookery.mlflow_run import (
    LONGEST_VALUE,
    MODEL_VARIABLE,
    PARENT_VARIABLE,
    connect,
    experiment_id,
    source_tags,
)
from rookery.trackers import means

logger = logging.getLogger(__name__)


class PipelineRun:
    """The MLflow run of a pipeline; nothing is recorded unless `enabled`. If MLflow does not answer, a
    warning is logged and the pipeline goes on. Use it as a context manager."""

    def __init__(self, pipeline: Pipeline, *, enabled: bool) -> None:
        self._pipeline = pipeline
        self._enabled = enabled
        self._client: Any = None
        self._id = self._step_id = ""
        self._try(self._begin)
        self._enabled = bool(self._id)  # without the parent there are no children

    def begin(self, step: PipelineStep, command: str) -> dict[str, str]:
        """Records the start of a step. Returns what its command needs to nest its own runs below it."""
        self._try(lambda: self._begin_step(step, command))
        if not self._step_id:
            return {}
        switches = {f"{name}_MLFLOW": "true" for name in ("SFT", "DPO", "REWARD_MODEL", "TRAINER")}
        nested = {PARENT_VARIABLE: self._step_id, MODEL_VARIABLE: self._pipeline.name}
        return {**switches, **nested, "MLFLOW_TRACKING_URI": self._client.tracking_uri}

    def end(self, step: PipelineStep, record: StepRecord) -> None:
        """Records the end of the step, with the digests of its inputs and outputs, and what it evaluated."""
        self._try(lambda: self._end_step(step, record))
        self._step_id = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        status = "FINISHED" if kind is None else "KILLED" if kind is KeyboardInterrupt else "FAILED"
        self._try(lambda: self._client.set_terminated(self._id, status))

    def _begin(self) -> None:
        from mlflow.entities import Param

        self._client = connect(self._pipeline.out)
        run = self._client.create_run(
            experiment_id(self._client), run_name=f"pipeline {self._pipeline.name}", tags=dict(source_tags())
        )
        self._id = str(run.info.run_id)
        params = [Param(name, _parameter(value)) for name, value in self._pipeline.settings.items()]
        self._client.log_batch(self._id, params=params)

    def _begin_step(self, step: PipelineStep, command: str) -> None:
        run = self._client.create_run(
            experiment_id(self._client),
            run_name=f"{step.number} {step.name}",
            tags=dict(source_tags(parent=self._id)),
        )
        self._step_id = str(run.info.run_id)
        self._client.log_param(self._step_id, "command", _parameter(command))

    def _end_step(self, step: PipelineStep, record: StepRecord) -> None:
        for what, digests in (("input", record.inputs), ("output", record.outputs)):
            for path, digest in digests.items():
                self._client.set_tag(self._step_id, f"{what} {Path(path).name}", digest.sha256)
        self._client.log_metric(self._step_id, "seconds", record.seconds)
        if step.argv[0] == "evaluate" and record.status == "done":
            sections = json.loads((step.folder / "report.json").read_bytes())["sections"]
            for name, value in means(sections):
                self._client.log_metric(self._step_id, name, value)
        with suppress(FileNotFoundError):
            self._client.log_artifact(self._id, str(self._pipeline.out / STATE_FILE))
        status = {"done": "FINISHED", "failed": "FAILED", "running": "KILLED"}[record.status]
        self._client.set_terminated(self._step_id, status)

    def _try(self, action: Callable[[], None]) -> None:
        if not self._enabled:
            return
        try:
            action()
        except Exception as error:
            logger.warning("MLflow does not have all of the pipeline: %s", error)


def _parameter(value: str) -> str:
    """A value as MLflow may have it: without passwords, and no longer than its limit."""
    return " ".join(str(mask_setting(word)) for word in value.split(" "))[:LONGEST_VALUE]

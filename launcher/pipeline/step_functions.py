"""A pipeline as an AWS Step Functions state machine, whose steps are jobs of AWS Batch.

Each job runs one step of the pipeline file, with `--only`, and shares the outputs through S3, with `--store`
(as PIPELINE_STORE). The input of an execution has all that differs between accounts:

    {"store": "s3://bucket/prefix",
     "topic": "arn:aws:sns:...",
     "cpu": {"queue": "arn:...", "definition": "arn:..."},
     "gpu": {"queue": "arn:...", "definition": "arn:..."}}

Amazon States Language: https://states-language.net/spec.html. Batch jobs, their retries and permissions:
https://docs.aws.amazon.com/step-functions/latest/dg/connect-batch.html.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.pipeline.pipeline import Pipeline, PipelineStep

_FAILED = "Failed"
_NOT_IN_JOBS = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_JOB_NAME = 128
_LONGEST_SUBJECT = 100
_RETRY = [
    # Requests that AWS refuses for now. Then jobs that fail: they go on from what the store has.
    {
        "ErrorEquals": ["Batch.ServerException", "Batch.TooManyRequestsException"],
        "IntervalSeconds": 10,
        "BackoffRate": 2.0,
        "MaxAttempts": 5,
    },
    {"ErrorEquals": ["States.TaskFailed"], "IntervalSeconds": 60, "BackoffRate": 2.0, "MaxAttempts": 2},
]


def state_machine(
    pipeline: Pipeline, file: Path, settings: Sequence[str], *, timeout_h: int
) -> dict[str, Any]:
    """The definition in Amazon States Language. `file` is where the image has the pipeline file, `settings`
    are SETTING=VALUE assignments. A step may take `timeout_h` hours."""
    names = [f"{step.number} {step.name}" for step in pipeline.steps]
    states = {
        name: _job(step, file, settings, after, timeout_h=timeout_h)
        for name, step, after in zip(names, pipeline.steps, [*names[1:], "Notify success"], strict=True)
    }
    states["Notify success"] = _notice(f"{pipeline.name}: done", "$.store", End=True)
    states["Notify failure"] = _notice(f"{pipeline.name}: failed", "$.error.Cause", Next=_FAILED)
    states[_FAILED] = {
        "Type": "Fail",
        "Error": "StepFailed",
        "Cause": f"A step of {pipeline.name} failed; the execution's history and the job's log say why",
    }
    return {"Comment": pipeline.description or pipeline.name, "StartAt": names[0], "States": states}


def _job(
    step: PipelineStep, file: Path, settings: Sequence[str], after: str, *, timeout_h: int
) -> dict[str, Any]:
    where = "$.gpu" if step.gpus else "$.cpu"
    flags = [part for setting in settings for part in ("--set", setting)]
    overrides: dict[str, Any] = {
        "Command": ["rookery", "pipeline", "run", str(file), "--only", step.name, *flags],
        "Environment": [{"Name": "PIPELINE_STORE", "Value.$": "$.store"}],
    }
    if step.gpus:
        overrides["ResourceRequirements"] = [{"Type": "GPU", "Value": str(step.gpus)}]
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::batch:submitJob.sync",
        "Parameters": {
            "JobName": _job_name(f"{file.stem}-{step.name}"),
            "JobQueue.$": f"{where}.queue",
            "JobDefinition.$": f"{where}.definition",
            "ContainerOverrides": overrides,
        },
        "TimeoutSeconds": 3600 * timeout_h,
        "Retry": _RETRY,
        "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Notify failure"}],
        "ResultPath": None,
        "Next": after,
    }


def _job_name(text: str) -> str:
    """The text as AWS Batch accepts it: letters, digits, hyphens and underscores, a letter or digit first.

    >>> _job_name("my first (tiny) pipeline-sft")
    'my-first-tiny-pipeline-sft'
    """
    return _NOT_IN_JOBS.sub("-", text).lstrip("-_")[:_LONGEST_JOB_NAME]


def _notice(subject: str, message: str, **after: Any) -> dict[str, Any]:
    subject = subject.encode("ascii", "replace").decode()[-_LONGEST_SUBJECT:]  # all that SNS takes
    return {
        "Type": "Task",
        "Resource": "arn:aws:states:::sns:publish",
        "Parameters": {"TopicArn.$": "$.topic", "Subject": subject, "Message.$": message},
        "ResultPath": None,
        **after,
    }

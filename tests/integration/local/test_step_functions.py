"""Pipelines as state machines, executed by moto's interpreter of the Amazon States Language."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from launcher.pipeline.pipeline import Pipeline
from launcher.pipeline.step_functions import state_machine
from rookery.command_line import main
from tests.commands import call
from tests.conftest import ROOT

REGION = "us-east-1"
ROLE = {"Version": "2012-10-17", "Statement": []}
PIPELINES = sorted((ROOT / "pipelines").glob("*.toml"))


def exported(file: Path, *flags: str) -> dict[str, Any]:
    done = call(main, ["pipeline", "export", file.relative_to(ROOT), *flags])
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


class Aws:
    """Queues, job definitions, a topic with a queue that gets its messages, and a role."""

    def __init__(self) -> None:
        self.iam, self.batch = boto3.client("iam", REGION), boto3.client("batch", REGION)
        self.step_functions, self.sqs = boto3.client("stepfunctions", REGION), boto3.client("sqs", REGION)
        sns = boto3.client("sns", REGION)
        self.role = self.iam.create_role(RoleName="r", AssumeRolePolicyDocument=json.dumps(ROLE))["Role"][
            "Arn"
        ]
        self.topic = sns.create_topic(Name="pipelines")["TopicArn"]
        self.messages = self.sqs.create_queue(QueueName="messages")["QueueUrl"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.messages, AttributeNames=["QueueArn"])
        sns.subscribe(TopicArn=self.topic, Protocol="sqs", Endpoint=attributes["Attributes"]["QueueArn"])
        self.queues = {kind: self._queue(kind) for kind in ("cpu", "gpu")}

    def _queue(self, kind: str) -> dict[str, str]:
        environment = self.batch.create_compute_environment(
            computeEnvironmentName=kind, type="UNMANAGED", state="ENABLED", serviceRole=self.role
        )["computeEnvironmentArn"]
        queue = self.batch.create_job_queue(
            jobQueueName=f"rookery-{kind}", state="ENABLED", priority=1,
            computeEnvironmentOrder=[{"order": 1, "computeEnvironment": environment}],
        )["jobQueueArn"]  # fmt: skip
        definition = self.batch.register_job_definition(
            jobDefinitionName=f"rookery-{kind}", type="container",
            containerProperties={"image": "rookery", "vcpus": 2, "memory": 4096},
        )["jobDefinitionArn"]  # fmt: skip
        return {"queue": queue, "definition": definition}

    def execute(self, machine: dict[str, Any]) -> tuple[str, list[str]]:
        """The final status, and the messages of the topic."""
        arn = self.step_functions.create_state_machine(
            name="pipeline", definition=json.dumps(machine), roleArn=self.role
        )["stateMachineArn"]
        given = json.dumps({"store": "s3://bucket/pychess", "topic": self.topic, **self.queues})
        started = self.step_functions.start_execution(stateMachineArn=arn, input=given)
        execution = {"executionArn": started["executionArn"]}
        deadline = time.monotonic() + 120
        while (status := self.step_functions.describe_execution(**execution)["status"]) == "RUNNING":
            assert time.monotonic() < deadline, self.step_functions.get_execution_history(**execution)
            time.sleep(0.2)
        found = self.sqs.receive_message(QueueUrl=self.messages, MaxNumberOfMessages=10).get("Messages", [])
        return status, [json.loads(message["Body"])["Subject"] for message in found]

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs, in the order in which they were submitted."""
        ids = [
            job["jobId"]
            for kind in ("cpu", "gpu")
            for status in ("SUCCEEDED", "FAILED")
            for job in self.batch.list_jobs(jobQueue=f"rookery-{kind}", jobStatus=status)["jobSummaryList"]
        ]
        return sorted(self.batch.describe_jobs(jobs=ids)["jobs"], key=lambda job: job["createdAt"])


def _rename(value: Any, first: Callable[[str], str]) -> None:
    """Changes the first letter of all keys, in place."""
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            for key in list(part):
                _rename(part[key], first)
                part[first(key[0]) + key[1:]] = part.pop(key)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    from moto import mock_aws
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_batch

    service = state_task_service_batch.StateTaskServiceBatch
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    # Step Functions writes JobName where Batch says jobName. moto does not translate yet.
    monkeypatch.setattr(service, "_normalise_parameters", lambda _, value: _rename(value, str.lower))
    monkeypatch.setattr(
        service,
        "_normalise_response",
        lambda _, response, service_action_name=None: _rename(response, str.upper),
    )
    with mock_aws(config={"batch": {"use_docker": False}, "stepfunctions": {"execute_state_machine": True}}):
        yield Aws()


def _environment(job: dict[str, Any]) -> list[dict[str, str]]:
    return [{key.lower(): value for key, value in entry.items()} for entry in job["container"]["environment"]]


def test_every_step_is_a_job(aws: Aws) -> None:
    machine = exported(ROOT / "pipelines/pychess.toml", "--set", "model=it's {a} model")
    status, messages = aws.execute(machine)
    assert (status, messages) == ("SUCCEEDED", ["pychess: done"])
    jobs = aws.jobs()
    names = ["sft-data", "sft", "pairs", "reward-model", "rl", "evaluation"]
    assert [job["jobName"] for job in jobs] == [f"pychess-{name}" for name in names]
    assert [job["jobQueue"] for job in jobs] == [
        aws.queues["cpu" if name == "sft-data" else "gpu"]["queue"] for name in names
    ]
    for job, name in zip(jobs, names, strict=True):
        assert job["container"]["command"] == [
            "rookery", "pipeline", "run", "pipelines/pychess.toml", "--only", name,
            "--set", "model=it's {a} model",
        ]  # fmt: skip
        assert {"name": "PIPELINE_STORE", "value": "s3://bucket/pychess"} in _environment(job)


def test_a_job_that_fails_is_tried_again_then_reported(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_SIMPLE_BATCH_FAIL_AFTER", "0")
    machine = exported(ROOT / "pipelines/pychess.toml")
    for state in machine["States"].values():
        for retry in state.get("Retry", ()):
            retry["IntervalSeconds"] = 1
    status, messages = aws.execute(machine)
    assert (status, messages) == ("FAILED", ["pychess: failed"])
    assert [job["jobName"] for job in aws.jobs()] == 3 * ["pychess-sft-data"], "once, and two retries"


def test_a_job_that_cannot_be_submitted_is_reported(aws: Aws) -> None:
    machine = exported(ROOT / "pipelines/pychess.toml")
    for state in machine["States"].values():
        state.pop("Retry", None)
    aws.queues["cpu"]["definition"] = "arn:aws:batch:us-east-1:123456789012:job-definition/none:1"
    status, messages = aws.execute(machine)
    assert (status, messages, aws.jobs()) == ("FAILED", ["pychess: failed"], [])


@pytest.mark.parametrize("file", PIPELINES, ids=lambda path: path.stem)
def test_validators_accept_them(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """statelint, a package of Python, and asl-validator, one of npm, if it is installed."""
    statelint = pytest.importorskip("statelint.cli")
    made = state_machine(Pipeline.read(file, settings={}, out=None), file, (), timeout_h=1)
    machine, broken = tmp_path / "machine.json", tmp_path / "broken.json"
    machine.write_text(json.dumps(made))
    made["States"][made["StartAt"]]["Next"] = "nowhere"
    broken.write_text(json.dumps(made))
    assert statelint.main([str(machine)]) == 0, capsys.readouterr().out
    assert statelint.main([str(broken)]) == 1
    assert 'No state found named "nowhere"' in capsys.readouterr().out
    if shutil.which("asl-validator"):
        argv = ["asl-validator", "--json-path", str(machine)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

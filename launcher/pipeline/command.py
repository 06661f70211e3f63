"""`rookery pipeline`: runs the steps of a pipeline file one after the other, and skips those up to date."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Literal

from pydantic import PositiveInt
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.table import Column, Table

from launcher.pipeline.pipeline import REFERENCE, Pipeline, PipelineStep
from launcher.pipeline.state import Digest, PipelineState, PipelineStore, StepRecord, digest_of
from launcher.pipeline.step_functions import state_machine
from launcher.pipeline.tracking import PipelineRun
from launcher.serve_players import serve
from rookery import __version__
from rookery.command_line import INTERRUPTED
from rookery.errors import RookeryError, SetupError
from rookery.folder_lock import is_locked, locked
from rookery.processes.child import Watchdog
from rookery.remote import FolderPath, PathOrUrl
from rookery.settings import Assignments, Settings
from rookery.terminal import SafeConsole


def run_steps(
    pipeline: Pipeline,
    steps: Sequence[PipelineStep],
    console: Console,
    *,
    tracked: PipelineRun,
    force: bool = False,
    store: str = "",
) -> None:
    """Runs those of `steps` that are not up to date, in order. A step that was interrupted goes on. `store`
    is the URL of a copy of the pipeline's folder, for steps that run on several machines. Raises `SetupError`
    if a file that a step reads is missing; `RookeryError` if a step failed (the message has its command)."""
    written = {str(output): step for step in pipeline.steps for output in step.outputs}
    for step in steps:
        for path in step.reads:
            if path not in written and _is_missing(path):
                raise SetupError(f"step {step.name!r} reads {path!r}, which does not exist")
    state = PipelineState(pipeline.out)
    state.overrides = dict(pipeline.overrides)
    copies = PipelineStore(store, pipeline.out)
    state.adopt(copies.records)
    for step in steps:
        copies.fetch(step, state.records)
        reason = "--force" if force else state.reason(step)
        title = f"{step.number}/{len(pipeline.steps)} {step.name}"
        if not reason:
            console.print(f"{title}: up to date")
            if copies.records.get(step.name) != state.records[step.name]:
                copies.keep(*step.outputs)  # the store did not answer when the step ended, or was not named
            continue
        console.print(f"{title}: {reason}\n  $ rookery {step.command}")
        _start(step, state, written, console)
        try:
            record = _run(step, state, environment=tracked.begin(step, step.command))
        except BaseException:
            copies.keep(step.folder)  # the next attempt goes on from there
            raise
        finally:
            tracked.end(step, state.records[step.name])
        copies.keep(*step.outputs)
        console.print(f"{title}: {record.status} after {record.seconds:.0f} s")


def _is_missing(path: str) -> bool:
    """Whether a file or folder does not exist. A URL and an id of the Hugging Face Hub are not missing."""
    return "/" in path and "://" not in path and Path(path).parent.exists() and not Path(path).exists()


def _start(
    step: PipelineStep, state: PipelineState, written: Mapping[str, PipelineStep], console: Console
) -> None:
    """Records the start of a step. `written` has the step that writes a path."""
    for earlier in dict.fromkeys(written[path] for path in step.reads if path in written):
        record = state.records.get(earlier.name)
        if record is None or record.status != "done":
            raise SetupError(f"step {step.name!r} reads what step {earlier.name!r} writes: run that first")
        if record.command != earlier.command:
            console.print(f"  warning: step {earlier.name!r} wrote what it reads with other settings:")
            console.print(f"  $ rookery {record.command}")
    inputs = {path: digest_of(path) for path in step.reads}
    previous = state.records.get(step.name)
    if step.folder.exists() and (previous is None or not _continues(step, previous, inputs)):
        _put_aside(step.folder, console)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    state.keep(step, StepRecord(step.command, __version__, "running", started, inputs=inputs))


def _continues(step: PipelineStep, previous: StepRecord, inputs: Mapping[str, Digest]) -> bool:
    """Whether a step can go on where it stopped: same command, same inputs."""
    return (
        previous.status != "done"
        and previous.command == step.command
        and {path: digest.sha256 for path, digest in previous.inputs.items()}
        == {path: digest.sha256 for path, digest in inputs.items()}
    )


def _put_aside(folder: Path, console: Console) -> None:
    """Keeps what a step wrote with other settings, because its command would refuse to go on from there."""
    aside = folder.with_name(f"{folder.name}.previous")
    if aside.is_symlink():  # it went where the step's folder was linked to
        aside.unlink()
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    console.print(f"  what it wrote before is in {aside}")


def _run(step: PipelineStep, state: PipelineState, *, environment: Mapping[str, str]) -> StepRecord:
    record = state.records[step.name]
    begin = time.monotonic()
    status = _command(step, environment)
    outputs = {str(path): digest_of(path) for path in step.outputs}
    missing = [path for path, digest in outputs.items() if not digest.sha256]
    done = status == 0 and not missing
    record = replace(
        record,
        status="done" if done else "failed",
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - begin, 1),
        outputs=outputs if done else {},
    )
    state.keep(step, record)
    if status:
        raise RookeryError(f"step {step.name!r} ended with status {status}: rookery {record.command}")
    if missing:
        raise RookeryError(f"step {step.name!r} did not write {missing[0]!r}: rookery {record.command}")
    return record


def _command(step: PipelineStep, environment: Mapping[str, str]) -> int:
    """Runs the step's command in this terminal, and serves its model meanwhile. Raises `KeyboardInterrupt` if
    this process got SIGINT or SIGTERM, and has passed it on."""
    interrupts: list[int] = []
    served, watchdog = {}, Watchdog()
    with ExitStack() as exits:
        exits.callback(watchdog.close)
        specs = [step.serve] if step.serve else []
        for spec in exits.enter_context(serve(specs, logs=step.folder.parent / "logs" / step.name)):
            url, _, model = spec.partition(",")[0].partition("#")
            served = {"{url}": url, "{served}": model}
        argv = [REFERENCE.sub(lambda match: served.get(match[0], match[0]), word) for word in step.argv]
        # A process group of its own: Ctrl-C reaches the command once, and the watchdog can end all of it.
        command = [sys.executable, "-m", "launcher", *argv]
        # It inherits the lock: if this process is killed, no other starts before the command has ended.
        child = subprocess.Popen(command, env={**os.environ, **environment}, process_group=0, close_fds=False)
        watchdog.guard(child.pid)

        def pass_on(number: int, frame: FrameType | None) -> None:
            interrupts.append(number)
            child.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            exits.callback(signal.signal, number, signal.signal(number, pass_on))
        status = child.wait()
        watchdog.release(child.pid)
    if interrupts:
        raise KeyboardInterrupt
    return status


class PipelineSettings(Settings, env_prefix="PIPELINE_"):
    """Run the steps of a pipeline file that are not up to date, show their state, or export the file.

    Started again, a pipeline goes on where it was interrupted. `export` prints a state machine for AWS Step
    Functions; deploy/aws/README.md says what else AWS needs.
    """

    action: CliPositionalArg[Literal["run", "status", "export"]]
    """run, status or export."""
    file: CliPositionalArg[Path]
    """The pipeline file, such as pipelines/pychess.toml."""
    set: Assignments = ()
    """SETTING=VALUE, repeatable: a setting of the file. `status` takes those of the last run."""
    only: tuple[str, ...] = ()
    """Run this step only, by number or name. Repeatable."""
    force: bool = False
    """Run steps even if they are up to date."""
    out: FolderPath | None = None
    """Folder of the outputs. Default: runs/pipelines/NAME."""
    store: PathOrUrl = ""
    """URL of a copy of that folder, such as s3://bucket/prefix, for steps that run on several machines."""
    mlflow: bool = False
    """Record the pipeline in MLflow: a run, a child for each step, and the trainings below them."""
    timeout_h: PositiveInt = 72
    """export: hours that a step may take."""


def main(settings: PipelineSettings, console: Console | None = None) -> int:
    """Runs the command and returns its exit status."""
    console = console or SafeConsole(highlight=False, soft_wrap=True, markup=False)
    assignments = {}
    for text in settings.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise SetupError(f"{text!r} is not SETTING=VALUE (--set)")
        assignments[name] = value
    pipeline = Pipeline.read(settings.file, settings=assignments, out=settings.out)
    if settings.action == "status" and not assignments:
        recorded = PipelineState(pipeline.out).overrides
        assignments = {name: value for name, value in recorded.items() if name in pipeline.settings}
        pipeline = Pipeline.read(settings.file, settings=assignments, out=settings.out)
    steps = _chosen(pipeline, settings.only)
    if settings.action == "export":
        machine = state_machine(pipeline, settings.file, settings.set, timeout_h=settings.timeout_h)
        sys.stdout.write(json.dumps(machine, indent=2) + "\n")
        return 0
    if settings.action == "status":
        _show(pipeline, steps, console)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with (
            locked(pipeline.out, command="rookery pipeline"),
            PipelineRun(pipeline, enabled=settings.mlflow) as tracked,
        ):
            run_steps(pipeline, steps, console, tracked=tracked, force=settings.force, store=settings.store)
    except KeyboardInterrupt:
        console.print("interrupted: the same command goes on from here")
        return INTERRUPTED
    except OSError as error:  # for example a full disk, or a file that vanished while it was read
        raise RookeryError(str(error)) from error
    return 0


def _chosen(pipeline: Pipeline, only: Sequence[str]) -> list[PipelineStep]:
    names = {name for step in pipeline.steps for name in (step.name, str(step.number))}
    if unknown := [name for name in only if name not in names]:
        choices = ", ".join(f"{step.number} {step.name}" for step in pipeline.steps)
        raise SetupError(f"{pipeline.name} has no step {unknown[0]!r} (--only): it has {choices}")
    return [step for step in pipeline.steps if not only or {step.name, str(step.number)} & {*only}]


def _show(pipeline: Pipeline, steps: Sequence[PipelineStep], console: Console) -> None:
    state = PipelineState(pipeline.out)
    columns = ("step", "state", "seconds", Column("output", overflow="fold"))
    table = Table(*columns, title=pipeline.description or pipeline.name)
    is_running = is_locked(pipeline.out)
    for step in steps:
        record = state.records.get(step.name)
        status, seconds = state.reason(step) or "up to date", record.seconds if record else 0.0
        if is_running and record and record.status == "running":
            status, seconds = "running", time.time() - datetime.fromisoformat(record.started).timestamp()
        took = f"{seconds:.0f}" if seconds else ""
        table.add_row(f"{step.number} {step.name}", status, took, str(step.folder))
    console.print(table)

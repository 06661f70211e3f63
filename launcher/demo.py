"""`rookery demo`: a short run, followed by a comparison of the last policy with the first.

The arena compares both on the same held-out positions, with the run's inference and reward services. If the
arena cannot compare them, the report covers only the training: the first steps next to the last.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

from rich.console import Console

from launcher import dashboard
from launcher.observer import METRICS_FILE, WINDOW
from launcher.plan import Plan, is_gpt2
from launcher.runs import settle_settings
from launcher.session import End, Session
from launcher.settings import DemoSettings
from launcher.up import INTERRUPTED
from rookery.clients import InferenceClient
from rookery.errors import RookeryError, SetupError
from rookery.plots.steps import read_metrics
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion, policy_name

HELD_OUT_FILE = "heldout.jsonl"
REPORT_FILE = "report.json"
_WEIGHTS = "adapter_model.safetensors"
_RELOAD_TIMEOUT_S = 120.0


def demo(given: DemoSettings, console: Console) -> int:
    """Trains, evaluates and writes the report. Returns the exit status.

    Raises:
        SetupError: a service cannot start; the message says what to change.
        RookeryError: a service crashed too often, or the evaluation failed.
    """
    settings = settle_settings(given)
    with Session(settings, console) as session:
        reason = not_compared(settings)
        session.say(f"run {settings.run}: everything it writes is in {session.plan.run_dir}")
        if reason:
            session.say(f"The report will be of the training alone: {reason}.")
        held_out = None if reason else write_held_out(settings, session.plan.run_dir)
        end = session.train()
        if end is End.INTERRUPT:
            return INTERRUPTED
        session.say(f"{end} after {session.steps_done} steps; {'reporting' if reason else 'evaluating'}")
        session.stop("rollouts", "trainer", "feed")
        session.pause_display()
        if session.steps_done == 0:
            raise RookeryError(f"run {settings.run!r} has not finished a single step: give it more --minutes")
        if held_out is None:
            status = report_training(settings, session, reason, console)
        else:
            before, after = serve_both(session.plan, settings.run)
            status = evaluate(settings, session.plan, held_out, before=before, after=after)
        if session.interrupts:
            return INTERRUPTED
    if status:
        raise RookeryError(f"the {'report' if reason else 'evaluation'} ended with status {status}")
    return 0


def not_compared(settings: DemoSettings) -> str:
    """The reason why the arena cannot compare two policies of such a run, or "" if it can."""
    if settings.task != "move":
        return f"the arena asks for moves, and the task is {settings.task}"
    if is_gpt2(settings.model):
        return "the arena needs two versions at a time, and a GPT-2 is served in one version"
    return ""


def report_training(settings: DemoSettings, session: Session, reason: str, console: Console) -> int:
    """Writes report.json and learning_curve.png, and prints a summary of the training.

    "First" and "last" are means over at most `WINDOW` steps each, which do not overlap. Returns the exit
    status of the process that draws the curve.

    Raises:
        RookeryError: the metrics file is missing or cannot be read.
    """
    run_dir = session.plan.run_dir
    steps = read_metrics(run_dir / METRICS_FILE)
    window = max(1, min(WINDOW, len(steps) // 2))
    first, last = steps[:window], steps[-window:]
    snapshot = session.look()
    run = snapshot.overview
    report = {
        "run": settings.run,
        "model": settings.model,
        "task": settings.task,
        "not_compared": reason,
        "steps": len(steps),
        "window": window,
        "metrics": {
            key: {"first": fmean(row[key] for row in first), "last": fmean(row[key] for row in last)}
            for key in steps[-1]
            if all(key in row for row in (*first, *last))
        },
        "account": {**asdict(run), "astray": run.astray} if run else None,
    }
    (run_dir / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n")
    console.print(dashboard.side_by_side(dashboard.flow(snapshot), dashboard.learning(steps, window=window)))
    status = subprocess.run(
        [sys.executable, "-m", "services.arena", "curve", str(run_dir)], check=False
    ).returncode
    console.print(f"report: {run_dir / REPORT_FILE}", soft_wrap=True, highlight=False)
    return status


def write_held_out(settings: DemoSettings, run_dir: Path) -> Path:
    """Writes positions of the held-out games, which the feed never uses, and returns the file.

    Raises:
        SetupError: `services.data sample` failed; the message quotes it.
    """
    path = run_dir / HELD_OUT_FILE
    command = [sys.executable, "-m", "services.data", "sample", "--source", str(settings.source)]
    command += ["--split", "heldout", "--distinct", "--count", str(settings.eval_positions)]
    with path.open("w") as file:
        done = subprocess.run(
            [*command, "--seed", str(settings.seed)],
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            process_group=0,  # only the session handles Ctrl-C
        )
    if done.returncode:
        raise SetupError(f"no held-out positions: {done.stderr.strip()} (see --eval-positions, --source)")
    return path


def serve_both(plan: Plan, run: str) -> tuple[str, str]:
    """Makes the server serve the first and the last version at the same time. Returns their names.

    Raises:
        RookeryError: no version was published, or the server refuses one of them.
    """
    last = RunStreams(plan.redis_url, run).policy()
    if last is None:
        raise RookeryError(f"run {run!r} has no policy")
    first = Path(last.path).parent / policy_name(0)
    weights = hashlib.sha256((first / _WEIGHTS).read_bytes()).hexdigest()
    both = Adapter(PolicyVersion(0, weights), str(first), last.base_model), last
    asyncio.run(_reload(plan.url("inference"), both))
    return policy_name(0), last.version.name


async def _reload(url: str, adapters: Iterable[Adapter]) -> None:
    # A rollback removes the names of all later versions, so the first version must be loaded first.
    async with InferenceClient(url, timeout_s=_RELOAD_TIMEOUT_S) as inference:
        for adapter in adapters:
            await inference.reload(adapter, rollback=True)


def evaluate(settings: DemoSettings, plan: Plan, held_out: Path, *, before: str, after: str) -> int:
    """Runs the arena in this terminal and returns its exit status."""
    flags = {
        "inference-url": plan.url("inference"),
        "reward-target": plan.reward_target,
        "positions": held_out,
        "before": before,
        "after": after,
        "style": settings.style,
        "count": settings.eval_positions,
        "samples": settings.eval_samples,
        "max-tokens": settings.max_tokens,
        "seed": settings.seed,
        "out": plan.run_dir,
    }
    arguments = [part for key, value in flags.items() for part in (f"--{key}", str(value))]
    return subprocess.run(
        [sys.executable, "-m", "services.arena", "evaluate", *arguments], check=False
    ).returncode

"""`rookery up`: runs all services on this machine until --steps, --minutes or Ctrl-C."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

from rich.console import Console

from launcher.plan import HOST, make_plan
from launcher.runs import HELD_OUT_FILE, kept_origins, settle_settings, write_held_out
from launcher.session import End, Session
from launcher.settings import UpSettings
from rookery.errors import SetupError
from rookery.origins import last_origins
from rookery.processes.ports import Ports

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as in shells."""


def up(given: UpSettings, console: Console) -> int:
    """Runs training, displays its progress and stops all services. Returns the exit status.

    Raises:
        SetupError: a service cannot start; the message says what to change.
        RookeryError: a service crashed too often.
    """
    settings = settle_settings(given)
    with Session(settings, console) as session:
        session.say(f"run {settings.run}: logs and adapters in {session.plan.run_dir}; Ctrl-C stops it")
        if "viewer" in session.plan.commands:
            session.say(f"viewer: {session.plan.url('viewer')}/runs/{settings.run}")
        else:
            session.say(f"look at it with: rookery view {settings.flags_to_find_it}")
        if settings.from_version is not None:
            session.say(
                f"goes back to version {settings.from_version}, unless it has done so before: later versions "
                "are discarded, and their groups stay counted as trained"
            )
        if settings.evaluate_every:
            count, seed = settings.evaluate_positions, settings.seed
            path = session.plan.run_dir / HELD_OUT_FILE
            write_held_out(path, source=settings.source, count=count, seed=seed)
        end = session.train()
        session.say(f"{end}; stopping")
        if end is not End.INTERRUPT:
            session.stop("rollouts", "trainer", "feed")
            session.finish_evaluation()
        session.stop()
    console.print(
        f"{session.steps_done} steps. Go on with: rookery up --run {settings.flags_to_find_it}",
        soft_wrap=True,
        highlight=False,
    )
    return INTERRUPTED if end is End.INTERRUPT else 0


def print_services(given: UpSettings) -> None:
    """Prints the run's settings, then the output of `--dry-run` of feed, reward, rollouts and trainer.

    Raises:
        SetupError: a setting of the run or of a service is wrong.
    """
    now = last_origins()
    settings, kept = settle_settings(given), kept_origins(given)
    found = {"run": "a new name", "style": "the model's manifest"}
    found = {name: text for name, text in found.items() if getattr(settings, name) != getattr(given, name)}
    origins = {**found, **last_origins(), **kept, **now}
    if "set" in now and settings.set != given.set:
        origins["set"] = f"{now['set']}, {kept['set']}"
    settings.print_resolved(origins)
    for resolved in resolve_services(settings):
        sys.stdout.write("\n" + resolved)


def resolve_services(settings: UpSettings) -> Iterator[str]:
    """The output of `--dry-run` of feed, reward, rollouts and trainer.

    Raises:
        SetupError: a setting of the run or of a service is wrong.
    """
    with Ports(HOST) as ports:
        plan = make_plan(settings, ports)
    # `make_plan` creates a folder for Redis, which is not started here.
    for folder in (plan.run_dir / "redis", plan.run_dir, settings.runs_dir):
        with suppress(OSError):  # not empty, so it was there before
            folder.rmdir()
    for name in ("feed", "reward", "rollouts", "trainer"):
        command = plan.commands[name]
        done = subprocess.run(
            [*command.argv, "--dry-run"],
            env={**os.environ, **command.env},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SetupError(f"{name}: {done.stderr.strip().removeprefix('error: ')}")
        yield done.stdout

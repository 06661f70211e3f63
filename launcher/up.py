"""`rookery up`: runs all services on this machine until --steps, --minutes or Ctrl-C."""

import sys

from rich.console import Console

from launcher.plan import HOST, default_lines, make_plan
from launcher.runs import HELD_OUT_FILE, kept_origins, settle_settings, write_held_out
from launcher.session import End, Session
from launcher.settings import UpSettings
from rookery.command_line import INTERRUPTED
from rookery.origins import last_origins
from rookery.processes.ports import Ports
from rookery.terminal import SafeConsole


def up(requested: UpSettings, console: Console | None = None) -> int:
    """Runs training, displays its progress and stops all services. Returns the exit status. Raises
    `SetupError` if a service cannot start (the message says what to change); `RookeryError` if a service
    crashed too often."""
    console = console or SafeConsole()
    settings = settle_settings(requested)
    with Session(settings, console) as session:
        session.say(f"run {settings.run}: logs and adapters in {session.plan.run_dir}; Ctrl-C stops it")
        for line in default_lines(requested, session.plan):
            session.say(line)
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
    if end is End.STEPS:  # to go on is to do more
        settings = settings.model_copy(update={"steps": None})
    session.say(f"{session.steps_done} steps. Go on with: {settings.command_to_go_on}")
    return INTERRUPTED if end is End.INTERRUPT else 0


def print_services(requested: UpSettings) -> None:
    """Prints the run's settings, then those of each of its services. Raises `SetupError` if a setting of the
    run or of a service is wrong."""
    given_now = last_origins()
    settings, stored = settle_settings(requested), kept_origins(requested)
    changed = {"run": "a new name", **dict.fromkeys(("style", "max_tokens"), "the model")}
    changed = {k: text for k, text in changed.items() if getattr(settings, k) != getattr(requested, k)}
    origins = {**changed, **last_origins(), **stored, **given_now}
    if "set" in given_now and settings.set != requested.set:
        origins["set"] = f"{given_now['set']}, {stored['set']}"
    with Ports(HOST) as ports:
        plan = make_plan(settings, ports)
    settings.print_resolved(origins)
    for service in plan.settings.values():
        sys.stdout.write("\n" + service.annotated_toml)

"""`rookery up --dry-run`: prints the settings of the run, the rollouts and the trainer."""

import os
import subprocess
import sys
from contextlib import suppress

from launcher.plan import HOST, make_plan
from launcher.runs import kept_origins, settle_settings
from launcher.settings import UpSettings
from rookery.errors import SetupError
from rookery.origins import last_origins
from rookery.processes.ports import Ports

LEARNING = ("rollouts", "trainer")


def print_services(given: UpSettings) -> None:
    """Prints the run's settings, then the output of `--dry-run` of the rollouts and the trainer.

    Raises:
        SetupError: a setting of the run or of a service is wrong.
    """
    now = last_origins()
    settings, kept = settle_settings(given), kept_origins(given)
    origins = {**last_origins(), **kept, **now}
    if "set" in now and settings.set != given.set:
        origins["set"] = f"{now['set']}, {kept['set']}"
    settings.print_resolved(origins)
    with Ports(HOST) as ports:
        plan = make_plan(settings, ports)
    # `make_plan` creates a folder for Redis, which is not started here.
    for folder in (plan.run_dir / "redis", plan.run_dir, settings.runs_dir):
        with suppress(OSError):  # not empty, so it was there before
            folder.rmdir()
    for name in LEARNING:
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
        sys.stdout.write("\n" + done.stdout)

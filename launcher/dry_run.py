"""`rookery up --dry-run`: what the services that learn would be told, as they themselves resolve it."""

import subprocess
import sys
from contextlib import suppress

from launcher.plan import HOST, make_plan
from launcher.runs import settle_settings
from launcher.settings import UpSettings
from rookery.errors import SetupError
from rookery.processes.ports import Ports

LEARNING = ("rollouts", "trainer")


def print_services(given: UpSettings) -> None:
    """Starts nothing that stays: each service is asked for its settings alone.

    Raises:
        SetupError: a service refuses its settings.
    """
    settings = settle_settings(given)
    with Ports(HOST) as ports:
        plan = make_plan(settings, ports)
    # Redis must have its folder before it starts; here it never will.
    for folder in (plan.run_dir / "redis", plan.run_dir, settings.runs_dir):
        with suppress(OSError):  # not empty, so not ours
            folder.rmdir()
    for name in LEARNING:
        argv = [*plan.commands[name].argv, "--dry-run"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SetupError(f"{name}: {done.stderr.strip().removeprefix('error: ')}")
        sys.stdout.write("\n" + done.stdout)

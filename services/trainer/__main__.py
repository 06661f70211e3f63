"""`python -m services.trainer [COMMAND] ...`: the arguments are parsed before torch is imported.

Without a command it trains on the groups of a run, as `rookery serve trainer`.
"""

import os
import signal
import sys
from types import FrameType

from rookery import devices
from rookery.command_line import is_importing, main_of
from rookery.config.finetune import FinetuneSettings
from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.settings import Settings


def prepare(settings: Settings) -> None:
    """What a command of the trainer does before torch is imported."""
    if isinstance(settings, FinetuneSettings | TrainerSettings) and not isinstance(
        settings, AutobatchSettings
    ):
        _launch_processes(settings.device.split(","))
    if device := getattr(settings, "device", None):
        devices.restrict(device)
    # torch's threads wait for each other many times in a step. If they did so in a loop, they would take
    # the cores of a busy machine from those that they wait for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(settings, FinetuneSettings):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _exit_now)


def _launch_processes(names: list[str]) -> None:
    """Becomes the launcher of a process for each of several devices, unless a launcher started this one."""
    if len(names) == 1 or "WORLD_SIZE" in os.environ:
        return
    # Nothing is left to the user's configuration of accelerate, which may be for something else.
    launch = "--multi_gpu --gpu_ids all --num_machines 1 --main_process_port 0 --mixed_precision no"
    launch += " --dynamo_backend no"
    os.execv(  # noqa: S606 - no shell is meant
        sys.executable,
        [
            *(sys.executable, "-m", "accelerate.commands.launch", *launch.split()),
            *("--num_processes", str(len(names)), "-m", "services.trainer", *sys.argv[1:]),
        ],
    )


def _exit_now(number: int, frame: FrameType | None) -> None:
    """Exits at once: outside of training there is nothing to save. Imports of packages swallow exceptions."""
    if is_importing(frame):
        os._exit(128 + number)
    raise SystemExit(128 + number)


main = main_of("serve trainer", __name__)

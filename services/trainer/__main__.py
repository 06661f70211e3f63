"""`python -m services.trainer [COMMAND] ...`: parses the arguments before it imports torch.

Without a command it trains on the groups of a run.
"""

import asyncio
import importlib
import inspect
import os
import signal
import sys
from types import FrameType

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import Settings, fail

FINETUNE_COMMANDS = {
    "sft": ("rookery sft", "rookery.config.finetune.SftSettings", "finetune.sft"),
    "reward-model": (
        "rookery reward-model",
        "rookery.config.finetune.RewardModelSettings",
        "reward_model.training",
    ),
    "dpo": ("rookery dpo", "rookery.config.finetune.DpoSettings", "finetune.dpo"),
}
"""Commands that train on a file: the program, the settings, and the module whose `run` takes the settings."""

COMMANDS = FINETUNE_COMMANDS | {
    "serve-reward-model": (
        "rookery serve reward-model",
        "rookery.config.finetune.RewardServerSettings",
        "reward_model.server",
    ),
    "merge": ("rookery merge", "services.trainer.merge.MergeSettings", "merge"),
    "push": ("rookery push", "services.trainer.push.PushSettings", "push"),
    "autobatch": ("rookery autobatch", "rookery.config.trainer.AutobatchSettings", "autobatch"),
    "scaling": ("python -m services.trainer scaling", "services.trainer.scaling.ScalingSettings", "scaling"),
    "tiny": ("python -m services.trainer tiny", "services.trainer.tiny.TinySettings", "tiny"),
}

TRAIN = ("rookery serve trainer", "rookery.config.trainer.TrainerSettings", "process")


def main() -> int:
    argv = sys.argv[1:]
    name = argv.pop(0) if argv and not argv[0].startswith("-") else None
    try:
        if name is not None and name not in COMMANDS:
            raise SetupError(f"no command {name!r}: choose from {', '.join(COMMANDS)}, or none to train")
        prog, kind, module = COMMANDS[name] if name is not None else TRAIN
        place, _, class_name = kind.rpartition(".")
        settings_class: type[Settings] = getattr(importlib.import_module(place), class_name)
        settings = settings_class.parse(argv, prog=prog)
        if name is None or name in FINETUNE_COMMANDS:
            _launch_processes(settings.device.split(","))  # type: ignore[attr-defined]
        configure((name or "trainer").removeprefix("serve-"))
        # torch's threads wait for each other many times in a step. If they did so in a loop, they would take
        # the cores of a busy machine from those that they wait for.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if name in FINETUNE_COMMANDS:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _exit_now)
        running = importlib.import_module(f"services.trainer.{module}").run(settings)
        if inspect.iscoroutine(running):
            asyncio.run(running)
    except RookeryError as error:
        return fail(error)
    return 0


def _launch_processes(devices: list[str]) -> None:
    """Becomes the launcher of a process for each of several devices, unless a launcher started this one."""
    if len(devices) == 1 or "WORLD_SIZE" in os.environ:
        return
    # Nothing is left to the user's configuration of accelerate, which may be for something else.
    launch = "--multi_gpu --gpu_ids all --num_machines 1 --main_process_port 0 --mixed_precision no"
    launch += " --dynamo_backend no"
    os.execv(  # noqa: S606 - no shell is meant
        sys.executable,
        [
            *(sys.executable, "-m", "accelerate.commands.launch", *launch.split()),
            *("--num_processes", str(len(devices)), "-m", "services.trainer", *sys.argv[1:]),
        ],
    )


def _exit_now(number: int, frame: FrameType | None) -> None:
    """Exits at once: outside of training there is nothing to save. Imports of packages swallow exceptions."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(128 + number)
        frame = frame.f_back
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

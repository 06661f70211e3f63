"""`python -m services.trainer [COMMAND] ...`: parses the arguments before it imports torch.

Without a command it trains on the groups of a run.
"""

import asyncio
import importlib
import os
import signal
import sys
from types import FrameType
from typing import Any

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import Settings, fail

FITS = {
    "sft": ("SftSettings", "services.trainer.fitting.sft"),
    "reward-model": ("RewardModelSettings", "services.trainer.reward_model.training"),
    "dpo": ("DpoSettings", "services.trainer.fitting.dpo"),
}
"""Commands that train on a file: the settings class, and the module whose `run` takes the settings."""


def main() -> int:
    argv = sys.argv[1:]
    commands = {**dict.fromkeys(FITS, _fit), "serve-reward-model": _serve_reward_model}
    commands |= {"autobatch": _autobatch, "tiny": _tiny}
    try:
        if not argv or argv[0].startswith("-"):
            return _train(argv)
        if argv[0] not in commands:
            raise SetupError(f"no command {argv[0]!r}: choose from {', '.join(commands)}, or none to train")
        return commands[argv[0]](argv)
    except RookeryError as error:
        return fail(error)


def _train(argv: list[str]) -> int:
    from services.trainer.settings import TrainerSettings

    settings = TrainerSettings.parse(argv, prog="rookery serve trainer")
    configure("trainer")
    from services.trainer import process

    asyncio.run(process.run(settings))
    return 0


def _fit(argv: list[str]) -> int:
    from services.trainer import settings

    command, *flags = argv
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise SetupError(f"{command} trains in one process: start it without `accelerate launch` or torchrun")
    kind, module = FITS[command]
    parsed: Settings = getattr(settings, kind).parse(flags, prog=f"rookery {command}")
    configure(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    course: Any = importlib.import_module(module)
    course.run(parsed)
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """Exits at once: outside of training there is nothing to save."""
    del frame
    raise SystemExit(128 + number)


def _serve_reward_model(argv: list[str]) -> int:
    from services.trainer.settings import RewardServerSettings

    settings = RewardServerSettings.parse(argv[1:], prog="rookery serve reward-model")
    configure("reward-model")
    from services.trainer.reward_model import service

    asyncio.run(service.run(settings))
    return 0


def _autobatch(argv: list[str]) -> int:
    from services.trainer.settings.autobatch import AutobatchSettings

    settings = AutobatchSettings.parse(argv[1:], prog="rookery autobatch")
    configure("autobatch")
    from rich.console import Console

    from services.trainer.autobatch.choice import autobatch

    autobatch(settings, Console())
    return 0


def _tiny(argv: list[str]) -> int:
    from services.trainer.settings import TinySettings

    settings = TinySettings.parse(argv[1:], prog="python -m services.trainer tiny")
    from services.trainer.tiny import build_tiny

    build_tiny(**settings.model_dump())
    return 0


if __name__ == "__main__":
    sys.exit(main())

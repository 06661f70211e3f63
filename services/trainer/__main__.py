"""`python -m services.trainer [COMMAND] ...`: parses the arguments before it imports torch.

Without a command it trains on the groups of a run.
"""

import asyncio
import importlib
import signal
import sys
from types import FrameType
from typing import Any

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import Settings, fail

FINETUNE_COMMANDS = {
    "sft": ("SftSettings", "services.trainer.finetune.sft"),
    "reward-model": ("RewardModelSettings", "services.trainer.reward_model.training"),
    "dpo": ("DpoSettings", "services.trainer.finetune.dpo"),
}
"""Commands that train on a file: the settings class, and the module whose `run` takes the settings."""


def main() -> int:
    argv = sys.argv[1:]
    commands = {**dict.fromkeys(FINETUNE_COMMANDS, _finetune), "serve-reward-model": _serve_reward_model}
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


def _finetune(argv: list[str]) -> int:
    from services.trainer import settings

    command, *flags = argv
    kind, module = FINETUNE_COMMANDS[command]
    parsed: Settings = getattr(settings, kind).parse(flags, prog=f"rookery {command}")
    configure(command)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _exit_now)
    task: Any = importlib.import_module(module)
    task.run(parsed)
    return 0


def _exit_now(number: int, frame: FrameType | None) -> None:
    """Exits at once: outside of training there is nothing to save."""
    del frame
    raise SystemExit(128 + number)


def _serve_reward_model(argv: list[str]) -> int:
    from services.trainer.settings import RewardServerSettings

    settings = RewardServerSettings.parse(argv[1:], prog="rookery serve reward-model")
    configure("reward-model")
    from services.trainer.reward_model import app

    asyncio.run(app.run(settings))
    return 0


def _autobatch(argv: list[str]) -> int:
    from services.trainer.settings import AutobatchSettings

    settings = AutobatchSettings.parse(argv[1:], prog="rookery autobatch")
    configure("autobatch")
    from rich.console import Console

    from services.trainer.autobatch.search import autobatch

    autobatch(settings, Console())
    return 0


def _tiny(argv: list[str]) -> int:
    from services.trainer.tiny import TinySettings, add_words, build_tiny

    settings = TinySettings.parse(argv[1:], prog="python -m services.trainer tiny")
    if settings.model and settings.words:
        add_words(settings.model, settings.words, settings.out)
    else:
        build_tiny(**settings.model_dump(exclude={"model", "words"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

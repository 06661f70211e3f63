"""`python -m services.trainer [sft | tiny] ...`: parses first, imports torch only then.

Without a command it trains on the groups of a run (GRPO).
"""

import sys

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import fail


def main() -> int:
    argv = sys.argv[1:]
    commands = {"sft": _sft, "tiny": _tiny}
    try:
        if not argv or argv[0].startswith("-"):
            return _train(argv)
        if argv[0] not in commands:
            raise SetupError(f"no command {argv[0]!r}: choose from {', '.join(commands)}, or none to train")
        return commands[argv[0]](argv[1:])
    except RookeryError as error:
        return fail(error)


def _train(argv: list[str]) -> int:
    from services.trainer.settings import TrainerSettings

    settings = TrainerSettings.parse(argv, prog="rookery serve trainer")
    configure("trainer")
    import asyncio

    from services.trainer import process

    asyncio.run(process.run(settings))
    return 0


def _sft(argv: list[str]) -> int:
    from services.trainer.settings import SftSettings

    settings = SftSettings.parse(argv, prog="rookery sft")
    configure("sft")
    from services.trainer import sft

    sft.run(settings)
    return 0


def _tiny(argv: list[str]) -> int:
    from services.trainer.settings import TinySettings

    settings = TinySettings.parse(argv, prog="python -m services.trainer tiny")
    from services.trainer.tiny import build_tiny

    build_tiny(
        settings.out,
        seed=settings.seed,
        hidden_size=settings.hidden_size,
        layers=settings.layers,
        intermediate_size=settings.intermediate_size,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

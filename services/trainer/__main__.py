"""`python -m services.trainer [sft | tiny] ...`: parses first, imports torch only then."""

import sys

from rookery.errors import SetupError
from rookery.logs import configure
from rookery.settings import fail


def main() -> int:
    argv = sys.argv[1:]
    command = argv[0] if argv and not argv[0].startswith("-") else "train"
    commands = {"sft": _sft, "tiny": _tiny}
    try:
        return commands[command](argv[1:])
    except KeyError:
        return fail(SetupError(f"no command {command!r}: choose from {', '.join(commands)}"))
    except SetupError as error:
        return fail(error)


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

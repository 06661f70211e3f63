"""`python -m services.data` starts the service; `python -m services.data COMMAND` runs a command.

`python -m services.data help` lists the commands.
"""

import asyncio
import sys

from rookery.errors import RookeryError, SetupError
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    from services.data.commands import COMMANDS

    try:
        if argv[:1] == ["archive"]:
            from services.data import archiver

            return archiver.main(argv[1:])
        if argv and argv[0] in (*COMMANDS, "help"):
            return _command(argv[0], argv[1:])
        return _serve(argv)
    except SetupError as error:
        return fail(error)


def _command(name: str, argv: list[str]) -> int:
    from rookery.logs import configure
    from services.data import commands

    configure("data", level="WARNING")
    try:
        return commands.run(name, argv)
    except SetupError:
        raise
    except RookeryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


def _serve(argv: list[str]) -> int:
    from services.data.settings import DataSettings

    settings = DataSettings.parse(argv, prog="python -m services.data")
    from rookery.logs import configure
    from services.data.service import run

    configure("data")
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())

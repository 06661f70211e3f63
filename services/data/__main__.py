"""`python -m services.data` starts the service; `python -m services.data COMMAND` runs a command.

`python -m services.data help` lists the commands.
"""

import asyncio
import sys

from rookery.errors import RookeryError
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    from rookery.logs import configure
    from services.data import commands

    try:
        if argv and argv[0] in (*commands.COMMANDS, "help"):
            configure("data", level="WARNING")
            return commands.run(argv[0], argv[1:])
    except RookeryError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    try:
        from rookery.config.data import DataSettings

        settings = DataSettings.parse(argv, prog="python -m services.data")
        from services.data.service import run

        configure("data")
        asyncio.run(run(settings))
    except RookeryError as error:
        return fail(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

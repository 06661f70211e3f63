"""`python -m chess_datasets COMMAND`, which `rookery data COMMAND` runs."""

import sys

from chess_datasets import commands
from rookery.errors import RookeryError
from rookery.logs import configure
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    command, *rest = (sys.argv[1:] if argv is None else argv) or ["help"]
    configure("data", level="WARNING")
    try:
        return commands.run(command, rest)
    except RookeryError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""`python -m services.data`: positions over HTTP and gRPC."""

import asyncio
import sys

from rookery.config.data import DataSettings
from rookery.errors import RookeryError
from rookery.logs import configure
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    try:
        settings = DataSettings.parse(sys.argv[1:] if argv is None else argv, prog="python -m services.data")
        from services.data.service import run  # slow to import: --help does without it

        configure("data")
        asyncio.run(run(settings))
    except RookeryError as error:
        return fail(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m services.viewer` starts the viewer."""

import asyncio
import sys

from rookery.config.viewer import ViewerSettings
from rookery.errors import RookeryError
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    try:
        settings = ViewerSettings.parse(argv, prog="python -m services.viewer")
        from rookery.logs import configure

        configure("viewer")
        asyncio.run(_serve(settings))
    except RookeryError as error:
        return fail(error)
    return 0


async def _serve(settings: ViewerSettings) -> None:
    """Serves until SIGINT or SIGTERM. The index is in a temporary folder, which is then deleted."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from rookery.serving import Service, serve
    from services.viewer.app import create_app

    stopping = asyncio.Event()
    with TemporaryDirectory(prefix="rookery-viewer-") as folder:
        await serve(
            Service.at(
                settings,
                "viewer",
                create_app(settings, folder=Path(folder), stopping=stopping),
                public=True,
                stopping=stopping,
            )
        )


if __name__ == "__main__":
    sys.exit(main())

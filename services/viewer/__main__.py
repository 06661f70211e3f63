"""`python -m services.viewer`: starts the viewer, as `rookery serve viewer`."""

import asyncio

from rookery.command_line import main_of
from rookery.config.viewer import ViewerSettings


async def run(settings: ViewerSettings) -> None:
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


main = main_of("serve viewer", __name__)

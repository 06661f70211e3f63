"""The app of the viewer: the API, the page, and headers that let a browser run only the page's own files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery import __version__
from rookery.access import is_loopback
from rookery.config.viewer import ViewerSettings
from rookery.middleware import RequireLocalHost
from rookery.serving import add_probes, add_problem_handlers
from services.viewer.index import Index
from services.viewer.routes import Viewer, router
from services.viewer.runs import Runs
from services.viewer.served import VersionServer

STATIC = Path(__file__).parent / "static"

MAX_BODY_BYTES = 1 << 20

_HEADERS = {
    # The pieces are pictures within the style sheet, hence data:.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class SecurityHeaders:
    """ASGI middleware: a model's text must not run, and no other site may show the page in a frame."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def create_app(settings: ViewerSettings, *, folder: Path, stopping: asyncio.Event | None = None) -> FastAPI:
    """The app over the runs of `settings`, with its index in `folder`. `stopping` ends live streams."""
    runs = Runs(settings.runs_dir, settings.archive)
    index = Index(folder / "index.duckdb", memory_mb=settings.memory_mb)
    versions = VersionServer(folder / "served", settings.access)

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        versions.stop()
        index.close()

    app = FastAPI(
        title="Rookery viewer",
        version=__version__,
        summary="What the policy of a run answered, and how it was judged.",
        docs_url=None,  # its page loads scripts from elsewhere, which the headers forbid
        redoc_url=None,
        lifespan=closing,
    )
    app.state.viewer = Viewer(
        settings,
        settings.access,
        runs,
        index=index,
        versions=versions,
        stopping=stopping or asyncio.Event(),
    )
    if is_loopback(settings.host):  # the pages need no token
        app.add_middleware(RequireLocalHost)
    app.add_middleware(SecurityHeaders)
    add_problem_handlers(app, max_body_bytes=MAX_BODY_BYTES)
    add_probes(app)  # an index that is being filled is shown in parts
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/{path:path}", include_in_schema=False)
    def page(path: str) -> FileResponse:
        """The page: it finds its view in the address."""
        return FileResponse(STATIC / "index.html")

    return app

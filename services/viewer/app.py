"""The HTTP API of the viewer, and the page. It contains no logic of its own."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Response
from fastapi.responses import FileResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery import __version__
from rookery.errors import RookeryError, Unavailable
from rookery.plots.panels import OVERVIEW, PANELS, STRENGTH, Panel, choose, label_of
from rookery.plots.steps import Step, keys_of, series
from rookery.serving import add_probes, add_problem_handlers
from rookery.streams import DeadLetters, RunStreams
from services.viewer import play, queries
from services.viewer.group import json_safe, whole_group
from services.viewer.index import Index
from services.viewer.queries import Filter, Sort
from services.viewer.rescoring import rescore
from services.viewer.runs import RunFolder, Runs
from services.viewer.settings import ViewerSettings

STATIC = Path(__file__).parent / "static"
LIVE_S = 1.0
"""Seconds between two looks at a run that a page follows."""
QUIET_LOOKS = 15
"""Looks without news after which a comment is sent, so that proxies keep the connection."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class SecurityHeaders:
    """ASGI middleware: nothing but the page's own files runs, whatever a model wrote."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)


def create_app(settings: ViewerSettings, *, folder: Path, stopping: asyncio.Event | None = None) -> FastAPI:
    """The app over the runs of `settings`. The index is kept in `folder`. `stopping` ends the live streams."""
    runs = Runs(settings.runs_dir, settings.archive)
    index = Index(folder / "index.duckdb", memory_mb=settings.memory_mb)
    app = FastAPI(
        title="Rookery viewer",
        version=__version__,
        summary="What the policy of a run answered, and how it was judged.",
        docs_url=None,  # its page loads scripts from elsewhere, which the headers forbid
        redoc_url=None,
    )
    app.add_middleware(SecurityHeaders)
    add_problem_handlers(app, max_body_bytes=1 << 20)
    add_probes(app, ready=_always_ready)
    app.router.add_event_handler("shutdown", index.close)

    def opened(run: str) -> RunFolder:
        found = runs.find(run)
        index.open(found)
        return found

    Run = Annotated[RunFolder, Depends(opened)]  # noqa: N806 - a type
    Chosen = Annotated[Filter, Query()]  # noqa: N806

    def allowed(authorization: Annotated[str, Header()] = "") -> None:
        if not settings.token:
            raise HTTPException(403, "This viewer is read-only: start it with --token to replay and play")
        if not secrets.compare_digest(authorization.encode(), f"Bearer {settings.token}".encode()):
            raise HTTPException(401, "The token is missing or wrong", {"WWW-Authenticate": "Bearer"})

    def peers(run: RunFolder) -> play.Peers:
        return play.Peers(
            settings.inference_url or run.service_url("inference"),
            settings.reward_url or run.service_url("reward"),
        )

    @app.get("/api/runs", tags=["runs"])
    def list_runs() -> Response:
        """All runs, newest first."""
        found = map(runs.find, runs.names())
        return _json([{"name": run.name, "last_step": run.last_step()} for run in found])

    @app.get("/api/runs/{run}", tags=["runs"])
    def overview(run: Run) -> Response:
        """Settings, evaluations and the account of a run, and how much of it is indexed."""
        files, of = index.progress(run.name)
        (held,) = index.query(
            "SELECT count(*) AS groups, count(step) AS trained, sum(size) AS answers, min(version) AS first_version, "
            "max(version) AS last_version, any_value(style) AS style FROM groups WHERE run = ?",
            [run.name],
        )
        (components,) = index.query(
            "SELECT list_sort(list_distinct(flatten(list(map_keys(components))))) AS names FROM "
            "(SELECT components FROM answers WHERE run = ? LIMIT 10000)",
            [run.name],
        )
        return _json(
            {
                "name": run.name,
                "indexed": {"files": files, "of": of},
                "archive": held,
                "components": components["names"] or [],
                "settings": run.read_json("settings.json"),
                "evaluation": run.read_json("report.json")
                .get("sections", {})
                .get("positions", {})
                .get("metrics", {}),
                "account": _account(
                    settings.redis_url or run.read_json("endpoints.json").get("redis_url", ""), run
                ),
                "dropped": run.dropped(),
                "last_step": run.last_step(),
                "writable": bool(settings.token),
            }
        )

    @app.get("/api/runs/{run}/summary", tags=["answers"])
    def summary(run: Run, chosen: Chosen) -> Response:
        """Counts, outcomes and the histogram of rewards of the answers that pass a filter."""
        return _json(queries.summary(index, run.name, chosen))

    class GroupsQuery(Filter):
        """Which groups, in which order."""

        sort: Sort = "time"
        descending: bool = True
        page: int = 0

    @app.get("/api/runs/{run}/groups", tags=["answers"])
    def groups(run: Run, query: Annotated[GroupsQuery, Query()]) -> Response:
        """A page of groups with an answer that passes the filter."""
        found = queries.page(
            index, run.name, query, sort=query.sort, descending=query.descending, number=max(0, query.page)
        )
        return _json({"groups": found, "page_size": queries.PAGE})

    @app.get("/api/runs/{run}/groups/{id}", tags=["answers"])
    def group(run: Run, id: str) -> Response:
        """One group, whole."""
        return _json(whole_group(index, run, id))

    @app.get("/api/runs/{run}/history", tags=["answers"])
    def history(run: Run, position: str, fen: str) -> Response:
        """All groups on one position, in all runs that have been opened."""
        return _json({"groups": queries.history(index, position, fen)})

    @app.get("/api/runs/{run}/collapse", tags=["training"])
    def collapse(run: Run) -> Response:
        """Signs of collapse over versions."""
        return _json(queries.collapse(index, run.name))

    @app.get("/api/runs/{run}/curves", tags=["training"])
    def curves(run: Run, all: bool = False) -> Response:
        """The curves of training, and of the strength of versions."""
        return _json(
            {
                "training": _panels(run.metrics(), PANELS if all else OVERVIEW),
                "strength": _panels(run.strength(), STRENGTH),
            }
        )

    class RescoreQuery(Filter):
        """Which groups, and the scheme."""

        scheme: str = "delta"

    @app.get("/api/runs/{run}/rescore", tags=["answers"])
    def rescored(run: Run, query: Annotated[RescoreQuery, Query()]) -> Response:
        """Which advantages of a view change sign under another scheme."""
        return _json(rescore(index, run.name, query, query.scheme))

    @app.get("/api/runs/{run}/compare/{other}", tags=["runs"])
    def compare(run: Run, other: str, page: int = 0) -> Response:
        """Two runs on the positions that both have."""
        return _json(queries.compare(index, run.name, opened(other).name, number=max(0, page)))

    @app.get("/api/runs/{run}/dead", tags=["dead letters"])
    def dead(run: Run) -> Response:
        """The newest dead letters, with their reasons."""
        with closing(_letters(settings, run)) as letters:
            return _json([asdict(letter) for letter in letters.newest()])

    @app.post("/api/runs/{run}/dead/{id}/replay", tags=["dead letters"], dependencies=[Depends(allowed)])
    def replay(run: Run, id: str) -> Response:
        """Puts a dead letter back into its stream. Needs the token."""
        with closing(_letters(settings, run)) as letters:
            return _json({"entry": letters.replay(id)})

    @app.post("/api/play/position", tags=["play"])
    def position(line: play.Line) -> Response:
        """A position and its legal moves, from a FEN or a PGN."""
        return _json(play.position_of(line))

    @app.get("/api/runs/{run}/players", tags=["play"])
    async def players(run: Run) -> Response:
        """Who can be asked, and what is missing."""
        return _json(await peers(run).state())

    @app.post("/api/runs/{run}/ask", tags=["play"], dependencies=[Depends(allowed)])
    async def ask(run: Run, question: play.Question) -> Response:
        """Asks a version of the policy, or the engine, for a move. Needs the token."""
        return _json(await peers(run).answer(question))

    @app.get("/api/runs/{run}/events", tags=["runs"])
    async def events(run: Run) -> Response:
        """Server-sent events: one whenever the run has new steps or groups."""
        return StreamingResponse(
            _live(index, run, stopping or asyncio.Event()), media_type="text/event-stream"
        )

    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/{path:path}", include_in_schema=False)
    def page(path: str) -> FileResponse:
        """The page: it finds its view in the address."""
        if path.startswith("api/"):
            raise HTTPException(404, "Not found")
        return FileResponse(STATIC / "index.html")

    return app


async def _live(index: Index, run: RunFolder, stopping: asyncio.Event) -> AsyncIterator[str]:
    known, quiet = None, 0
    while not stopping.is_set():
        await asyncio.to_thread(index.open, run)
        files, of = index.progress(run.name)
        state = {"files": files, "of": of, "step": run.last_step().get("step", 0)}
        quiet = 0 if state != known else quiet + 1
        if state != known:
            yield f"data: {json.dumps(state)}\n\n"
        elif quiet % QUIET_LOOKS == 0:
            yield ": nothing new\n\n"
        known = state
        await asyncio.sleep(LIVE_S)


def _panels(steps: list[Step], panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    """The panels that have data, with their series by key."""
    if not steps:
        return []
    return [
        asdict(replace(panel, references=()))
        | {
            "series": [
                {"key": key, "label": label_of(key), "dotted": key in panel.references, **_points(steps, key)}
                for key in (*panel.keys, *panel.references)
            ]
        }
        for panel in choose(keys_of(steps), panels=panels)
    ]


def _points(steps: list[Step], key: str) -> dict[str, list[float]]:
    x, y = series(steps, key)
    return {"x": x, "y": y}


def _account(redis_url: str, run: RunFolder) -> dict[str, Any] | None:
    """The run's account in Redis; None if Redis is not up, or knows nothing of the run."""
    if not redis_url:
        return None
    with closing(RunStreams(redis_url, run.name)) as streams:
        try:
            streams.ping(once=True)
            overview = streams.overview()
        except RookeryError:
            return None
    known = asdict(overview) | {"astray": overview.astray, "archive_astray": overview.archive_astray}
    return known if overview.counts.generated else None


def _letters(settings: ViewerSettings, run: RunFolder) -> DeadLetters:
    url = settings.redis_url or run.read_json("endpoints.json").get("redis_url", "")
    if not url:
        raise Unavailable(f"the Redis of run {run.name!r} is not known: start the viewer with --redis-url")
    letters = DeadLetters(url, run.name)
    letters.ping(once=True)
    return letters


def _json(content: Any) -> Response:
    return Response(json.dumps(json_safe(content), allow_nan=False), media_type="application/json")


async def _always_ready() -> None:
    """Always ready: an index that is being filled is shown in parts."""

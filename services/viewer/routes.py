"""The routes of the viewer's API. They contain no logic of their own."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from rookery.access import Access
from rookery.config.viewer import ViewerSettings
from rookery.folder_lock import is_locked
from rookery.serving import BODY_PROBLEMS
from services.viewer import account, battery, play, queries
from services.viewer.filters import Filter
from services.viewer.group import json_safe, whole_group
from services.viewer.index import Index
from services.viewer.queries import Sort
from services.viewer.rescoring import rescore
from services.viewer.runs import ANSWERS_FILE, RunFolder, Runs
from services.viewer.served import VersionServer

LIVE_S = 1.0
"""Seconds between two looks at a run that a page follows."""

QUIET_LOOKS = 15
"""Looks without news after which a comment is sent, so that proxies keep the connection."""

MAX_PAGE = 10**6

READERS = 2

_SETTINGS = (
    "model", "preset", "source", "task", "style", "group_size", "batch_groups", "staleness", "max_tokens",
    "nodes", "seed",
)  # fmt: skip

_TRAINER_SETTINGS = ("objective", "baseline", "lr", "kl", "kl_coefficient", "lora_rank")

_PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"description": "No such run or group, named"},
    422: {"description": "A parameter or field is invalid, quoted"},
}
_ALLOWED: dict[int | str, dict[str, Any]] = {
    401: {"description": "The token is missing or wrong"},
    403: {"description": "The viewer has no token, so it is read-only"},
}
_PEERS: dict[int | str, dict[str, Any]] = {503: {"description": "Redis or a service is not known, or not up"}}

router = APIRouter(prefix="/api", responses=_PROBLEMS)


@dataclass(frozen=True, slots=True)
class Viewer:
    """What the routes share. `stopping` ends the live streams."""

    settings: ViewerSettings
    access: Access
    runs: Runs
    index: Index
    versions: VersionServer
    stopping: asyncio.Event
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READERS))
    """Positions that are read at the same time. More would only keep the other requests from the CPU."""


def _viewer(request: Request) -> Viewer:
    viewer: Viewer = request.app.state.viewer
    return viewer


Shared = Annotated[Viewer, Depends(_viewer)]


def _open_run(run: str, viewer: Shared) -> RunFolder:
    """The run of the path, which is then indexed."""
    folder = viewer.runs.find(run)
    viewer.index.open(folder)
    return folder


Run = Annotated[RunFolder, Depends(_open_run)]


def _require_token(viewer: Shared, authorization: Annotated[str, Header()] = "") -> None:
    if not viewer.access.token:
        raise HTTPException(
            403, "This viewer is read-only: set ROOKERY_TOKEN, or use `rookery view`, to replay and play"
        )
    if not viewer.access.admits(authorization):
        raise HTTPException(401, "The token is missing or wrong", {"WWW-Authenticate": "Bearer"})


guarded = APIRouter(responses=_ALLOWED | _PEERS, dependencies=[Depends(_require_token)])
"""The routes that need the token. They are a part of `router`."""


class GroupsQuery(Filter):
    """The groups to return, and their order."""

    sort: Sort = "time"
    descending: bool = True
    page: int = Field(default=0, ge=0, le=MAX_PAGE)
    """Counted from 0."""


Bound = Annotated[int, Field(ge=0, le=2**31 - 1)]


class CompareQuery(BaseModel, extra="forbid", use_attribute_docstrings=True):
    """The versions of each of two runs to compare, all by default. Bounds are inclusive."""

    first_min: Bound | None = None
    first_max: Bound | None = None
    second_min: Bound | None = None
    second_max: Bound | None = None
    page: int = Field(default=0, ge=0, le=MAX_PAGE)
    """Counted from 0."""


class RescoreQuery(Filter):
    """The groups to score again, and the scheme."""

    scheme: str = "delta"


@router.get("/runs", tags=["runs"])
def list_runs(viewer: Shared) -> Response:
    """All runs, newest first. Folders of the same `id` are copies of one run."""
    runs = map(viewer.runs.at, viewer.runs.names())
    return _json(
        [{"name": run.name, "id": run.manifest().get("id", ""), "last_step": run.last_step()} for run in runs]
    )


@router.get("/runs/{run}", tags=["runs"])
def overview(run: Run, viewer: Shared) -> Response:
    """Settings, evaluations and the account of a run, and how much of it is indexed."""
    files, of = viewer.index.progress(run.name)
    report = run.read_json("report.json")
    sections = report.get("sections")
    positions = sections.get("positions", {}) if isinstance(sections, dict) else {}
    settings = run.read_json("settings.json")
    return _json(
        {
            "name": run.name,
            "indexed": {"files": files, "of": of, "problem": viewer.index.problem(run.name)},
            "archive": queries.extent(viewer.index, run.name),
            # Others may hold a password: `redis_url`, `set`.
            "settings": {name: settings[name] for name in _SETTINGS if name in settings},
            "trainer": {
                name: value
                for name, value in (run.trainer_settings() or {}).items()
                if name in _TRAINER_SETTINGS
            },
            "scheme": run.scheme(),
            "course": run.course(),
            "manifest": run.manifest(),
            "players": list(report.get("players", ())),  # without the references
            "evaluation": positions.get("metrics", {}) if isinstance(positions, dict) else {},
            "account": account.account(run, _redis_url(run, viewer)),
            "dropped": run.dropped(),
            "last_step": run.last_step(),
            "writable": bool(viewer.access.token),
        }
    )


@router.get("/runs/{run}/summary", tags=["answers"])
def summary(run: Run, chosen: Annotated[Filter, Query()], viewer: Shared) -> Response:
    """Counts, outcomes and the histogram of rewards of the answers that pass a filter."""
    return _json(queries.summary(viewer.index, run.name, chosen))


@router.get("/runs/{run}/groups", tags=["answers"])
def groups(run: Run, query: Annotated[GroupsQuery, Query()], viewer: Shared) -> Response:
    """A page of groups with an answer that passes the filter."""
    rows = queries.page(
        viewer.index, run.name, query, sort=query.sort, descending=query.descending, number=query.page
    )
    return _json({"groups": rows, "page_size": queries.PAGE})


@router.get("/runs/{run}/groups/{id}", tags=["answers"])
def group(run: Run, id: str, viewer: Shared) -> Response:
    """One group, whole."""
    return _json(whole_group(viewer.index, run, id))


@router.get("/runs/{run}/history", tags=["answers"])
def history(run: Run, position: str, fen: str, viewer: Shared) -> Response:
    """All groups on one position, in all runs that have been opened. `runs` names these, and `indexing` those
    of them that are still being indexed."""
    there = set(viewer.runs.names())  # one that was opened may have been deleted or renamed
    runs = [name for name in viewer.index.opened() if name in there]
    indexing = viewer.index.incomplete(runs)
    rows = queries.history(viewer.index, position, fen, runs)
    return _json({"runs": runs, "indexing": indexing, "groups": rows})


@router.get("/runs/{run}/rescore", tags=["answers"])
def rescored(run: Run, query: Annotated[RescoreQuery, Query()], viewer: Shared) -> Response:
    """Which advantages of a view change sign under another scheme."""
    return _json(rescore(viewer.index, run.name, query, query.scheme))


@router.get("/runs/{run}/battery", tags=["evaluations"])
def battery_answers(run: Run, query: Annotated[battery.BatteryQuery, Query()]) -> Response:
    """The answers of an evaluation or a battery in the folder, by section, task, outcome and player."""
    return _json(battery.answers(run.path / ANSWERS_FILE, query))


@router.get("/runs/{run}/collapse", tags=["training"])
def collapse(run: Run, viewer: Shared) -> Response:
    """Signs of collapse over versions."""
    return _json(queries.collapse(viewer.index, run.name))


@router.get("/runs/{run}/curves", tags=["training"])
def training_curves(run: Run, all: bool = False) -> Response:
    """The curves of training, and of the strength of versions."""
    return _json(run.curves(all=all))


@router.get("/runs/{run}/compare/{other}", tags=["runs"])
def compare(run: Run, other: str, query: Annotated[CompareQuery, Query()], viewer: Shared) -> Response:
    """Two runs, or versions of them, on the positions that both have."""
    first = queries.Side(run.name, query.first_min, query.first_max)
    second = queries.Side(_open_run(other, viewer).name, query.second_min, query.second_max)
    return _json(queries.compare(viewer.index, first, second, number=query.page))


def _redis_url(run: RunFolder, viewer: Viewer) -> str:
    """Of a run in a store, endpoints.json is another machine's: its address may be another Redis here. A run
    that is down has no Redis of its own: the socket is that of the run whose folder was copied."""
    recorded_url = "" if run.store else str(run.read_json("endpoints.json").get("redis_url", ""))
    if recorded_url.startswith("unix:") and not is_locked(run.path):
        recorded_url = ""
    return viewer.settings.redis_url or recorded_url


@router.get("/runs/{run}/dead", responses=_PEERS, tags=["dead letters"])
def dead(run: Run, viewer: Shared) -> Response:
    """The newest dead letters, with their reasons; those that the archive kept if Redis is not up."""
    return _json(account.dead_letters(run, _redis_url(run, viewer)))


@guarded.post("/runs/{run}/dead/{id}/replay", tags=["dead letters"])
def replay_dead(run: Run, id: str, viewer: Shared) -> Response:
    """Puts a dead letter back into its stream. Needs the token."""
    account.replay(run, _redis_url(run, viewer), id)
    return _json({"replayed": id})


@router.post("/play/position", responses=BODY_PROBLEMS, tags=["play"])
async def position(line: play.PlayedLine, viewer: Shared) -> Response:
    """A position and its legal moves, from a FEN or a PGN."""
    async with viewer.reading:
        return _json(await asyncio.to_thread(play.position_json, line))


@router.get("/runs/{run}/players", tags=["play"])
async def players(run: Run, viewer: Shared) -> Response:
    """Who can be asked, what is missing, the versions on this disk, and which of them is served here."""
    served = viewer.versions.served(run.name)
    state = await _services(viewer, run).state()
    return _json(state | {"versions": run.versions(), "serving": served.json() if served else None})


@guarded.post("/runs/{run}/serve", responses=BODY_PROBLEMS, tags=["play"])
async def serve_version(run: Run, chosen: play.Version, viewer: Shared) -> Response:
    """Starts to serve a version of a run, and the engine, for questions. Needs the token."""
    served = await asyncio.to_thread(viewer.versions.serve, run, chosen.version)
    return _json(served.json())


@guarded.post("/runs/{run}/ask", responses=BODY_PROBLEMS, tags=["play"])
async def ask(run: Run, question: play.MoveQuestion, viewer: Shared) -> Response:
    """Asks a version of the policy, or the engine, for a move. Needs the token."""
    async with viewer.reading:
        board = await asyncio.to_thread(question.board)
    return _json(await _services(viewer, run).answer(question, board))


def _services(viewer: Viewer, run: RunFolder) -> play.RunServices:
    served = viewer.versions.served(run.name)
    if served and served.state == "ready":
        return play.RunServices(served.inference_url, served.reward_url, viewer.access)
    return play.RunServices(
        viewer.settings.inference_url or run.service_url("inference"),
        viewer.settings.reward_url or run.service_url("reward"),
        viewer.access,
    )


@router.get("/runs/{run}/events", tags=["runs"])
async def events(run: Run, viewer: Shared) -> Response:
    """Server-sent events: one whenever the run has new steps or groups."""
    return StreamingResponse(_live(viewer, run), media_type="text/event-stream")


async def _live(viewer: Viewer, run: RunFolder) -> AsyncIterator[str]:
    last_state, quiet = None, 0
    while not viewer.stopping.is_set():
        await asyncio.to_thread(viewer.index.open, run)
        files, of = viewer.index.progress(run.name)
        indexing = bool(viewer.index.incomplete([run.name]))
        step = run.last_step().get("step", 0)
        state = {"files": files, "of": of, "indexing": indexing, "step": step}
        quiet = 0 if state != last_state else quiet + 1
        if state != last_state:
            yield f"data: {json.dumps(state)}\n\n"
        elif quiet % QUIET_LOOKS == 0:
            yield ": nothing new\n\n"
        last_state = state
        await asyncio.sleep(LIVE_S)


router.include_router(guarded)


@router.get("/{path:path}", include_in_schema=False)
def unknown(path: str) -> None:
    """Keeps mistyped paths of the API from getting the page."""
    raise HTTPException(404, "Not found")


def _json(content: Any) -> Response:
    return Response(json.dumps(json_safe(content), allow_nan=False), media_type="application/json")

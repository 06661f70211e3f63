"""The HTTP API of the data service: positions, games, prompts and probes. It contains no logic of its own."""

from collections.abc import Iterator
from itertools import count
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from chess_datasets.positions.numbered import PositionOrder
from rookery import __version__
from rookery.middleware import StrictBody
from rookery.serving import BODY_PROBLEMS, add_probes, add_problem_handlers
from rookery.trace import Phase, Prompt, Split
from services.data.rendering import MAX_MOVES, render_fen

MAX_COUNT = 10_000
"""The most positions in one response."""

MAX_BODY_BYTES = 2 << 20
"""A position and a thousand moves take 10 kB. Parsing much more would delay other requests."""

_POSITIONS_A_CALL = 16
"""Positions drawn per call of a worker thread. If the request ends, at most these are wasted."""

_LAST = (1 << 64) - 1

_PROBLEMS: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter out of range, quoted"}}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "No such game, or a broken one, named"}}


class PositionsQuery(BaseModel, extra="forbid", use_attribute_docstrings=True):
    """Which positions to return. Unknown parameters are refused: a mistyped offset would repeat positions."""

    count: int = Field(default=1, ge=1, le=MAX_COUNT)
    """The number of positions."""
    seed: int | None = Field(default=None, ge=0, le=_LAST)
    """Determines the order; the default is the service's."""
    offset: int = Field(default=0, ge=0, le=_LAST)
    """The number of positions to skip first."""
    split: Split | None = None
    """Games to draw from: train, heldout or all; the default is the service's."""


class PositionBody(BaseModel, from_attributes=True, use_attribute_docstrings=True):
    """A board from a real game, never terminal."""

    id: str
    """Source SHA-256 (8 hex digits), number of the game in its file, ply."""
    fen: str
    ply: int
    """Half-moves played in the game before this position."""
    phase: Phase
    game_id: str
    """A hash of the moves: the same game in two files has one id."""
    last_moves: list[str]
    """All moves of the game before this position, in UCI, oldest first."""
    white_elo: int | None
    black_elo: int | None


class PositionsBody(BaseModel):
    """Positions number `offset` up to `next_offset` of the order of `seed`."""

    positions: list[PositionBody]
    seed: int
    split: Split
    offset: int
    next_offset: int


class RenderRequest(StrictBody):
    """A position and the style in which a model is to see it."""

    fen: str = Field(examples=["rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2"])
    """The position."""
    style: str = "fen"
    """How to show it: a name of `rookery.prompt`."""
    last_moves: list[str] = Field(default=[], max_length=MAX_MOVES)
    """The moves before it in UCI, oldest first, which `pgn`, `san` and `uci` show."""


class GameBody(BaseModel, from_attributes=True, use_attribute_docstrings=True):
    """A game that positions are drawn from."""

    id: str
    """A hash of the moves."""
    source: str
    """First digits of the SHA-256 of its file."""
    number: int
    """Counted from 1 in its file."""
    start_fen: str
    moves: list[str]
    """UCI."""
    white_elo: int | None
    black_elo: int | None
    pgn: str
    """The text as it is in its file, without blank lines."""


def number_ranges(offset: int, wanted: int) -> Iterator[range]:
    """Ranges that cover the first `wanted` position numbers from `offset` on; endless if `wanted` is 0."""
    for first in count(offset, _POSITIONS_A_CALL):
        last = first + _POSITIONS_A_CALL
        if wanted and last >= offset + wanted:
            yield range(first, offset + wanted)
            return
        yield range(first, last)


def create_app(order: PositionOrder, *, seed: int) -> FastAPI:
    """Returns the app that serves `order`. `seed` is used for requests that name none."""
    app = FastAPI(
        title="Rookery data",
        version=__version__,
        summary="Positions from real games, by seed; the games; prompts.",
    )
    add_problem_handlers(app, max_body_bytes=MAX_BODY_BYTES)
    add_probes(app)  # the games are read before the port opens

    @app.get("/v1/positions", responses=_PROBLEMS, tags=["positions"])
    async def positions(query: Annotated[PositionsQuery, Query()]) -> PositionsBody:
        """`count` positions of the seeded order: the same request gives the same positions."""
        chosen = seed if query.seed is None else query.seed
        split = query.split or order.split

        def draw(numbers: range) -> list[PositionBody]:
            drawn = (order.position(number, seed=chosen, split=split) for number in numbers)
            return [PositionBody.model_validate(position) for position in drawn]

        found: list[PositionBody] = []
        for numbers in number_ranges(query.offset, query.count):
            found += await run_in_threadpool(draw, numbers)
        return PositionsBody(
            positions=found,
            seed=chosen,
            split=split,
            offset=query.offset,
            next_offset=query.offset + query.count,
        )

    # Only dialogues have tools, whose schemas /v1/episodes returns.
    @app.post(
        "/v1/render",
        responses=_PROBLEMS | BODY_PROBLEMS,
        response_model_exclude={"tools"},
        tags=["prompts"],
    )
    def render(request: RenderRequest) -> Prompt:
        """The messages that a model reads: what rollouts would send for this position."""
        return render_fen(request.fen, style=request.style, last_moves=request.last_moves)

    @app.get("/v1/games/{id}", responses=_MISSING, tags=["games"])
    def game(id: str) -> GameBody:
        """A game by the `game_id` of a position, or by source and number as positions are named."""
        record, text = order.games.find(id)
        return GameBody(**record.fields_with(pgn=text))

    return app

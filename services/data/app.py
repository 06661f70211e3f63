"""The HTTP face of the data service: `/v1/positions`, probes. Wraps the order, decides nothing."""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict, Field

from rookery import __version__
from rookery.serving import add_probes, add_problem_handlers
from rookery.trace import Phase
from services.data.games import Split
from services.data.order import Order

MAX_COUNT = 10_000
"""Positions of one answer."""

_LAST = (1 << 64) - 1

_PROBLEMS: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter out of range, quoted"}}


class PositionsQuery(BaseModel):
    """What to draw; an unknown parameter is refused, because a mistyped offset would repeat positions."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    count: int = Field(default=1, ge=1, le=MAX_COUNT)
    """How many positions."""
    seed: int | None = Field(default=None, ge=0, le=_LAST)
    """Which order; the service's own when left out."""
    offset: int = Field(default=0, ge=0, le=_LAST)
    """Positions of the order to leave out first."""
    split: Split | None = None
    """Games to draw from: train, heldout or all; the service's own when left out."""


class PositionBody(BaseModel):
    """A board from a real game, never terminal."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True)

    id: str
    """Source SHA-256 (8 hex digits), number of the game in its file, ply."""
    fen: str
    ply: int
    """Half-moves played in the game before this position."""
    phase: Phase
    game_id: str
    """A hash of the moves: the same game in two files has one id."""
    last_moves: list[str]
    """UCI, oldest first, at most ten."""
    white_elo: int | None
    black_elo: int | None


class PositionsBody(BaseModel):
    """Positions number `offset` up to `next_offset` of the order of `seed`."""

    positions: list[PositionBody]
    seed: int
    split: Split
    offset: int
    next_offset: int


def create_app(order: Order, *, seed: int) -> FastAPI:
    """The app around an order; `seed` stands in where a request names none."""
    app = FastAPI(title="Rookery data", version=__version__, summary="Positions from real games, by seed.")
    add_problem_handlers(app)
    add_probes(app, ready=_always_ready)

    @app.get("/v1/positions", responses=_PROBLEMS, tags=["positions"])
    def positions(query: Annotated[PositionsQuery, Query()]) -> PositionsBody:
        """`count` positions of the seeded order: the same request gives the same positions."""
        chosen = seed if query.seed is None else query.seed
        split = query.split or order.split
        end = query.offset + query.count
        return PositionsBody(
            positions=[
                PositionBody.model_validate(order.position(number, seed=chosen, split=split))
                for number in range(query.offset, end)
            ],
            seed=chosen,
            split=split,
            offset=query.offset,
            next_offset=end,
        )

    return app


async def _always_ready() -> None:
    """The archive is read before the port opens."""

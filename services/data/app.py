"""The HTTP face of the data service: `/v1/positions`, probes. Wraps the order, decides nothing."""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from pydantic import BaseModel, ConfigDict

from rookery import __version__
from rookery.serving import add_probes, add_problem_handlers
from rookery.trace import Phase
from services.data.games import Split
from services.data.order import Order

MAX_COUNT = 10_000
"""Positions of one answer."""

_LAST = (1 << 64) - 1

_PROBLEMS: dict[int | str, dict[str, Any]] = {422: {"description": "A parameter out of range, quoted"}}


class PositionBody(BaseModel):
    """A board from a real game, never terminal."""

    model_config = ConfigDict(from_attributes=True)

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
    default_seed = seed

    @app.get("/v1/positions", responses=_PROBLEMS, tags=["positions"])
    def positions(
        count: Annotated[int, Query(ge=1, le=MAX_COUNT)] = 1,
        seed: Annotated[int, Query(ge=0, le=_LAST)] = default_seed,
        offset: Annotated[int, Query(ge=0, le=_LAST)] = 0,
        split: Split = order.split,
    ) -> PositionsBody:
        """`count` positions of the seeded order: the same request gives the same positions."""
        numbers = range(offset, offset + count)
        return PositionsBody(
            positions=[
                PositionBody.model_validate(order.position(number, seed=seed, split=split))
                for number in numbers
            ],
            seed=seed,
            split=split,
            offset=offset,
            next_offset=offset + count,
        )

    return app


async def _always_ready() -> None:
    """The archive is read before the port opens."""

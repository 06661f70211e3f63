"""Runs one `go` command."""

import asyncio
import time
from typing import Any

import chess

from services.arena.uci.commands import Go


class Search:
    """One `go`: its position, what it allows, and the events that end it."""

    def __init__(self, board: chess.Board, go: Go, *, seed: int) -> None:
        self.board, self.go, self.seed = board, go, seed
        wanted = set(go.searchmoves)
        legal = sorted(board.legal_moves, key=chess.Move.uci)
        # `searchmoves` without a legal move is taken for a mistake, and ignored.
        self.legal = [move for move in legal if not wanted or move.uci() in wanted] or legal
        self.started = time.monotonic()
        self.stopped, self.ponder_hit, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.scored = False

    async def wait(self, asked: "asyncio.Future[chess.Move | None]", *, overhead_ms: int) -> None:
        """Returns when `asked` is done, the time is up or the search was stopped.

        While the search is infinite or ponders, only `stop` (or `ponderhit`) ends it.
        """
        stopped = asyncio.ensure_future(self.stopped.wait())
        hit = asyncio.ensure_future(self.ponder_hit.wait())
        try:
            if self.go.ponder:
                await asyncio.wait({stopped, hit}, return_when=asyncio.FIRST_COMPLETED)
            if self.go.infinite:
                await stopped
            budget_s = self.go.budget_s(self.board.turn, overhead_ms=overhead_ms)
            either: set[asyncio.Future[Any]] = {asked, stopped}
            await asyncio.wait(either, timeout=budget_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            hit.cancel()

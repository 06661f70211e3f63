"""What the engine is asked about one position, and its answers.

One search for the best lines, one for what the other side would do if the mover passed, and one for
each natural move that the best lines leave out. Nothing here writes or judges.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import chess

from rookery.errors import EngineFault, InvalidInput
from rookery.uci import Analysis, Line, Query
from services.data.annotate.exchange import passed_turn
from services.data.annotate.tempting import tempting_moves


class Engines(Protocol):
    """Whoever searches: a `rookery.engines.EnginePool`, one of its request queues, or a test's own."""

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard the engine works: `lines` best moves in `nodes`, every other search in `side_nodes`."""

    nodes: int = 20_000
    lines: int = 3
    tempting: int = 2
    side_nodes: int = 5_000
    threat: bool = True


@dataclass(frozen=True, slots=True)
class Study:
    """The engine's answers about `fen`, scores for the side to move.

    `lines` are the best moves, best first; `refuted` natural moves that are not among them, each with
    the line against it; `threat` what the other side plays if the mover passes, its score for that side.
    """

    fen: str
    lines: tuple[Line, ...]
    refuted: tuple[Line, ...] = ()
    threat: Line | None = None

    @property
    def best(self) -> Line:
        """The best line."""
        return self.lines[0]

    def line_of(self, uci: str) -> Line | None:
        """The line that begins with a move."""
        return next((line for line in (*self.lines, *self.refuted) if line.pv[0] == uci), None)


async def study(fen: str, engines: Engines, effort: Effort) -> Study:
    """Asks `engines` about a position.

    Raises:
        InvalidInput: the FEN is broken, or the game is over there.
        EngineFault: the engine died or answered what cannot be played.
    """
    board = sound_board(fen)
    lines = min(effort.lines, board.legal_moves.count())
    passed = passed_turn(board) if effort.threat else None
    main, threat = await asyncio.gather(
        engines.search(Query(fen, effort.nodes, lines=lines)), _threat(passed, engines, effort)
    )
    best = _playable(board, main.lines)
    named = {chess.Move.from_uci(line.pv[0]) for line in best}
    moves = tempting_moves(board, leave_out=named, count=effort.tempting)
    queries = [Query(fen, effort.side_nodes, move=move.uci()) for move in moves]
    answers = await asyncio.gather(*(engines.search(query) for query in queries))
    refuted = _playable(board, tuple(answer.lines[0] for answer in answers))
    return Study(fen, best, refuted, threat)


def sound_board(fen: str) -> chess.Board:
    """The board of a FEN in which there is something to decide.

    Raises:
        InvalidInput: the FEN is broken, or the game is over there.
    """
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise InvalidInput(f"no position: {fen!r}: {error}") from error
    if not board.is_valid():
        raise InvalidInput(f"no legal position: {fen!r}: {board.status()!r}")
    if not any(board.generate_legal_moves()):
        raise InvalidInput(f"the game is over: {fen!r}")
    return board


async def _threat(passed: chess.Board | None, engines: Engines, effort: Effort) -> Line | None:
    if passed is None or not any(passed.generate_legal_moves()):
        return None
    analysis = await engines.search(Query(passed.fen(), effort.side_nodes))
    return _playable(passed, analysis.lines[:1])[0]


def _playable(board: chess.Board, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    for line in lines:
        replay = board.copy(stack=False)
        for uci in line.pv:
            try:
                replay.push(replay.parse_uci(uci))
            except ValueError as error:
                raise EngineFault(f"the engine plays {uci!r} in {replay.fen()!r}") from error
    return lines

"""Asks the engine about a position, before a text is written about it.

A small search names the best moves. One with many more nodes decides which is best, so that a text
recommends no blunder; every other move, a natural one among them, gets a search of its own. One more says
what the other side would do if the mover passed. Natural moves are those a player would look at whatever the
engine thinks: captures, checks, attacks, castling. Nothing here writes or judges.
"""

import asyncio
from collections.abc import Set
from dataclasses import dataclass
from typing import Self

import chess

from chess_datasets.jobs import Searcher
from commentary import Score, Study, StudyLine
from commentary.concepts.pieces import at_home
from commentary.exchange import gain, is_absurd, passed_turn, worth
from commentary.study import sound_board
from rookery import uci
from rookery.errors import EngineFault, InvalidInput
from rookery.uci import Query

_LURE_OF_CHECK = 1.5
_LURE_OF_CASTLING = 1.2
_LURE_OF_DEVELOPMENT = 1.0
_LEAST_LURE = 0.9


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard the engine works, in nodes a search.

    `nodes` decide the best move. `screen_nodes` name the `lines` best and the threat. `side_nodes` are for
    each other move, at most `tempting` natural ones among them: half of what decides changes no verdict by
    0.1 of win probability, a quarter about 1 in 100.
    """

    nodes: int = 100_000
    lines: int = 3
    tempting: int = 2
    screen_nodes: int = 10_000
    side_nodes: int = 50_000
    threat: bool = True

    @classmethod
    def of(cls, nodes: int, *, lines: int) -> Self:
        """The same shares of any number of `nodes`."""
        return cls(nodes, lines, screen_nodes=max(1, nodes // 10), side_nodes=max(1, nodes // 2))


async def study(fen: str, engines: Searcher, effort: Effort, *, last: str | None = None) -> Study:
    """Asks `engines` about a position; `last` is the move that led to it, if it is known. Raises
    `InvalidInput` if the FEN is broken, or the game is over there; `EngineFault` if the engine died or
    answered what cannot be played."""
    board = decidable(fen)
    lines = min(effort.lines, board.legal_moves.count())
    passed = passed_turn(board) if effort.threat else None
    screen, decided, threat = await asyncio.gather(
        engines.search(Query(fen, effort.screen_nodes, lines=lines)),
        engines.search(Query(fen, effort.nodes)),
        _threat(passed, engines, effort),
    )
    best = decided.lines[0]
    others = [line.pv[0] for line in screen.lines if line.pv[0] != best.pv[0]][: lines - 1]
    _playable(board, (best, *screen.lines))
    searched = {chess.Move.from_uci(uci) for uci in (best.pv[0], *others)}
    natural = [move.uci() for move in tempting_moves(board, leave_out=searched, count=effort.tempting)]
    queries = [Query(fen, effort.side_nodes, move=move) for move in (*others, *natural)]
    answers = await asyncio.gather(*(engines.search(query) for query in queries))
    rest = _playable(board, tuple(answer.lines[0] for answer in answers))
    ranked = sorted(rest[: len(others)], key=lambda line: -line.score.value)
    return Study(fen, (_line(best), *ranked), rest[len(others) :], threat, last)


def decidable(fen: str) -> chess.Board:
    """The board of a FEN in which there is something to decide. Raises `InvalidInput` if the FEN is broken,
    or the game is over there."""
    try:
        board = sound_board(fen)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if not any(board.generate_legal_moves()):
        raise InvalidInput(f"the game is over: {fen!r}")
    return board


async def _threat(passed: chess.Board | None, engines: Searcher, effort: Effort) -> StudyLine | None:
    if passed is None or not any(passed.generate_legal_moves()):
        return None
    analysis = await engines.search(Query(passed.fen(), effort.screen_nodes))
    return _playable(passed, analysis.lines[:1])[0]


def _playable(board: chess.Board, lines: tuple[uci.Line, ...]) -> tuple[StudyLine, ...]:
    for line in lines:
        replay = board.copy(stack=False)
        for move in line.pv:
            try:
                replay.push(replay.parse_uci(move))
            except ValueError as error:
                raise EngineFault(f"the engine plays {move!r} in {replay.fen()!r}") from error
    return tuple(map(_line, lines))


def _line(line: uci.Line) -> StudyLine:
    return StudyLine(Score(line.evaluation.cp, line.evaluation.mate), line.pv)


def tempting_moves(board: chess.Board, *, leave_out: Set[chess.Move], count: int) -> tuple[chess.Move, ...]:
    """At most `count` natural moves, the most tempting first.

    >>> board = chess.Board("4k3/8/8/4p3/8/5N2/8/4K3 w - - 0 1")
    >>> [move.uci() for move in tempting_moves(board, leave_out=set(), count=1)]
    ['f3e5']
    """
    lures = [(_lure(board, move), move.uci(), move) for move in board.legal_moves if move not in leave_out]
    lures = sorted((lure for lure in lures if lure[0] >= _LEAST_LURE), key=lambda lure: (-lure[0], lure[1]))
    return tuple(move for _, _, move in lures[:count])


def _lure(board: chess.Board, move: chess.Move) -> float:
    if is_absurd(board, move):
        return 0.0
    gained, lure = gain(board, move), 0.0
    if board.is_capture(move):
        bite = max(1, worth(board, move.to_square))
        lure += 0.8 + 0.3 * bite + (1.0 if gained >= 0 else -0.15 * worth(board, move.from_square))
    if board.gives_check(move):
        lure += _LURE_OF_CHECK
    if board.is_castling(move):
        lure += _LURE_OF_CASTLING
    if move.promotion:
        lure += 3.0 if move.promotion == chess.QUEEN else -2.0
    if move.from_square in at_home(board, board.turn):
        lure += _LURE_OF_DEVELOPMENT
    return lure + _aim(board, move)


def _aim(board: chess.Board, move: chess.Move) -> float:
    """How much the moved piece would look at from its new square, if it can stand there."""
    after = board.copy(stack=False)
    piece = after.remove_piece_at(move.from_square)
    if piece is None or piece.piece_type == chess.KING or gain(board, move) < 0:
        return 0.0
    after.set_piece_at(move.to_square, piece)
    reach = after.attacks_mask(move.to_square) & board.occupied_co[not board.turn] & ~board.kings
    prey = [
        worth(board, square)
        for square in chess.scan_forward(reach)
        if worth(board, square) > worth(board, move.from_square)
        or not board.attackers_mask(not board.turn, square)
    ]
    return 0.35 * min(4, max(prey, default=0)) + 0.4 * (len(prey) > 1)

"""Makes RookWorld's `P:` and `A:` lines from positions, without the label errors of the published ones.

* `P:` the best move is the best for the side to move, Black too: the published lines name the worst of
  the five wherever Black is to play.
* `A:` a move is illegal when the rules say so, not only when it starts from an empty square; and enough
  moves are illegal, or end the game, that there is something to learn about both.

What is random depends on the seed and the position alone, never on the order of the work.
"""

import logging
import random
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import chess

from rookery import rookworld, rookworld_env
from rookery.errors import EngineFault, Quarantined
from rookery.prompt import POLICY_TASK, STATE_TASK
from rookery.rookworld import PolicyLine, StateLine
from rookery.trace import Position
from rookery.uci import Analysis, Query
from services.data.concurrency import in_order

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mix:
    """The shares of the kinds of lines, each in [0, 1].

    `state` is the share of `A:` lines among all lines. `illegal` is the share of `A:` lines with an illegal
    move. In `ending` of the other `A:` lines the move ends the game, if such a move exists.
    """

    state: float = 0.2
    illegal: float = 0.05
    ending: float = 0.5


MIX = Mix()


class Engines(Protocol):
    """Anything that searches: a `rookery.engines.EnginePool` or one of its request queues."""

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`."""


async def lines(
    positions: Iterable[Position],
    engines: Engines,
    *,
    nodes: int,
    seed: int = 0,
    mix: Mix = MIX,
    ahead: int = 64,
) -> AsyncGenerator[tuple[Position, PolicyLine | StateLine]]:
    """One line for each position, in order, while up to `ahead` searches are under way.

    A position that kills engines is left out, with a warning.

    Raises:
        Unavailable: the engines are not available.
        EngineFault: `nodes` is too low for the wanted number of lines.
    """
    work = (_line(position, engines, nodes, seed, mix) for position in positions)
    async for position, line in in_order(work, ahead=ahead):
        if line is not None:
            yield position, line


async def _line(
    position: Position, engines: Engines, nodes: int, seed: int, mix: Mix
) -> tuple[Position, PolicyLine | StateLine | None]:
    rng = random.Random(f"{seed}:{position.id}")
    if rng.random() < mix.state:
        return position, state_line(position, rng, mix=mix)
    try:
        analysis = await engines.search(policy_query(position.fen, nodes=nodes))
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return position, None
    return position, policy_line(position.fen, analysis, rng)


def policy_query(fen: str, *, nodes: int) -> Query:
    """The engine query for a `P:` line, with White to move, so that the colour makes no difference."""
    board = chess.Board(fen)
    seen = board if board.turn else board.mirror()
    return Query(seen.fen(), nodes, lines=min(rookworld.CANDIDATES, board.legal_moves.count()))


def policy_line(fen: str, analysis: Analysis, rng: random.Random) -> PolicyLine:
    """The `P:` line of the answer to `policy_query`: moves in no order, evaluations for the side to move.

    Raises:
        EngineFault: the answer lacks moves, because the search was too short.
    """
    board = chess.Board(fen)
    wanted = min(rookworld.CANDIDATES, board.legal_moves.count())
    if len(analysis.lines) < wanted:
        raise EngineFault(
            f"{len(analysis.lines)} of {wanted} moves judged in {analysis.nodes} nodes: {fen!r}"
        )
    judged = [
        (seen_by(board, line.pv[0]), rookworld.to_pawns(line.evaluation)) for line in analysis.lines[:wanted]
    ]
    best = max(judged, key=lambda move: move[1])[0]
    shuffled = sorted(judged, key=lambda _: rng.random())
    return PolicyLine(fen, tuple(m for m, _ in shuffled), tuple(pawns for _, pawns in shuffled), best)


def state_line(position: Position, rng: random.Random, *, mix: Mix = MIX) -> StateLine:
    """The `A:` line of a move in `position`, legal or not."""
    move = state_move(chess.Board(position.fen), rng, mix=mix)
    return rookworld_env.step(position.fen, move, recent=position.last_moves)


def seen_by(board: chess.Board, uci: str) -> str:
    """Converts a move on the engine's board, which has White to move, to the move on `board`."""
    if board.turn:
        return uci
    move = chess.Move.from_uci(uci)
    flip = chess.square_mirror
    return chess.Move(flip(move.from_square), flip(move.to_square), move.promotion).uci()


def asked(position: Position, *, seed: int, mix: Mix = MIX) -> Position:
    """The position with its task set and, for the task `A`, its move."""
    rng = random.Random(f"{seed}:{position.id}")
    if rng.random() < mix.state:
        return replace(position, task=STATE_TASK, move=state_move(chess.Board(position.fen), rng, mix=mix))
    return replace(position, task=POLICY_TASK)


def state_move(board: chess.Board, rng: random.Random, *, mix: Mix = MIX) -> str:
    """A move in UCI to ask about, legal or not."""
    if rng.random() < mix.illegal:
        return illegal_move(board, rng)
    moves = list(board.legal_moves)
    if rng.random() < mix.ending:
        moves = [move for move in moves if _ends(board, move)] or moves
    return moves[int(rng.random() * len(moves))].uci()


def _ends(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    ended = board.is_game_over()
    board.pop()
    return ended


def illegal_move(board: chess.Board, rng: random.Random) -> str:
    """An illegal move in UCI. Its kind is drawn from those that the position has."""
    kinds = [moves for moves in illegal_moves(board) if moves]
    moves = kinds[int(rng.random() * len(kinds))]
    return moves[int(rng.random() * len(moves))].uci()


def illegal_moves(board: chess.Board) -> list[list[chess.Move]]:
    """Illegal moves by kind, from those that only the rules of check forbid to those of nothing at all."""
    kinds = (_into_check, _theirs, _ours, _nothing)
    return [[move for move in kind(board) if not board.is_legal(move)] for kind in kinds]


def _into_check(board: chess.Board) -> list[chess.Move]:
    """Pseudo-legal moves that leave the king in check."""
    return [*board.generate_pseudo_legal_moves(), *_castling_that_stands(board)]


def _castling_that_stands(board: chess.Board) -> list[chess.Move]:
    """Castling by the king's two squares, lawful or not, wherever king and rook are at home."""
    rank = chess.BB_RANK_1 if board.turn else chess.BB_RANK_8
    king = board.king(board.turn)
    home = chess.E1 if board.turn else chess.E8
    if king != home or not board.rooks & board.occupied_co[board.turn] & rank & chess.BB_CORNERS:
        return []
    return [chess.Move(home, home + 2), chess.Move(home, home - 2)]


def _theirs(board: chess.Board) -> list[chess.Move]:
    """The opponent's moves."""
    other = board.copy(stack=False)
    other.turn = not board.turn
    other.ep_square = None
    return list(other.generate_pseudo_legal_moves())


def _ours(board: chess.Board) -> list[chess.Move]:
    """Pieces to squares they cannot reach: through others, onto their own, in no direction of theirs."""
    return [
        chess.Move(start, end)
        for start in chess.SquareSet(board.occupied_co[board.turn])
        for end in chess.SQUARES
        if start != end
    ]


def _nothing(board: chess.Board) -> list[chess.Move]:
    """Moves from an empty square."""
    empty = chess.SquareSet(~board.occupied & chess.BB_ALL)
    return [chess.Move(start, end) for start in empty for end in chess.SQUARES if start != end]

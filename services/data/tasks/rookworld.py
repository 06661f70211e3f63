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
from typing import Protocol

import chess

from rookery import rookworld, rookworld_env
from rookery.errors import EngineFault, Quarantined
from rookery.rookworld import PolicyLine, StateLine
from rookery.trace import Position
from rookery.uci import Analysis, Query
from services.data.tasks.inorder import in_order
from services.data.tasks.questions import MIX, Mix, state_move

logger = logging.getLogger(__name__)


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

"""Makes RookWorld's `P:` and `A:` questions from positions, and labels them.

The published data set has label errors, which these lines do not have:

* `P:` names the best move for the side to move. The published lines name the worst of the five candidates
  whenever Black is to move.
* `A:` calls a move illegal if the rules forbid it, not only if it starts from an empty square. A share of the
  moves is illegal and a share ends the game, so a model can learn about both.

Random choices depend only on the seed and the position, never on the order of the work. The answers of a
policy are not labelled here: the reward service judges them.
"""

import logging
import random
from dataclasses import dataclass, replace

import chess

from chess_datasets.jobs import Searcher
from rookery import rookworld, rookworld_env
from rookery.errors import EngineFault, Quarantined
from rookery.prompt import POLICY_TASK, STATE_TASK, mirrored_move, mover_board
from rookery.rookworld import PolicyAnswer, PolicyLine, StateLine
from rookery.trace import Position
from rookery.uci import Analysis, Query

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RookworldMix:
    """The shares of the kinds of lines, each in [0, 1].

    `state` is the share of `A:` lines among all lines. `illegal` is the share of `A:` lines with an illegal
    move. In `ending` of the other `A:` lines the move ends the game, if such a move exists.
    """

    state: float = 0.2
    illegal: float = 0.05
    ending: float = 0.5


MIX = RookworldMix()


def assign_task(position: Position, *, seed: int, mix: RookworldMix = MIX) -> Position:
    """The position with its task set to `P` or `A` and, for `A`, with the move to ask about."""
    rng = random.Random(f"{seed}:{position.id}")
    if rng.random() < mix.state:
        return replace(position, task=STATE_TASK, move=state_move(chess.Board(position.fen), rng, mix=mix))
    return replace(position, task=POLICY_TASK)


async def labelled_line(
    position: Position, engines: Searcher, *, nodes: int, seed: int = 0, mix: RookworldMix = MIX
) -> PolicyLine | StateLine | None:
    """The line of a position. A position that kills engines has none, and is logged. Raises `Unavailable` if
    the engines are not available; `EngineFault` if `nodes` is too low for the wanted number of lines."""
    rng = random.Random(f"{seed}:{position.id}")
    if rng.random() < mix.state:
        return state_line(position, rng, mix=mix)
    try:
        analysis = await engines.search(policy_query(position.fen, nodes=nodes))
    except Quarantined as error:
        logger.warning("left out: %s", error)
        return None
    return policy_line(position.fen, analysis, rng)


def policy_query(fen: str, *, nodes: int) -> Query:
    """The engine query for a `P:` line. White is always to move in it, so colour makes no difference."""
    board = mover_board(fen)
    return Query(board.fen(), nodes, lines=min(rookworld.CANDIDATES, board.legal_moves.count()))


def policy_line(fen: str, analysis: Analysis, rng: random.Random) -> PolicyLine:
    """The `P:` line from the answer to `policy_query`: moves in random order, with their evaluations.

    Evaluations are in pawns for the side to move. Raises `EngineFault` if the answer lacks moves, because the
    search was too short.
    """
    board = chess.Board(fen)
    line_count = min(rookworld.CANDIDATES, board.legal_moves.count())
    if len(analysis.lines) < line_count:
        raise EngineFault(
            f"{len(analysis.lines)} of {line_count} moves judged in {analysis.nodes} nodes: {fen!r}"
        )
    judged = [
        (engine_move(board, line.pv[0]), rookworld.to_pawns(line.evaluation))
        for line in analysis.lines[:line_count]
    ]
    best = max(judged, key=lambda move: move[1])[0]
    shuffled = sorted(judged, key=lambda _: rng.random())
    answer = PolicyAnswer(tuple(m for m, _ in shuffled), tuple(pawns for _, pawns in shuffled), best)
    return PolicyLine(fen, answer)


def state_line(position: Position, rng: random.Random, *, mix: RookworldMix = MIX) -> StateLine:
    """The `A:` line of a random move in `position`, legal or not."""
    move = state_move(chess.Board(position.fen), rng, mix=mix)
    return rookworld_env.step(position.fen, move, recent=position.last_moves)


def engine_move(board: chess.Board, uci: str) -> str:
    """The move on `board` that corresponds to `uci` on the engine's board, which has White to move."""
    return uci if board.turn else mirrored_move(uci)


def state_move(board: chess.Board, rng: random.Random, *, mix: RookworldMix = MIX) -> str:
    """A random move in UCI to ask about, legal or not."""
    if rng.random() < mix.illegal:
        return illegal_move(board, rng)
    moves = list(board.legal_moves)
    if rng.random() < mix.ending:
        moves = [move for move in moves if _ends_game(board, move)] or moves
    return moves[int(rng.random() * len(moves))].uci()


def _ends_game(board: chess.Board, move: chess.Move) -> bool:
    board.push(move)
    ended = board.is_game_over()
    board.pop()
    return ended


def illegal_move(board: chess.Board, rng: random.Random) -> str:
    """A random illegal move in UCI. Its kind is drawn first, from the kinds that the position has."""
    kinds = [moves for moves in illegal_moves(board) if moves]
    moves = kinds[int(rng.random() * len(kinds))]
    return moves[int(rng.random() * len(moves))].uci()


def illegal_moves(board: chess.Board) -> list[list[chess.Move]]:
    """Illegal moves by kind, from those that only the rules of check forbid to those from empty squares."""
    kinds = (_leaving_king_in_check, _by_opponent, _out_of_reach, _from_empty_square)
    return [[move for move in kind(board) if not board.is_legal(move)] for kind in kinds]


def _leaving_king_in_check(board: chess.Board) -> list[chess.Move]:
    """Pseudo-legal moves, and castling whenever the king and a rook are on their first squares."""
    moves = list(board.generate_pseudo_legal_moves())
    rank, home = (chess.BB_RANK_1, chess.E1) if board.turn else (chess.BB_RANK_8, chess.E8)
    rooks = board.rooks & board.occupied_co[board.turn] & rank & chess.BB_CORNERS
    if board.king(board.turn) == home and rooks:
        moves += [chess.Move(home, home + 2), chess.Move(home, home - 2)]
    return moves


def _by_opponent(board: chess.Board) -> list[chess.Move]:
    opponent_board = board.copy(stack=False)
    opponent_board.turn = not board.turn
    opponent_board.ep_square = None
    return list(opponent_board.generate_pseudo_legal_moves())


def _out_of_reach(board: chess.Board) -> list[chess.Move]:
    """Moves of own pieces to any square: through other pieces, onto own pieces, in wrong directions."""
    return [
        chess.Move(start, end)
        for start in chess.SquareSet(board.occupied_co[board.turn])
        for end in chess.SQUARES
        if start != end
    ]


def _from_empty_square(board: chess.Board) -> list[chess.Move]:
    empty = chess.SquareSet(~board.occupied & chess.BB_ALL)
    return [chess.Move(start, end) for start in empty for end in chess.SQUARES if start != end]

"""Mates in one for the side to move, and what the other side would do if it were its turn."""

from collections.abc import Callable, Iterator

import chess

from commentary.concept import Values, of_topic
from commentary.context import Context, Unknown
from commentary.exchange import passed_turn
from commentary.naming import bare
from commentary.predicates import captured, defenders, mates_on, worth_at

concept = of_topic("kings")
Foe = Callable[[chess.Board], chess.Move]
AT_ONCE = "(mate|checkmate)( (at|on) {goal:square})?( next| next move| on the next move| in one)?"
"""What "threatens mate" says: in one move, to the square that is named."""


def mating_moves(board: chess.Board) -> list[chess.Move]:
    """Every legal move that mates, found fast; `predicates.mates_on` decides what is true."""
    moves = []
    for move in list(board.legal_moves):
        if board.gives_check(move):
            board.push(move)
            if not any(board.generate_legal_moves()):
                moves.append(move)
            board.pop()
    return moves


def _mate_now(board: chess.Board) -> Iterator[Values]:
    if moves := mating_moves(board):
        yield {"side": board.turn, "move": bare(board, moves[0])}


def _mate_next(board: chess.Board) -> Iterator[Values]:
    passed = passed_turn(board)
    if passed and (moves := mating_moves(passed)):
        origin, target = moves[0].from_square, moves[0].to_square
        yield {"side": passed.turn, "foe": bare(passed, moves[0]), "origin": origin, "target": target}


def is_threat(context: Context, foe: Foe, side: bool | None = None) -> bool:
    """Whether a move, if it were that side's turn, mates, queens or takes what is loose or worth more. Raises
    `Unknown` if it could be played, but whether it gains anything is for an engine to say."""
    board = context.board if side == context.board.turn else context.passed(context.board)
    move = foe(board)
    prey = captured(board, move)
    gains = prey is not None and (
        not defenders(board, prey) or worth_at(board, prey) > worth_at(board, move.from_square)
    )
    if gains or move.promotion or move in mates_on(board):
        return True
    raise Unknown(move.uci())


@concept("mate in one", detect=_mate_now, weight=100.0, favours="side").says(
    "there is (a |)mate in one",
    "{side} ~have a mate in one",
    "there is (a )?mate in one with {move:candidate}",
    "||{move:candidate} ~be (a )?mate in one",
)
def _mates_now(context: Context, move: chess.Move | None = None, side: bool | None = None) -> bool:
    mates = mates_on(context.board)
    return bool(mates) and (move is None or move in mates) and side in (None, context.board.turn)


@concept("threat of mate", detect=_mate_next, weight=60.0, favours="side").says(
    "{side} ~threaten mate (with|by) {foe}",
    "{foe:mate} ~be (threatened||the threat|a threat|in the air)( by {side})?",
    "if it were {side:owner} turn, {foe} would be mate",
    "given another tempo, {side} would mate with {foe}",
    "||{side} ~threaten {foe:mate}",
    "||{side} ~threaten (checkmate|to mate) (with|by) {foe}",
    "||{side} ~threaten " + AT_ONCE,
    "||{piece} ~threaten " + AT_ONCE,
)
def would_mate(
    context: Context,
    foe: Foe | None = None,
    side: bool | None = None,
    piece: int | None = None,
    goal: int | None = None,
) -> bool:
    """Whether the move, or one that fits, would be mate if `side` had the turn. Without `side` and `piece`,
    it is the side that is not to move."""
    side = side if piece is None else context.owner(piece)
    board = context.board if side == context.board.turn else context.passed(context.board)
    mates = mates_on(board)
    if foe is not None:
        return foe(board) in mates
    fitting = (m for m in mates if piece in (None, m.from_square) and goal in (None, m.to_square))
    return any(context.board.legal_moves) and any(fitting)


concept("threat of a move", holds=is_threat).says(
    "||{side} ~threaten (to play )?{foe}( next)?",
    "||{foe} ~be (threatened|the threat|a threat|in the air)( by {side})?",
    "||the threat ~be {foe}",
)

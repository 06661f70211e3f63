"""Checks, legal replies, whose move it is."""

from collections.abc import Iterator, Sequence

import chess

from commentary.concept import Values, of_topic
from commentary.context import Context

concept = of_topic("kings")
_FEW = 6
"""Legal replies to a check up to which they are worth counting."""


def _checked(board: chess.Board) -> Iterator[Values]:
    if board.is_check():
        checkers = list(chess.scan_forward(board.checkers_mask()))
        replies = board.legal_moves.count()
        single = len(checkers) == 1
        yield {
            "side": board.turn,
            "checker": checkers[0] if single else None,
            "double": None if single else checkers,
            "few": replies if 1 < replies <= _FEW and single else None,
        }


@concept("check", detect=_checked, weight=40.0, favours="-side").says(
    "{side} ~be (|already )in check( here| now)? from {checker}",
    "{checker} (~give check|~be giving check)",
    ">{side} ~be in check from {checker}, and there are only {few:count} legal replies",
    ">{checker} ~give check, and there are just {few:count} legal replies",
    "{double:pieces} both give check",
    "||{side} ~be (already )?in check( here| now)?",
    "||{king:piece} ~be in check( from {checker})?",
    "||{checker} ~check {king:piece}",
)
def _gives_check(
    context: Context,
    checker: int | None = None,
    double: Sequence[int] = (),
    side: bool | None = None,
    king: int | None = None,
) -> bool:
    board, checkers = context.board, set(context.board.checkers())
    whose = side in (None, board.turn) and king in (None, board.king(board.turn))
    there = {*double, *checkers} == checkers and (checker is None or checker in checkers)
    return bool(checkers) and there and whose and (not double or len(double) == len(checkers))


concept("legal replies", holds=lambda context, n: context.board.legal_moves.count() == n).says(
    "||there ~be (just |only |exactly )?{n:count} legal (move|moves|reply|replies|answer|answers)( here)?"
)
concept("side to move", holds=lambda context, side: context.board.turn == side, weight=0.2).says(
    "{side} to move",
    "||{side} ~be to (move|play)( next)?",
    "||it ~be {side:owner} (turn|move)( to (move|play))?",
    "||it ~be {side} to (play|move)",
    "||it ~be {side} who must (give way|move|step aside)",
)

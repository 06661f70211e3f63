"""What models say of a position in their own words, and no writer here: read, never written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import chess

from commentary import concept as registry
from commentary import predicates
from commentary.concept import move_concept
from commentary.context import Context

concept = partial(registry.concept, topic="prose")


def _stands_on(
    context: Context,
    squares: Sequence[int],
    piece: Sequence[int] = (),
    side: bool | None = None,
    kind: int = 0,
) -> bool:
    found = piece if side is None else predicates.all_of(context.board, side, chess.piece_name(kind))
    return bool(squares) and set(squares) <= set(found)


concept(
    "piece on a square",
    "||{piece:some} ~(be|stand|sit) (currently |already |now |still )?(located |placed |positioned )?(on|at) {squares}",
    "||{piece:some}: {squares}",
    "||{side} {kind}(s)?: {squares}",
    holds=_stands_on,
    weight=0.2,
)
concept(
    "there is a piece",
    "||there ~be (indeed |also |still )?{piece:some}",
    holds=lambda context, piece: bool(piece),
    weight=0.1,
)
move_concept(
    "captures with a piece",
    "||~(involve capturing|suggest capturing|capture|take) {victim:before} with {piece:before}",
    topic="prose",
    holds=lambda context, victim, piece: context.victim == victim and piece == context.move.from_square,
    weight=2.0,
)
concept(
    "own colour",
    "||{us:side} ~be (playing )?(as )?(the )?{colour:word}( pieces)?",
    "||{us:side} ~be (playing )?(as )?{colour:side}",
    holds=lambda context, colour: colour in (context.mover, "white" if context.mover else "black"),
    weight=0.1,
)
concept(
    "whose turn",
    "||it ~be {side:owner} (turn|move)( to (move|play))?",
    "||{side} ~be to (play|move)( next)?",
    "||it ~be {side} to (play|move)",
    holds=lambda context, side: context.board.turn == side,
    weight=0.2,
)
concept(
    "no castling rights",
    "||there ~be no castling rights( available)?( left)?( for either side)?",
    "||(neither side|nobody) can castle( any more)?",
    holds=lambda context: not any(context.board.has_castling_rights(side) for side in chess.COLORS),
)
concept(
    "castled",
    "||both (sides|kings|players) (have|are) castled",
    "||{side} ~have (already )?castled",
    holds=lambda context, side=None: all(
        _has_castled(context.board, colour) for colour in chess.COLORS if side in (None, colour)
    ),
)


def _has_castled(board: chess.Board, side: chess.Color) -> bool:
    """As far as a board shows it: the king where castling takes it, its rook beside it, and no rights left."""
    home = "1" if side == chess.WHITE else "8"
    king = chess.square_name(predicates.all_of(board, side, "king")[0])
    rooks = {chess.square_name(square) for square in predicates.all_of(board, side, "rook")}
    pairs = (({"g" + home}, {"f" + home, "e" + home}), ({"c" + home, "b" + home}, {"d" + home}))
    return not board.has_castling_rights(side) and any(
        king in kings and rooks & near for kings, near in pairs
    )


def _moves_there(
    context: Context, goal: int, piece: int | None = None, origin: int | None = None, kind: int | None = None
) -> bool:
    moved = context.before.piece_type_at(context.move.from_square)
    from_there = all(square in (None, context.move.from_square) for square in (piece, origin))
    return from_there and goal == context.to and kind in (None, moved)


move_concept(
    "moves a piece",
    "||~(involve moving|suggest moving|mean moving|move|bring|place|put|take) {piece:before} (from {origin:square} )?(to|on) {goal:square}",
    "||~(involve|suggest|mean) {piece:before} moving (from {origin:square} )?to {goal:square}",
    "||~(involve moving|suggest moving|move) (the|a|{side:owner}) {kind} (from {origin:square} )?to {goal:square}",
    topic="prose",
    holds=lambda context, side=None, **named: (
        side in (None, context.before.turn) and _moves_there(context, **named)
    ),
    weight=0.2,
)
move_concept(
    "legal move",
    "||~be (a )?legal( move)?",
    topic="prose",
    holds=lambda context: True,
    weight=0.1,
)

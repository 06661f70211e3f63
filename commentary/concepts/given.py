"""What a FEN or a list of legal moves says already: read, never written, and no merit in a reward."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import chess

from commentary import predicates
from commentary.concept import of_topic
from commentary.concepts.mates import Foe
from commentary.concepts.pieces import home_count
from commentary.context import Context, Unknown, Unresolved
from commentary.wording import HOW

concept = of_topic("given", weight=0.1)
move_concept = of_topic("given", about_moves=True, weight=0.1)

_STATE = (
    "((located|present|placed|positioned|posted|stationed|situated|exposed|active|safe|developed|undeveloped|"
    "vulnerable|centralised|stuck|strong|powerful|passive|weak|well-placed|well-positioned|tucked away|sitting|"
    "standing) )?"
)
_JUDGED = (
    "((currently|already|now|still|somewhat|quite|relatively|fairly|rather|well|actively|also) )?"
    "((located|placed|positioned|posted|exposed|active|safe|developed|vulnerable) )?"
)
"""What may stand before the square of a piece: only the place is a claim, whether it is safe there is not."""


@concept("piece on a square").says(
    "||{piece:some} ~(be|stand|sit) " + _JUDGED + "(on|at) (the )?(square )?{squares}",
    "||{piece:some}: {squares}",
    "||{side} {kind}(s)?: {squares}",
    "||{side} (~have )?(a |the |its |their )?{kind}(s)? (on|at) {squares}",
    f"<{{piece:some}} ~(be|stand|sit|remain|look|seem|appear) {HOW}{HOW}{_STATE}(on|at) (the )?(square )?{{squares:spots}}",
    "<{side} ~have (also |already |just )?(moved|developed|placed|put|brought|castled) (its|their|his|her|the|a) {kind} (to|on|onto) {squares}",
    "<{side} ~have {kind}s (developed|placed|positioned|posted) on {squares}",
)
def _stands_on(
    context: Context,
    squares: Sequence[int],
    piece: Sequence[int] = (),
    side: bool | None = None,
    kind: int = 0,
) -> bool:
    places = piece if side is None else predicates.all_of(context.board, side, chess.piece_name(kind))
    return bool(squares) and set(squares) <= set(places)


concept("there is a piece", holds=lambda context, piece: bool(piece)).says(
    "||there ~be (indeed |also |still )?{piece:some}"
)


def _sides(side: bool | None) -> list[chess.Color]:
    """The side that is named, or both sides if none is."""
    return [colour for colour in chess.COLORS if side in (None, colour)]


concept("own colour", holds=lambda context, colour: colour == context.mover).says(
    "||{us:side} ~be (playing )?(as )?(the )?{colour}( pieces)?",
    "||{us:side} ~be (playing )?(as )?{colour:side}",
)


def _wing_castled_to(board: chess.Board, side: chess.Color) -> str:
    """The wing a side has castled to, by the squares of king and rook, and no rights left; "" if none."""
    home = "1" if side == chess.WHITE else "8"
    king = chess.square_name(predicates.all_of(board, side, "king")[0])
    rooks = {chess.square_name(square) for square in predicates.all_of(board, side, "rook")}
    for wing, kings, near in (("kingside", "g", "fe"), ("queenside", "cb", "d")):
        beside = rooks & {file + home for file in near}
        if king in {file + home for file in kings} and beside and not board.has_castling_rights(side):
            return wing
    return ""


@concept("castled").says(
    "||both (sides|kings|players) (have|are) castled( on the)?( {wing:word})?",
    "||{side} ~have (already )?castled( on the)?( {wing:word})?",
)
def _castled(context: Context, side: bool | None = None, wing: str = "") -> bool:
    wings = [_wing_castled_to(context.board, colour) for colour in _sides(side)]
    return all(wings) and all(wing in ("", name) for name in wings)


@concept("not castled").says(
    "||{side} ~have not (yet )?castled( yet)?",
    "||neither (side|king|player) ~have castled( yet)?",
)
def _not_castled(context: Context, side: bool | None = None) -> bool:
    if any(_wing_castled_to(context.board, colour) for colour in _sides(side)):
        return False
    if not all(map(context.board.has_castling_rights, _sides(side))):
        raise Unknown("a king may have castled and walked on")
    return True


@concept("no castling rights").says(
    "||there ~be no castling rights( available)?( left)?( for either side)?",
    "||no castling rights(( ~be)? (available|present|left)| remain| exist)?( for either side)?",
    "||(neither side|nobody) (can castle any more|~have (any )?castling rights( left| available)?)",
    "||{side} ~have (no castling rights( left| available)?|lost the right to castle)",
    "||{side} (can no longer castle|may no longer castle|cannot castle any more)",
)
def _no_rights(context: Context, side: bool | None = None) -> bool:
    return not any(map(context.board.has_castling_rights, _sides(side)))


concept(
    "nothing special to play",
    holds=lambda context, side=None: _no_rights(context, side) and not context.board.has_legal_en_passant(),
).says(
    "||there ~be no castling rights or en passant (target )?(square|squares|opportunities|captures)( available)?",
    "||{side} ~have no castling rights or en passant (target )?(square|squares|opportunities|captures)",
)
concept("no en passant", holds=lambda context, side=None: not context.board.has_legal_en_passant()).says(
    "||there ~be no en passant (target )?(square|squares|capture|captures)( available| possible)?",
    "||no en passant (target )?(square|squares|capture|captures)(( ~be)? (available|possible|present))?",
    "||{side} ~have no en passant (target )?(square|squares|capture|captures)",
)


@concept("clock").says(
    "||the (halfmove|half-move) clock ~be (currently )?(at )?{half:count}",
    "||the (fullmove|full-move|full move) (number|count|counter) ~be (currently )?(at )?{full:count}",
)
def _clocks(context: Context, half: int | None = None, full: int | None = None) -> bool:
    board = context.board
    return half in (None, board.halfmove_clock) and full in (None, board.fullmove_number)


@concept("no such piece").says(
    "||{squares} ~be (both |all )?(empty|clear|free|vacant|unoccupied)",
    "||there ~be (nothing|no pieces) on {squares}",
    "||nothing ~(stand|be) on {squares}",
    "||there ~be no ({colour} )?({kind}|piece) on {squares}",
    f"<{{squares}} ~(be|seem|appear|look) {HOW}(empty|vacant|unoccupied|not occupied)",
    "<there ~be (nothing|no piece|no pieces|not a piece|not any piece|not any pieces) (on|at|occupying) {squares}",
)
def _is_not_there(
    context: Context, squares: Sequence[int], kind: int = 0, colour: bool | None = None
) -> bool:
    pieces = [piece for square in squares if (piece := context.board.piece_at(square))]
    return not any(kind in (0, p.piece_type) and colour in (None, p.color) for p in pieces)


@concept("developed").says(
    "||{side} ~have (already )?developed (some|several|a few) (of (its|their) )?(minor )?pieces",
    "||both sides ~have (already )?developed (some|several|a few) (of their )?(minor )?pieces",
)
def _are_developed(context: Context, side: bool | None = None) -> bool:
    """Whether at least one knight or bishop has left the square that it starts from."""
    return all(home_count(context.board, colour) < 4 for colour in _sides(side))


@concept("occupied square").says(
    "||{squares} ~be (already )?occupied( by {piece:some})?",
    "||{squares} ~be (already )?occupied by (a|an) ({colour} )?{kind}",
    "||there ~be (a|an) {colour} {kind} (on|at) {squares}",
    "<({owner} |{colour} )?{kind}(s)? (on|at) {squares}",
    f"<{{squares}} ~be {HOW}(occupied|taken) by {{piece:some}}",
    f"<{{squares}} ~be {HOW}(occupied|taken) by (a|an|another) ({{colour}} )?{{kind}}",
)
def _is_occupied(
    context: Context,
    squares: Sequence[int],
    piece: Sequence[int] = (),
    kind: int = 0,
    colour: bool | None = None,
    owner: bool | None = None,
) -> bool:
    colour = owner if colour is None else colour
    occupants = [context.board.piece_at(square) for square in squares]
    right = (
        occupant and kind in (0, occupant.piece_type) and colour in (None, occupant.color)
        for occupant in occupants
    )
    return all(right) and (not piece or set(squares) <= set(piece))


@concept("so many pieces").says(
    "||{side} (still )?~have (only |just |still )?{n:count} {kind}(s)?( left)?",
    "||both sides (still )?~have (only |just |still )?{n:count} {kind}(s)?( left)?",
    "||{side} (still )?~have (only |just |still )?{units:units}( left)?",
    "||both sides (still )?~have (only |just |still )?{units:units}( left)?",
)
def _has_so_many(
    context: Context, units: Counter[str] | None = None, kind: int = 0, n: int = 0, side: bool | None = None
) -> bool:
    """Whether a side has at least one such piece where one is claimed, else exactly the number claimed."""
    counts = units if units is not None else Counter({chess.piece_name(kind): n})
    for colour, (name, number) in product(_sides(side), counts.items()):
        names = ("knight", "bishop") if name == "piece" else (name,)
        actual = predicates.count(context.board, colour, *names)
        if actual != number and not (number == 1 and actual):
            return False
    return True


@concept("not in check").says(
    "||{side} ~be not (currently )?(in|under) check",
    "||{king:piece} ~be not (currently )?(in check|under check|checked)",
    "||neither (side|king) ~be (currently )?in check",
)
def _is_not_in_check(context: Context, side: bool | None = None, king: int | None = None) -> bool:
    board = context.board
    is_mover = side in (None, board.turn) and king in (None, board.king(board.turn))
    return not (board.is_check() and is_mover)


_SHIFT = (
    "~(move|place|bring|put|develop|retreat|advance|push|reposition|relocate|shift|centralise|redeploy|transfer|"
    "maneuver|manoeuvre|swing|step|return)"
)
_MEANS = "(~(involve|suggest|mean|represent|be|propose) )?"
_WAY = "(from {origin:square} )?(to|on|onto) (square )?{goal:spot}"


@move_concept("moves a piece").says(
    "||~(involve moving|suggest moving|mean moving|move|bring|place|put|take) {piece:before} (from {origin:square} )?(to|on) {goal:square}",
    "||~(push|advance) {piece:before}( forward| on| further)?( to {goal:square})?",
    "||~(involve|suggest|mean) {piece:before} moving (from {origin:square} )?to {goal:square}",
    "||~(involve|suggest) (moving|repositioning|relocating|developing|shifting) {piece:before}",
    "||~(involve moving|suggest moving|move) (the|a|{side:owner}) {kind} (from {origin:square} )?to {goal:square}",
    f"<{_MEANS}{_SHIFT} {{piece:before}}( {_WAY})?",
    f"<{_MEANS}{_SHIFT} (my|our|a|the|their|{{side:owner}}) (other )?{{kind}}( {_WAY})?",
)
def _moves_there(
    context: Context, goal: int = -1, side: bool | None = None, kind: int | None = None, **starts: int
) -> bool:
    kinds = {board.piece_type_at(context.to) for board in (context.before, context.board)}
    if context.to in starts.values() and len(kinds) == 1:
        raise Unknown("what is taken, or what stands there now")
    whose = side in (None, context.before.turn) and kind in (
        None,
        context.before.piece_type_at(context.origin),
    )
    return whose and goal in (-1, context.to) and all(start == context.origin for start in starts.values())


def _can_move(
    context: Context, goals: Sequence[int], piece: int | None = None, origin: int | None = None
) -> bool:
    """Whether a piece can go to all of these squares, at the turn of its side."""
    start, board = piece if piece is not None else origin, context.board
    if start is not None and board.color_at(start) != board.turn:
        board = predicates.other_turn(board) or board
    return set(goals) <= {move.to_square for move in board.legal_moves if move.from_square == start}


def _is_illegal(context: Context, foe: Foe) -> bool:
    try:
        foe(context.board)
    except Unresolved:
        return True
    return False


concept("legal move", holds=lambda context, foe: not _is_illegal(context, foe)).says(
    "||{foe:named_move} ~be (also )?(a |an )?(legal|valid|allowed|possible)( move)?( for {us:object})?"
)
concept("illegal move", holds=_is_illegal).says(
    "||{foe:named_move} ~be not (a |an )?(legal|valid|allowed|possible)( move)?",
    "||{foe:named_move} ~be (also )?(an )?(illegal|invalid|impossible)( move)?",
)
concept("can move", holds=_can_move).says(
    "||{piece} can (also |legally |safely |then |now )?(move|go|be moved|advance|jump|retreat|step) (to|onto) {goals:squares}",
    "||(moving |move |go )?(from )?{origin:square} to {goals:squares} ~be (also )?(a )?(legal|valid|allowed|possible)( move)?",
    "||moving {piece} to {goals:squares} ~be (also )?(a )?(legal|valid|allowed|possible)( move)?",
    "||(moving |move |go )?(from )?{origin:square} (to|->) {goals:squares}: (also )?(legal|valid)",
)
concept("cannot move", holds=lambda context, piece, goal: not _can_move(context, [goal], piece)).says(
    "||{piece} cannot (legally |safely )?(move|go|be moved|advance|jump|retreat|step) (to|onto) {goal:square}"
)

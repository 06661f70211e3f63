"""Castling: kings in the centre, rights kept and lost, and files that lead to the king."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, of_topic
from commentary.concepts.files import heavy
from commentary.concepts.kings import CENTRAL, home_rank, middlegame_kings, side_of_king
from commentary.context import Context, Unknown

concept = of_topic("kings")


def _kings_in_centre(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        if chess.BB_SQUARES[king] & home_rank(side) & CENTRAL:
            short, long = board.has_kingside_castling_rights(side), board.has_queenside_castling_rights(side)
            wing = "kingside" if short else "queenside" if long else None
            yield {"side": side, "king": king, "wing": wing, "barred": None if wing else side}


_WINGS = {"": "", "kingside": "kingside", "queenside": "queenside", "short": "kingside", "long": "queenside"}


def _includes(wings: set[str], wing: str) -> bool:
    if wing not in _WINGS:
        raise Unknown(f"{wing!r} is not a wing")  # "can castle soon"
    return _WINGS[wing] in wings if wing else bool(wings)


def _may_castle(context: Context, side: bool, wing: str = "") -> bool:
    return _includes(predicates.castling_wings(context.board, side), wing)


def _central_weight(board: chess.Board, values: Values) -> float:
    stuck = 0 if values["wing"] else 1.2
    return 0.7 + min(1.5, board.ply() / 30) + stuck if board.queens else 0.5


@concept("king in the centre", detect=_kings_in_centre, weight=_central_weight, favours="-barred").says(
    "{king} ~(be||sit|stand|remain) (still |||stuck |caught )in the (centre||middle)( of the board)?",
    "{king} ~have not left the (centre||middle)( yet)?",
    ">{king} ~be still in the centre, but {side} can still castle {wing:word}",
    ">{king} ~(stand|be stuck) in the centre, and {barred:side} can no longer castle",
)
def _is_central(context: Context, king: int) -> bool:
    side_of_king(context, king)
    if chess.square_file(king) in (2, 5):
        raise Unknown("beside the centre")
    return chess.square_file(king) in (3, 4)


concept("castling rights", holds=_may_castle, favours="side").says(
    "||{side} (still )?~(keep|have) the right to castle( {wing:word})?",
    "||{side} (may|can) still castle( {wing:word})?",
)
concept(
    "castling rights on both sides",
    holds=lambda context, side: len(predicates.castling_wings(context.board, side)) == 2,
    favours="side",
).says(
    "||{side} (may|can) still castle on either side",
    "||{side} (still )?~(keep|have) the right to castle (on )?(either side|both sides)",
)
_AT_ONCE = "(now|at once|immediately|next move|on the next move)"


def _can_castle(context: Context, side: bool, wing: str = "") -> bool:
    """Whether it can castle at once: "still" and "the right" speak of rights, whatever stands between."""
    return _includes(predicates.castling_now(context.board, side), wing)


concept("can castle", holds=_can_castle).says(
    "||{side} (may|can) (now |also |already |immediately |legally )?castle"
    f"( {_AT_ONCE})?( {{wing:word}})?( {_AT_ONCE})?",
    "||{side} ~be (ready|able) to castle( {wing:word})?",
)
concept("cannot castle", holds=lambda context, **slots: not _can_castle(context, **slots)).says(
    "||{side} (cannot|may not) castle" + f"( {_AT_ONCE})?( {{wing:word}})?( {_AT_ONCE})?"
)


def _files_at_kings(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        enemy = board.pieces_mask(chess.PAWN, not side)
        if not (board.rooks | board.queens) & board.occupied_co[not side]:
            continue
        for file in range(max(0, chess.square_file(king) - 1), min(7, chess.square_file(king) + 1) + 1):
            if enemy & chess.BB_FILES[file]:
                continue
            pieces = heavy(board, not side, file)
            bare = not board.pawns & chess.BB_FILES[file]
            same = file == chess.square_file(king)
            where = {"front" if same else "beside": file, "open" if bare else "half": file}
            held = {"piece": pieces[0]} if pieces else {"free": file}
            yield {"side": side, "king": king, "word": "open" if bare else "half-open", **where, **held}


def _file_weight(board: chess.Board, values: Values) -> float:
    held = "piece" in values
    return (2.9 if held else 1.5) if values["word"] == "open" else (1.6 if held else 0.4)


@concept("file towards the king", detect=_files_at_kings, weight=_file_weight, favours="-side").says(
    ">{beside:file} ~be {word} next to {king}, and {piece} (already stands on|stands on) it",
    ">{front:file} ~be {word} in front of {king}, and {piece} (already stands on|stands on) it",
    "{free:file} ~be {word} (next to||beside|by|around) {king}",
    "{open:open_file} ~run (right |straight )?(past|towards||beside|by|to|alongside) {king}",
    "{half:half_file} ~run (right |straight )?(past|towards||beside|by|to|alongside) {king}",
    "||{beside:file} ~be {word} (right )?(next to|beside|in front of|by|around) {king}",
    "||{beside:file} ~(run|lead) (right |straight )?(past|beside|by|to|towards|alongside) {king}",
)
def _file_at_king(context: Context, king: int, word: str = "", **slots: int) -> bool:
    (file,) = slots.values()
    is_half = predicates.is_half_open(context.board, file, not side_of_king(context, king))
    right = {"open": predicates.is_open(context.board, file), "half-open": is_half, "": True}
    return file >= 0 and abs(file - chess.square_file(king)) <= 1 and right.get(word, False)


def _besieged(board: chess.Board) -> Iterator[Values]:
    for side, king in middlegame_kings(board):
        pieces = board.occupied_co[not side] & ~board.pawns & ~board.kings
        zone = chess.BB_KING_ATTACKS[king]
        near = [square for square in chess.scan_forward(pieces) if board.attacks_mask(square) & zone]
        if len(near) >= 2:
            tally = {"number": len(near), "colour": "black" if side else "white"}
            yield {"side": side, "king": king, "near": near, **(tally if len(near) > 3 else {"pieces": near})}


@concept(
    "pieces around the king",
    detect=_besieged,
    weight=lambda board, values: 1.6 + 0.6 * len(values["near"]),
    favours="-side",
).says(
    "{pieces} (both |all |)?~(bear on|aim at|eye||attack|bear down on|look at|cover) squares (around|next to||beside|near) {king}",
    "{number:count} {colour:word} pieces (bear on|aim at|eye||attack|cover) squares (around|next to||beside) {king}",
    "||{pieces} ~be (both |all )?(trained|pointed|aimed) at squares (next to|around|beside) {king}",
)
def _bear_on(
    context: Context, king: int, pieces: Sequence[int] | None = None, number: int = 0, colour: str = ""
) -> bool:
    board, side = context.board, side_of_king(context, king)
    zone = {square for square in chess.SQUARES if chess.square_distance(square, king) == 1}
    enemies = predicates.all_of(board, not side, *predicates.WORTH.keys() - {"pawn", "king"})
    near = [piece for piece in enemies if zone & set(board.attacks(piece))]
    if pieces is not None:
        return set(pieces) <= set(near)
    return len(near) == number and colour in ("", "enemy", "white" if not side else "black")

"""What a move does for the pieces behind it: castling, development, files."""

from collections.abc import Iterator

import chess

from commentary import predicates
from commentary.concept import Values, move_concept, of_moved, when
from commentary.concepts.files import heavy, is_on_seventh, seventh
from commentary.concepts.pieces import EARLY_PLIES, at_home, home_count
from commentary.context import Context, Unknown
from commentary.step import Step


def _castles(step: Step) -> Iterator[Values]:
    if step.castles:
        short = step.target > step.origin
        wing, word = ("kingside", "short") if short else ("queenside", "long")
        yield {"wing": wing, "short": word, "king": step.target}


@move_concept("castles", detect=_castles, weight=4.0).says(
    "~castle ({wing:word}|{short:word})",
    "~(get|tuck||bring) {king} (out of||away from) the centre",
    "~bring {king} to safety by castling",
    "||~castle",
    "||~tuck {king} away from the centre",
)
def _is_castling(context: Context, wing: str = "", short: str = "", king: int | None = None) -> bool:
    if not {wing, short} <= {"", "kingside", "queenside", "short", "long"}:
        raise Unknown("another sentence: castling follows")
    if not context.before.is_castling(context.move):
        return False
    names = ("kingside", "short") if context.to > context.origin else ("queenside", "long")
    castled_king = predicates.all_of(context.board, context.before.turn, "king")[0]
    return all(word in ("", *names) for word in (wing, short)) and king in (None, castled_king)


def _develops(step: Step) -> Iterator[Values]:
    if step.origin in at_home(step.before, step.mover) and step.before.ply() <= EARLY_PLIES:
        left = len(at_home(step.after, step.mover))
        yield {"kind": step.kind, "last": None if left else step.target}


@move_concept("develops", detect=_develops, weight=2.5).says(
    "~(develop||bring out) a {kind}",
    "~bring out a {kind}",
    "~develop {moved}",
    "~bring {moved} (into play||out|into the game)",
    "~bring out {last:piece}, the last minor piece at home",
    "||~(develop|bring out) (a|another|the last) piece",
    "||~complete (the )?development( of the minor pieces)?",
)
def _is_developing(context: Context, kind: int | None = None, last: int | None = None) -> bool:
    if kind not in (None, moved := context.board.piece_type_at(context.to)) or last not in (None, context.to):
        return False
    if moved not in (chess.KNIGHT, chess.BISHOP):
        raise Unknown("when a queen, a rook or a king is developed")
    before, after = (home_count(board, context.before.turn) for board in (context.before, context.board))
    if after == before and kind is None and last is None:
        raise Unknown("to a better square, perhaps")
    return after < before and (last is None or after == 0)


def _opens_file(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.origin)
    mask = chess.BB_FILES[file]
    if step.kind == chess.PAWN and step.before.pawns & mask and not step.after.pawns & mask:
        yield {"file": file}


@move_concept("opens a file", detect=_opens_file, weight=2.0).says(
    "~open {file}( up)?", "~clear {file}", "||~(open|clear) {file}( up)? for {friend:piece}"
)
def _is_opening(context: Context, file: int, friend: int | None = None) -> bool:
    if friend is not None and context.board.color_at(friend) != context.before.turn:
        return False
    own = [predicates.pawns_on(board, file, context.before.turn) for board in (context.before, context.board)]
    if own[0] and not own[1] and not predicates.is_open(context.board, file):
        raise Unknown("opened for one side")
    return predicates.is_open(context.board, file) and not predicates.is_open(context.before, file)


def _takes_file(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.target)
    heavy_piece = step.arrived in (chess.ROOK, chess.QUEEN) and not step.move.promotion
    if not heavy_piece or step.castles or chess.square_file(step.origin) == file:
        return
    pawns = step.after.pieces_mask(chess.PAWN, step.mover) & chess.BB_FILES[file]
    if not pawns:
        yield {"half" if step.after.pawns & chess.BB_FILES[file] else "open": file}


@move_concept("takes a file", detect=_takes_file, weight=2.6).says(
    "~(occupy|take|claim|seize||use) ({open:open_file}|{half:half_file})",
    "~(put {moved} on|bring {moved} to||post {moved} on|swing {moved} to) ({open:open_file}|{half:half_file})",
    "||~(put|bring|place|post|swing) {moved} (on|to) {file}",
    "||~(occupy|take|claim|seize|use) {file}",
    "||~(put|bring|place|post|swing|take) a rook (on|to) {rook:file}",
)
def _is_on_file(context: Context, **slots: int) -> bool:
    ((how, file),) = slots.items()
    name = predicates.name_at(context.board, context.to)
    clear = not predicates.pawns_on(context.board, file, context.before.turn)
    right = name in (("rook",) if how == "rook" else ("rook", "queen"))
    if right and chess.square_file(context.to) == file and not clear:
        raise Unknown("on the file, but behind a pawn")
    return right and clear and chess.square_file(context.to) == file


def _takes_seventh(step: Step) -> bool:
    stays = chess.square_rank(step.origin) == chess.square_rank(step.target)
    return not stays and any(values["rook"] == step.target for values in seventh(step.after))


move_concept(
    "takes the seventh", detect=when(_takes_seventh), holds=of_moved(is_on_seventh, "rook"), weight=3.0
).says(
    "~(invade|reach|seize||enter|penetrate to) the seventh rank",
    "~penetrate to the seventh",
    "||~(invade|reach|seize|enter) the seventh",
)


def _doubles(step: Step) -> Iterator[Values]:
    file = chess.square_file(step.target)
    if step.arrived not in (chess.ROOK, chess.QUEEN) or chess.square_file(step.origin) == file:
        return
    pawns = step.after.pieces_mask(chess.PAWN, step.mover) & chess.BB_FILES[file]
    others = [s for s in heavy(step.after, step.mover, file) if s != step.target]
    near = [s for s in others if not chess.between(s, step.target) & step.after.occupied]
    rooks = step.after.rooks & (chess.BB_SQUARES[step.target] | chess.BB_SQUARES[near[0]] if near else 0)
    if not pawns and near and rooks:
        yield {"file": file, "rooks": file if rooks.bit_count() == 2 else None}


@move_concept("doubles on a file", detect=_doubles, weight=2.8).says(
    "~(double|stack||double up) the heavy pieces on {file}",
    "~double (the |)rooks on {rooks:file}",
    "||~double (heavy pieces )?on {file}",
)
def _is_doubling(context: Context, **slots: int) -> bool:
    ((how, file),) = slots.items()
    board, place = context.board, context.to
    names = ("rook",) if how == "rooks" else ("rook", "queen")
    if file != chess.square_file(place) or predicates.name_at(board, place) not in names:
        return False
    pieces = predicates.all_of(board, context.before.turn, *names)
    return any(chess.square_file(s) == file and s in board.attacks(place) for s in pieces)

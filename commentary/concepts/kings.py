"""How safe each king is: checks, castling rights, the pawns before it, open lines, the back rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import chess

from commentary import concept as registry
from commentary import sight
from commentary.concept import Values
from commentary.concepts.files import heavy
from commentary.concepts.pawns import beside
from commentary.scene import Scene, Unresolved

concept = partial(registry.concept, topic="kings")
_ENDGAME_PIECES = 6
"""Pieces but kings and pawns, with which a king may walk (scalachess, `Divider.scala`: the endgame)."""

_CENTRAL = chess.BB_FILE_D | chess.BB_FILE_E
_MIDDLE = chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6
_FEW = 6
"""Legal replies to a check up to which they are worth counting."""


def is_endgame(board: chess.Board) -> bool:
    """Few enough pieces for a king to come out."""
    pieces = (board.knights | board.bishops | board.rooks | board.queens).bit_count()
    return (pieces <= _ENDGAME_PIECES and not board.queens) or pieces <= 2


def _king(board: chess.Board, side: chess.Color) -> chess.Square:
    return chess.lsb(board.pieces_mask(chess.KING, side))


def _home(side: chess.Color) -> chess.Bitboard:
    return chess.BB_RANK_1 if side else chess.BB_RANK_8


def _front(king: chess.Square, side: chess.Color, ranks: int) -> chess.Bitboard:
    """Squares up to `ranks` before the king, on its file and beside it."""
    row = chess.BB_SQUARES[king] | beside(chess.BB_SQUARES[king])
    mask = 0
    for step in range(1, ranks + 1):
        mask |= row << 8 * step if side else row >> 8 * step
    return mask & chess.BB_ALL


def shield(board: chess.Board, side: chess.Color) -> list[chess.Square]:
    """Own pawns one or two ranks before the king, on its file or beside it."""
    mask = _front(_king(board, side), side, 2) & board.pieces_mask(chess.PAWN, side)
    return sorted(chess.scan_forward(mask), key=chess.square_file)


def _both(board: chess.Board) -> Iterator[tuple[chess.Color, chess.Square]]:
    """Both kings, in a middlegame."""
    if not is_endgame(board):
        for side in (chess.WHITE, chess.BLACK):
            yield side, _king(board, side)


# -- truths --------------------------------------------------------------------------------------


def _side_of(scene: Scene, king: chess.Square) -> chess.Color:
    """The side whose king it is."""
    if sight.name_at(scene.board, king) != "king":
        raise Unresolved("a king")
    return scene.owner(king)


def _before(king: chess.Square, side: chess.Color, ranks: int) -> set[chess.Square]:
    step = 1 if side == chess.WHITE else -1
    file, rank = chess.square_file(king), chess.square_rank(king)
    reach = [(f, rank + step * n) for f in (file - 1, file, file + 1) for n in range(1, ranks + 1)]
    return {chess.square(f, r) for f, r in reach if 0 <= f <= 7 and 0 <= r <= 7}


def _cover(scene: Scene, king: chess.Square) -> set[chess.Square]:
    side = _side_of(scene, king)
    near = _before(king, side, 2)
    return {s for s in near if sight.is_pawn(scene.board, s) and scene.board.color_at(s) == side}


def _near(file: int, king: chess.Square) -> bool:
    return abs(file - chess.square_file(king)) <= 1


# -- check ---------------------------------------------------------------------------------------


def _checked(board: chess.Board) -> Iterator[Values]:
    if board.is_check():
        checkers = list(chess.scan_forward(board.checkers_mask()))
        replies = board.legal_moves.count()
        single = len(checkers) == 1
        yield {
            "side": board.turn,
            "checkers": checkers,
            "checker": checkers[0] if single else None,
            "double": None if single else checkers,
            "few": replies if 1 < replies <= _FEW and single else None,
            "one": checkers[0] if replies == 1 and single else None,
        }


def _gives_check(
    scene: Scene,
    side: bool | None = None,
    checker: int | None = None,
    checkers: Sequence[int] = (),
    double: Sequence[int] = (),
    few: int | None = None,
    one: int | None = None,
    king: int | None = None,
) -> bool:
    found = set(scene.board.checkers())
    named = {s for s in (checker, one) if s is not None} | set(checkers) | set(double)
    right_side = side is None or scene.board.turn == side
    right_king = king is None or king == scene.board.king(scene.board.turn)
    replies = few if few is not None else 1 if one is not None else None
    counted = replies is None or scene.board.legal_moves.count() == replies
    return (
        bool(found)
        and named <= found
        and right_side
        and right_king
        and counted
        and (not double or set(double) == found)
    )


concept(
    "check",
    "{side} ~be (|already )in check( here| now)? from {checker}",
    "{checker} (~give check|~be giving check)",
    "{side} ~be in check from {checker}, and there are only {few:count} legal replies",
    "{checker} ~give check, and there are just {few:count} legal replies",
    "{one:piece} ~give check, and there is only one legal reply",
    "there are only {few:count} legal replies to the check (from|by) {checker}",
    "{double:pieces} both give check",
    "{side} ~be in check, and it is double check from {double:pieces}",
    "||{side} ~be (already )?in check( here| now)?",
    "||{king:piece} ~be in check( from {checker})?",
    "||{checker} ~check {king:piece}",
    detect=_checked,
    holds=_gives_check,
    weight=40.0,
    favours="-side",
)
concept(
    "legal replies",
    "||there ~be (just |only |exactly )?{n:count} legal (moves?|reply|replies|answers?)( here)?",
    holds=lambda scene, n: scene.board.legal_moves.count() == n,
)
concept(
    "side to move",
    "{side} to move",
    "||{side} ~be to move",
    "||it ~be {side} who must (give way|move|step aside)",
    holds=lambda scene, side: scene.board.turn == side,
    weight=0.2,
)


# -- shelter -------------------------------------------------------------------------------------


def _sheltered(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        near = (chess.BB_RANK_1 | chess.BB_RANK_2) if side else (chess.BB_RANK_8 | chess.BB_RANK_7)
        pawns = shield(board, side)
        if chess.BB_SQUARES[king] & near & ~_CENTRAL and len(pawns) >= 2:
            yield {"side": side, "king": king, "pawns": pawns}


def _is_sheltered(scene: Scene, king: int, pawns: Sequence[int]) -> bool:
    return len(pawns) >= 2 and set(pawns) <= _cover(scene, king)


concept(
    "king shelter",
    "{king} ~(sit|hide||stand|shelter|live|be|be tucked away) (safely )?behind its pawns on {pawns:squares}",
    "{king} ~be (tucked away behind|sheltered by|covered by||well sheltered by|protected by|shielded by) its pawns on {pawns:squares}",
    "{king} ~have its pawns on {pawns:squares} in front of it",
    "||{king} ~(sit|hide|stand|shelter|live|be|be tucked away) (safely |snugly )?behind (its )?{pawns:pieces}",
    "||{king} ~be (well |decently |reasonably )?(sheltered|covered|protected|shielded) by (its )?{pawns:pieces}",
    detect=_sheltered,
    holds=_is_sheltered,
    weight=1.1,
    favours="side",
)


def _bare(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        if not shield(board, side):
            yield {"side": side, "king": king}


concept(
    "king without pawns",
    "{king} ~have no pawn (cover||shelter|shield)(| at all)( left)?",
    "{king} ~stand without (any )?pawn cover",
    "not a single pawn (covers||shields|shelters) {king}",
    "no pawn (shelters||covers|shields) {king}",
    "there is no pawn in front of {king}",
    detect=_bare,
    holds=lambda scene, king: not _cover(scene, king),
    weight=lambda board, v: (
        (3.4 if not chess.BB_SQUARES[v["king"]] & _home(v["side"]) & _CENTRAL else 1.2)
        if board.pieces_mask(chess.QUEEN, not v["side"])
        else 1.0
    ),
    favours="-side",
)


# -- castling ------------------------------------------------------------------------------------


def _central(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        if chess.BB_SQUARES[king] & _home(side) & _CENTRAL:
            rights = board.has_kingside_castling_rights(side), board.has_queenside_castling_rights(side)
            yield {
                "side": side,
                "king": king,
                "stuck": None if any(rights) else king,
                "wing": "kingside" if rights[0] else "queenside" if rights[1] else None,
                "wings": side if all(rights) else None,
                "barred": None if any(rights) else side,
            }


def _is_central(
    scene: Scene,
    king: int | None = None,
    stuck: int | None = None,
    barred: bool | None = None,
    side: bool | None = None,
    wing: str = "",
) -> bool:
    named = king if king is not None else stuck
    if named is not None:
        colour = _side_of(scene, named)
        place = chess.square_file(named) in (3, 4) and chess.square_rank(named) == (0 if colour else 7)
        if not place or any(other not in (None, colour) for other in (barred, side)):
            return False
    no_longer = barred is None or not scene.board.has_castling_rights(barred)
    return no_longer and (not wing or (side is not None and _may_castle(scene, side, wing)))


def _may_castle(scene: Scene, side: bool | None = None, wing: str = "", wings: bool | None = None) -> bool:
    colour = bool(side if side is not None else wings)
    rights = [sight.has_castling_right(scene.board, colour, kingside=one) for one in (True, False)]
    if wing not in ("kingside", "queenside", ""):
        return False
    return {"kingside": rights[0], "queenside": rights[1], "": all(rights)}[wing]


concept(
    "king in the centre",
    "{king} ~(be||sit|stand|remain) (still |||stuck |caught )in the centre( of the board)?",
    "{king} ~have not left the (centre||middle)( yet)?",
    "{king} ~be still in the centre, but {side} can still castle {wing:word}",
    "{stuck:piece} ~be (stuck|caught) in the centre",
    "{stuck:piece} ~(stand|be stuck) in the centre and {barred:side} can no longer castle",
    "||{king} (~be|~sit|~stand|~remain) (still )?in the middle( of the board)?",
    detect=_central,
    holds=_is_central,
    weight=lambda board, v: (
        (0.7 + min(1.5, board.ply() / 30) + (1.2 if v["stuck"] is not None else 0)) if board.queens else 0.5
    ),
    favours="-barred",
)
concept(
    "castling rights",
    "{side} ~(keep||have) the right to castle {wing:word}",
    "{side} (may|can) still castle {wing:word}",
    "{wings:side} (may|can) still castle on either side",
    "||{side} still ~have the right to castle {wing:word}",
    "||{wings:side} (still )?~(keep|have) the right to castle (on )?(either side|both sides)",
    holds=_may_castle,
    favours="side",
)
concept(
    "no more castling",
    "{side} can no longer castle",
    "{side} ~have lost the right to castle",
    "||{side} (cannot castle any more|may no longer castle)",
    holds=lambda scene, side: not scene.board.has_castling_rights(side),
    favours="-side",
)


# -- lines towards the king ----------------------------------------------------------------------


def _lines(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        enemy = board.pieces_mask(chess.PAWN, not side)
        if not (board.rooks | board.queens) & board.occupied_co[not side]:
            continue
        for file in range(max(0, chess.square_file(king) - 1), min(7, chess.square_file(king) + 1) + 1):
            if enemy & chess.BB_FILES[file]:
                continue
            pieces = heavy(board, not side, file)
            bare = not board.pawns & chess.BB_FILES[file]
            same = file == chess.square_file(king)
            yield {
                "side": side,
                "king": king,
                "beside": None if same else file,
                "front": file if same else None,
                "word": "open" if bare else "half-open",
                "open": file if bare else None,
                "half": None if bare else file,
                "piece": pieces[0] if pieces else None,
                "free": None if pieces else file,
            }


def _line_weight(board: chess.Board, values: Values) -> float:
    held = values["piece"] is not None
    return (2.9 if held else 1.5) if values["word"] == "open" else (1.6 if held else 0.4)


def _file_at_king(
    scene: Scene,
    king: int,
    beside: int | None = None,
    front: int | None = None,
    open: int | None = None,
    half: int | None = None,
    word: str = "",
    piece: int | None = None,
) -> bool:
    file = next(f for f in (beside, front, open, half) if f is not None)
    side = _side_of(scene, king)
    if word not in ("open", "half-open", "") or not 0 <= file <= 7:
        return False
    is_open, is_half = sight.is_open(scene.board, file), sight.is_half_open(scene.board, file, not side)
    right = {"open": is_open, "half-open": is_half, "": True}[word]
    there = piece is None or chess.square_file(piece) == file
    return _near(file, king) and right and there


concept(
    "file towards the king",
    "{beside:file} ~be {word} next to {king}, and {piece} (already stands on||occupies|stands on) it",
    "{front:file} ~be {word} in front of {king}, and {piece} (already stands on||occupies|stands on) it",
    "{free:file} ~be {word} (next to||beside|by|around) {king}",
    "{open:open_file} ~run (right |straight )?(past|towards||beside|by|to|alongside) {king}",
    "{half:half_file} ~run (right |straight )?(past|towards||beside|by|to|alongside) {king}",
    "||{beside:file} ~be {word} (right )?(next to|beside|in front of|by|around) {king}",
    "||{beside:file} ~(run|lead) (right |straight )?(past|beside|by|to|towards|alongside) {king}",
    detect=_lines,
    holds=lambda scene, king, free=None, **others: _file_at_king(
        scene, king, **({"beside": free} if free is not None else {}), **others
    ),
    weight=_line_weight,
    favours="-side",
)


def _besieged(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        pieces = board.occupied_co[not side] & ~board.pawns & ~board.kings
        zone = chess.BB_KING_ATTACKS[king]
        near = [square for square in chess.scan_forward(pieces) if board.attacks_mask(square) & zone]
        if len(near) >= 2:
            many = len(near) > 3
            yield {
                "side": side,
                "king": king,
                "pieces": None if many else near,
                "number": len(near) if many else None,
                "colour": "black" if side else "white",
                "near": near,
            }


def _bear_on(
    scene: Scene, king: int, pieces: Sequence[int] | None = None, number: int = 0, colour: str = ""
) -> bool:
    board, side = scene.board, _side_of(scene, king)
    zone = {square for square in chess.SQUARES if chess.square_distance(square, king) == 1}
    enemies = sight.all_of(board, not side, "knight", "bishop", "rook", "queen")
    near = [piece for piece in enemies if zone & set(board.attacks(piece))]
    if pieces is not None:
        return set(pieces) <= set(near)
    return len(near) == number and colour in ("", "enemy", "white" if not side else "black")


concept(
    "pieces around the king",
    "{pieces} (both |all |)?~(bear on|aim at|eye||attack|bear down on|look at|cover) squares (around|next to||beside|near) {king}",
    "{number:count} {colour:word} pieces (bear on|aim at|eye||attack|cover) squares (around|next to||beside) {king}",
    "||{pieces} ~be (both |all )?(trained|pointed|aimed) at squares (next to|around|beside) {king}",
    detect=_besieged,
    holds=_bear_on,
    weight=lambda board, values: 1.6 + 0.6 * len(values["near"]),
    favours="-side",
)


# -- the back rank -------------------------------------------------------------------------------


def _boxed_in(board: chess.Board) -> Iterator[Values]:
    for side, king in _both(board):
        pawns = _front(king, side, 1)
        big = board.rooks | board.queens
        full = not pawns & ~board.pieces_mask(chess.PAWN, side) and chess.BB_SQUARES[king] & _home(side)
        if full and big & board.occupied_co[not side] and not big & board.occupied_co[side] & _home(side):
            yield {"side": side, "king": king, "pawns": list(chess.scan_forward(pawns))}


def _is_boxed_in(scene: Scene, king: int, pawns: Sequence[int] = ()) -> bool:
    """The king is on its first rank and every square before it is filled by its own pawns."""
    side, board = _side_of(scene, king), scene.board
    front = _before(king, side, 1)
    own = all(sight.is_pawn(board, s) and board.color_at(s) == side for s in front)
    return chess.square_rank(king) == (0 if side else 7) and own and set(pawns) <= _cover(scene, king)


def _back_rank_is_bare(scene: Scene, side: chess.Color) -> bool:
    home = 0 if side == chess.WHITE else 7
    return not any(chess.square_rank(s) == home for s in sight.all_of(scene.board, side, "rook", "queen"))


def _is_weak(
    scene: Scene, side: bool | None = None, king: int | None = None, pawns: Sequence[int] = ()
) -> bool:
    colour = side if side is not None else _side_of(scene, king if king is not None else chess.A1)
    own = sight.all_of(scene.board, colour, "king")[0]
    if king not in (None, own):
        return False
    threat = sight.count(scene.board, not colour, "rook", "queen") > 0
    return _is_boxed_in(scene, own, pawns) and threat and _back_rank_is_bare(scene, colour)


concept(
    "weak back rank",
    "{side:owner} back rank ~be (weak||a worry|a concern|vulnerable)",
    "the back rank ~be a worry for {side:object}",
    "{pawns:pieces} box in {king}, and no rook or queen guards {side:owner} back rank",
    "{king} ~have no luft, and {side:owner} back rank is unguarded",
    "{king} ~be boxed in by its own pawns, and no rook or queen guards {side:owner} back rank",
    detect=_boxed_in,
    holds=_is_weak,
    weight=2.4,
    favours="-side",
)
concept(
    "boxed-in king",
    "||{king} ~be boxed in by its own pawns( on {pawns:squares})?",
    "||{king} ~have no (luft|air|way off the back rank|escape from the back rank)",
    "||{pawns:pieces} ~box in {king}",
    holds=_is_boxed_in,
)
concept(
    "bare back rank",
    "||no rook or queen ~(guard|stay on|stand on|be left on) {side:owner} back rank",
    "||{side:owner} back rank ~be (unguarded|bare)( by rook or queen)?",
    holds=lambda scene, side: _back_rank_is_bare(scene, side),
)


# -- the endgame ---------------------------------------------------------------------------------


def _active(board: chess.Board) -> Iterator[Values]:
    if not is_endgame(board):
        return
    for side in (chess.WHITE, chess.BLACK):
        king, other = _king(board, side), _king(board, not side)
        passive = (chess.BB_RANK_7 | chess.BB_RANK_8) if side else (chess.BB_RANK_1 | chess.BB_RANK_2)
        if chess.BB_SQUARES[king] & _MIDDLE and chess.BB_SQUARES[other] & passive:
            yield {"side": side, "king": king, "other": other}


def _is_active(scene: Scene, king: int, other: int | None = None) -> bool:
    side = _side_of(scene, king)
    passive = other is None or (
        _side_of(scene, other) != side and chess.square_rank(other) in ((7, 6) if side else (0, 1))
    )
    return 2 <= chess.square_rank(king) <= 5 and passive


def _is_passive(scene: Scene, king: int) -> bool:
    return chess.square_rank(king) in ((0, 1) if _side_of(scene, king) else (7, 6))


concept(
    "active king",
    "{king} ~be (active|already in play||in play), while {other} is (still back home|passive||back home)",
    "{king} ~be (already )?(well up the board||active|in play|in the fight)",
    "{king} ~have already come out( into play)?",
    "||{king} ~have (already )?(walked out|marched|come out) (into play|to the middle|up the board)",
    detect=_active,
    holds=_is_active,
    weight=2.0,
    favours="side",
)
concept(
    "passive king",
    "||{king} (~be|~stand|~sit) (still )?(on the back ranks|passive|back home|on its first two ranks)",
    holds=_is_passive,
)


def _opposition(board: chess.Board) -> Iterator[Values]:
    one, other = _king(board, chess.WHITE), _king(board, chess.BLACK)
    files = abs(chess.square_file(one) - chess.square_file(other))
    ranks = abs(chess.square_rank(one) - chess.square_rank(other))
    if board.occupied == board.pawns | board.kings and board.pawns and (files, ranks) in ((0, 2), (2, 0)):
        yield {"side": board.turn}


def _kings_oppose(scene: Scene, side: bool | None = None) -> bool:
    one, other = (sight.all_of(scene.board, colour, "king")[0] for colour in chess.COLORS)
    files = abs(chess.square_file(one) - chess.square_file(other))
    ranks = abs(chess.square_rank(one) - chess.square_rank(other))
    return sorted((files, ranks)) == [0, 2] and (side is None or scene.board.turn == side)


concept(
    "opposition",
    "the kings stand in (|direct )opposition, and it is {side:object} who must give way",
    "the kings stand in direct opposition with {side:object} to move",
    "||the kings (~stand in|~be in|face each other in) (the )?(direct )?opposition",
    "||the kings ~face each other, one square apart",
    detect=_opposition,
    holds=_kings_oppose,
    weight=3.2,
    favours="-side",
)

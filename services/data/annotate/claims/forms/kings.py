"""Claims about the kings: castling rights, shelter, open lines, the back rank, the opposition."""

from collections.abc import Iterable

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    all_of,
    count,
    is_half_open,
    is_open,
    is_pawn,
    name_at,
)
from services.data.annotate.claims.token import Token


def _king(scene: Scene, side: chess.Color) -> chess.Square:
    return all_of(scene.board, side, "king")[0]


def _before(king: chess.Square, side: chess.Color) -> set[chess.Square]:
    step = 1 if side == chess.WHITE else -1
    file, rank = chess.square_file(king), chess.square_rank(king)
    return {
        chess.square(f, r)
        for f in (file - 1, file, file + 1)
        for r in (rank + step, rank + 2 * step)
        if 0 <= f <= 7 and 0 <= r <= 7
    }


def _cover(scene: Scene, side: chess.Color) -> set[chess.Square]:
    king = _king(scene, side)
    return {s for s in _before(king, side) if is_pawn(scene.board, s) and scene.board.color_at(s) == side}


def _is_own_king(scene: Scene, king: Token) -> chess.Color | None:
    square = scene.piece(king)
    return scene.owner([square]) if name_at(scene.board, square) == "king" else None


@says(
    "~(sit|stand|hide|shelter|live|be|be tucked away) (safely |snugly )?behind (its )?{g}",
    "~be (well |decently |reasonably )?(sheltered|covered|protected|shielded) by (its )?{g}",
    "~have (its )?{g} in front of it",
    subject="piece",
)
def is_sheltered(scene: Scene, king: Token, g: Token) -> bool:
    side, named = _is_own_king(scene, king), set(scene.group(g))
    return side is not None and len(named) >= 2 and named <= _cover(scene, side)


@says(
    "~have no pawn (cover|shelter|shield)( left| at all)?",
    "~stand without (any )?pawn cover",
    subject="piece",
)
def is_bare(scene: Scene, king: Token) -> bool:
    side = _is_own_king(scene, king)
    return side is not None and not _cover(scene, side)


@says("not a single pawn (covers|shields|shelters) {p}", "no pawn (covers|shields|shelters) {p}")
def is_uncovered(scene: Scene, p: Token) -> bool:
    return is_bare(scene, p)


@says(
    "(~be|~sit|~stand|~remain) (still )?(stuck |caught )?in the (centre|middle)( of the board)?",
    "~have not left the (centre|middle)( yet)?",
    subject="piece",
)
def is_in_centre(scene: Scene, king: Token) -> bool:
    side = _is_own_king(scene, king)
    square = scene.piece(king)
    home = 0 if side == chess.WHITE else 7
    return side is not None and chess.square_file(square) in (3, 4) and chess.square_rank(square) == home


@says(
    "(can no longer castle|cannot castle any more|may no longer castle)",
    "~have lost the right to castle",
    subject="side",
)
def cannot_castle(scene: Scene, side: Token) -> bool:
    return not scene.board.has_castling_rights(scene.side(side))


@says(
    "(still )?~have the right to castle (on )?(?P<w>kingside|queenside|either side|both sides|one side)",
    "(may|can) still castle (?P<w>kingside|queenside)",
    "(may|can) still castle (on |to )?(?P<w>either side|both sides)",
    "~keep the right to castle (on )?(?P<w>kingside|queenside|either side|both sides)",
    subject="side",
)
def may_castle(scene: Scene, side: Token, w: str) -> bool:
    colour, board = scene.side(side), scene.board
    rights = (board.has_kingside_castling_rights(colour), board.has_queenside_castling_rights(colour))
    return {"kingside": rights[0], "queenside": rights[1]}.get(w, all(rights))


@says("{f} ~(run|lead) (right |straight )?(past|beside|by|to|towards|alongside) {p}")
def file_at_king(scene: Scene, f: Token, p: Token) -> bool:
    king = scene.piece(p)
    near = all(abs(file - chess.square_file(king)) <= 1 for file in scene.files(f))
    return near and name_at(scene.board, king) == "king"


@says("(~be) (?P<w>open|half-open) (right )?(next to|beside|in front of|by|around) {p}", subject="file")
def file_by_king_is(scene: Scene, files: Token, w: str, p: Token) -> bool:
    king = scene.piece(p)
    side = scene.owner([king])
    return name_at(scene.board, king) == "king" and all(
        abs(file - chess.square_file(king)) <= 1
        and (is_open(scene.board, file) if w == "open" else is_half_open(scene.board, file, not side))
        for file in scene.files(files)
    )


@says(
    "{pieces:pg*} (both |all )?(~attack|~bear on|~bear down on|~aim at|~look at|~cover|"
    "~eye) squares (next to|around|beside|near) {k:p}",
    "{pieces:pg*} ~be (both |all )?(trained|pointed|aimed) at squares (next to|around|beside) {k:p}",
)
def besiege(scene: Scene, pieces: list[Token], k: Token) -> bool:
    king, found = scene.piece(k), scene.pieces(pieces)
    enemies = scene.owner(found) != scene.owner([king])
    return enemies and name_at(scene.board, king) == "king" and _all_reach(scene, found, king)


def _all_reach(scene: Scene, pieces: Iterable[chess.Square], king: chess.Square) -> bool:
    zone = {square for square in chess.SQUARES if chess.square_distance(square, king) == 1}
    return all(zone & set(scene.board.attacks(piece)) for piece in pieces)


@says(
    "{n} (enemy |white |black )?pieces (~attack|~bear on|~aim at|~eye|~cover) squares (next to|around|"
    "beside) {p}",
)
def so_many_besiege(scene: Scene, n: str, p: Token) -> bool:
    king = scene.piece(p)
    side = scene.owner([king])
    pieces = all_of(scene.board, not side, "knight", "bishop", "rook", "queen")
    near = [piece for piece in pieces if _all_reach(scene, [piece], king)]
    return name_at(scene.board, king) == "king" and len(near) == count_of(n)


def boxed_in(scene: Scene, side: chess.Color) -> bool:
    """The king is on its first rank and every square before it is filled by its own pawns."""
    king, board = _king(scene, side), scene.board
    home = 0 if side == chess.WHITE else 7
    front = {s for s in _before(king, side) if abs(chess.square_rank(s) - home) == 1}
    own = all(is_pawn(board, s) and board.color_at(s) == side for s in front)
    return chess.square_rank(king) == home and own


@says(
    "~be boxed in by its own (pawns|{g})",
    "~have no (luft|air|way off the back rank|escape from the back rank)",
    subject="piece",
)
def king_is_boxed_in(scene: Scene, king: Token, g: Token | None = None) -> bool:
    side = _is_own_king(scene, king)
    named = scene.group(g) if g else []
    return side is not None and boxed_in(scene, side) and set(named) <= _cover(scene, side)


@says("{g} ~box in {p}", "{g} ~leave {p} without (luft|air)")
def pawns_box_in(scene: Scene, g: Token, p: Token) -> bool:
    side = _is_own_king(scene, p)
    return side is not None and boxed_in(scene, side) and set(scene.group(g)) <= _cover(scene, side)


@says(
    "no rook or queen ~(guard|stay on|stand on|be left on) {o} back rank",
    "{o} back rank ~be (unguarded|bare)( by rook or queen)?",
)
def back_rank_is_bare(scene: Scene, o: Token) -> bool:
    side = scene.side(o)
    home = 0 if side == chess.WHITE else 7
    return not any(chess.square_rank(s) == home for s in all_of(scene.board, side, "rook", "queen"))


@says(
    "{o} back rank ~be (weak|a worry|a concern|vulnerable)", "the back rank ~be (a worry|a concern) for {s}"
)
def back_rank_is_weak(scene: Scene, o: Token | None = None, s: Token | None = None) -> bool:
    owner = o or s
    if owner is None:
        return False
    side = scene.side(owner)
    threat = count(scene.board, not side, "rook", "queen") > 0
    return boxed_in(scene, side) and back_rank_is_bare(scene, owner) and threat


@says(
    "~be (already )?(active|in play|in the fight|well up the board)",
    "~have (already )?(come out|walked out|marched) (into play|to the middle|up the board)",
    subject="piece",
)
def king_is_active(scene: Scene, king: Token) -> bool:
    side = _is_own_king(scene, king)
    return side is not None and 2 <= chess.square_rank(_king(scene, side)) <= 5


@says(
    "(~be|~stand|~sit) (still )?(on the back ranks|passive|back home|on its first two ranks)",
    subject="piece",
)
def king_is_passive(scene: Scene, king: Token) -> bool:
    side = _is_own_king(scene, king)
    rank = chess.square_rank(scene.piece(king))
    return side is not None and rank in ((0, 1) if side == chess.WHITE else (7, 6))


@says(
    "the kings ~(stand in|be in|face each other in) (the )?(direct )?opposition",
    "the kings ~face each other, one square apart",
)
def kings_oppose(scene: Scene) -> bool:
    one, other = (_king(scene, side) for side in chess.COLORS)
    files = abs(chess.square_file(one) - chess.square_file(other))
    ranks = abs(chess.square_rank(one) - chess.square_rank(other))
    return sorted((files, ranks)) == [0, 2]

"""Claims about where pieces stand: outposts, development, bad bishops, pieces without moves."""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    all_of,
    defenders,
    files_beside,
    is_pawn,
    name_at,
    pawns_on,
)
from services.data.annotate.claims.token import Token

_HOME = {
    chess.WHITE: {chess.B1: "knight", chess.G1: "knight", chess.C1: "bishop", chess.F1: "bishop"},
    chess.BLACK: {chess.B8: "knight", chess.G8: "knight", chess.C8: "bishop", chess.F8: "bishop"},
}


def is_outpost(board: chess.Board, square: chess.Square) -> bool:
    """A minor piece that a pawn defends and that no enemy pawn can ever chase away."""
    side = board.color_at(square)
    if side is None or name_at(board, square) not in ("knight", "bishop"):
        return False
    rank = chess.square_rank(square)
    beside = [pawn for file in files_beside(square) for pawn in pawns_on(board, file, not side)]
    chasers = [
        pawn
        for pawn in beside
        if (chess.square_rank(pawn) > rank if side == chess.WHITE else chess.square_rank(pawn) < rank)
    ]
    guarded = any(is_pawn(board, defender) for defender in defenders(board, square))
    return 3 <= (rank if side == chess.WHITE else 7 - rank) <= 5 and guarded and not chasers


@says(
    "(~sit|~stand|~be|~have settled|~settle) on an outpost( there)?",
    "~have (a permanent|an ideal|a fine|a secure|an) outpost( there)?",
    "~be (firmly |securely )?(planted|anchored|established) on an outpost",
    "~be out of reach of (the |any )?(enemy )?pawns",
    "cannot be (chased|driven|kicked) away by (a pawn|pawns|any pawn)",
    subject="piece",
)
def sits_on_outpost(scene: Scene, piece: Token) -> bool:
    return is_outpost(scene.board, scene.piece(piece))


@says("no (enemy |black |white )?pawn (can|will) (ever )?(chase|drive|kick) {p} away")
def cannot_be_chased(scene: Scene, p: Token) -> bool:
    return sits_on_outpost(scene, p)


_STILL = "(~be|~stand|~sit) (still |both still |both |all still )?"


@says(
    _STILL + "(at home|undeveloped|on its (original|starting) square)",
    subject="piece",
)
def is_at_home(scene: Scene, piece: Token) -> bool:
    return all(_at_home(scene.board, square) for square in scene.pieces(piece))


@says(
    _STILL + "(at home|undeveloped|on their (original|starting) squares)",
    "~have not moved( yet)?",
    "~have yet to (move|be developed|come out)",
    subject="group",
)
def are_at_home(scene: Scene, pieces: Token) -> bool:
    return is_at_home(scene, pieces)


@says("{pieces:pg*} " + _STILL + "(at home|undeveloped|on their (original|starting) squares)")
def several_at_home(scene: Scene, pieces: list[Token]) -> bool:
    return all(_at_home(scene.board, square) for square in scene.pieces(pieces))


def _at_home(board: chess.Board, square: chess.Square) -> bool:
    side = board.color_at(square)
    return side is not None and _HOME[side].get(square) == name_at(board, square)


def home_count(board: chess.Board, side: chess.Color) -> int:
    """Knights and bishops on the squares they start from."""
    return sum(name_at(board, s) == name and board.color_at(s) == side for s, name in _HOME[side].items())


@says(
    "~have (still |yet )?to (develop|bring out) {pieces:pg*}",
    subject="side",
)
def has_to_develop(scene: Scene, side: Token, pieces: list[Token]) -> bool:
    found = scene.pieces(pieces)
    return scene.owner(found) == scene.side(side) and all(_at_home(scene.board, s) for s in found)


@says(
    "~be ((slightly|clearly|a little) )?behind in development",
    subject="side",
)
def is_behind_in_development(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    return home_count(scene.board, colour) > home_count(scene.board, not colour)


@says(
    "~be ((slightly|clearly|a little) )?ahead in development",
    "~be better developed",
    subject="side",
)
def is_ahead_in_development(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    return home_count(scene.board, colour) < home_count(scene.board, not colour)


@says("~have (still )?{n} minor pieces? (still )?(at home|undeveloped)", subject="side")
def minors_at_home(scene: Scene, side: Token, n: str) -> bool:
    return home_count(scene.board, scene.side(side)) == count_of(n)


@says(
    "{n} of {o} {k:n} pawns ~(stand on|share) its colour",
    "all {g} ~(stand on|share) its colour",
)
def pawns_on_its_colour(
    scene: Scene, o: Token | None = None, n: str = "", k: str = "", g: Token | None = None
) -> bool:
    colour = scene.owner(scene.group(g)) if g else scene.side(o) if o else chess.WHITE
    bishops = [s for s in scene.mentioned() if name_at(scene.board, s) == "bishop"]
    square = next(iter(bishops), chess.A1)
    same, pawns = _on_colour(scene.board, square, colour)
    is_its = name_at(scene.board, square) == "bishop" and scene.board.color_at(square) == colour
    counted = (count_of(n), count_of(k)) if n else (pawns, pawns)
    return is_its and (same, pawns) == counted


def _on_colour(board: chess.Board, square: chess.Square, side: chess.Color) -> tuple[int, int]:
    pawns = all_of(board, side, "pawn")
    return sum(_is_light(pawn) == _is_light(square) for pawn in pawns), len(pawns)


def _is_light(square: chess.Square) -> bool:
    return square in chess.SquareSet(chess.BB_LIGHT_SQUARES)


@says(
    "~be (a bad (piece|bishop)|bad|the bad bishop)",
    subject="piece",
)
def is_bad_bishop(scene: Scene, piece: Token) -> bool:
    square = scene.piece(piece)
    same, pawns = _on_colour(scene.board, square, scene.owner([square]))
    return name_at(scene.board, square) == "bishop" and same >= 4 and same >= 0.7 * pawns


@says(
    "~be (hemmed in|restricted|hampered) by its own pawns",
    "~bite on its own pawns",
    subject="piece",
)
def is_hemmed_in(scene: Scene, piece: Token) -> bool:
    square = scene.piece(piece)
    side = scene.owner([square])
    free = [target for target in scene.board.attacks(square) if scene.board.color_at(target) != side]
    return is_bad_bishop(scene, piece) and len(free) <= 3


@says(
    "~have no (squares?|moves?)( at all| to go to| to speak of)?",
    "~have nowhere to go",
    "~be shut in( completely)?",
    "cannot move( at all)?",
    subject="piece",
)
def is_shut_in(scene: Scene, piece: Token) -> bool:
    square = scene.piece(piece)
    side = scene.owner([square])
    return all(scene.board.color_at(target) == side for target in scene.board.attacks(square))

"""Claims about files and the rooks and queens on them."""

from itertools import pairwise

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import all_of, attacks, is_half_open, is_open
from services.data.annotate.claims.token import Token

_HEAVY = ("rook", "queen")


@says("~be (completely |fully |wide )?open( now)?", "~come open", subject="file")
def file_is_open(scene: Scene, files: Token) -> bool:
    return all(is_open(scene.board, file) for file in scene.files(files))


@says(
    "there ~be (just |only )?one open file, {f}",
    "the (only|one|sole) open file ~be {f}",
    "{f} ~be the (only|one|sole) open file( on the board)?",
)
def only_open_file(scene: Scene, f: Token) -> bool:
    return [file for file in range(8) if is_open(scene.board, file)] == scene.files(f)


@says("~be half-open for {s}", subject="file")
def file_is_half_open_for(scene: Scene, files: Token, s: Token) -> bool:
    side = scene.side(s)
    return all(is_half_open(scene.board, file, side) for file in scene.files(files))


@says("~have {f} half-open", "~have {f} to work with", "~own {f}", "~have {f}", subject="side")
def has_half_open_file(scene: Scene, side: Token, f: Token) -> bool:
    return file_is_half_open_for(scene, f, side)


@says("~be (still )?(unclaimed|unoccupied|up for grabs)", subject="file")
def file_is_unclaimed(scene: Scene, files: Token) -> bool:
    return file_is_free(scene, files)


@says(
    "neither side ~have (a rook or queen|a heavy piece|a rook) on {f}( yet| so far)?",
    "nobody ~have (claimed|occupied|taken) {f}( yet| so far)?",
)
def file_is_free(scene: Scene, f: Token) -> bool:
    return not any(_heavy_on(scene, file) for file in scene.files(f))


def _heavy_on(scene: Scene, file: int, *names: str) -> list[chess.Square]:
    found = [s for side in chess.COLORS for s in all_of(scene.board, side, *(names or _HEAVY))]
    return [square for square in found if chess.square_file(square) == file]


@says(
    "(~stand|~sit|~be|~be placed|~be posted) (already |well )?on {f}",
    "~(occupy|hold|use|command) {f}",
    "~have (occupied|taken|claimed) {f}",
    subject="piece",
)
def stands_on_file(scene: Scene, piece: Token, f: Token) -> bool:
    return [chess.square_file(scene.piece(piece))] == scene.files(f)


@says("both sides ~have a (?P<w>rook|heavy piece) on {f}")
def both_have_heavy_on(scene: Scene, w: str, f: Token) -> bool:
    names = ("rook",) if w == "rook" else _HEAVY
    return all(
        {scene.board.color_at(square) for square in _heavy_on(scene, file, *names)} == {True, False}
        for file in scene.files(f)
    )


@says(
    "(~press|~bear down) (against|on) {target:p} (on|along|down) {f}",
    "~look down {f} at {target:p}",
    "~(attack|eye|pressure|hit) {target:p} (along|down|on) {f}",
    subject="piece",
)
def presses_on_file(scene: Scene, piece: Token, f: Token, target: Token) -> bool:
    found = scene.pieces([piece, target])
    same = all([chess.square_file(square)] == scene.files(f) for square in found)
    return same and attacks(scene.board, *found)


@says(
    "(~be|~stand|~sit) (already )?on the seventh( rank)?",
    "~have (reached|invaded|penetrated to) the seventh( rank)?",
    subject="piece",
)
def is_on_seventh(scene: Scene, piece: Token) -> bool:
    square = scene.piece(piece)
    return chess.square_rank(square) == (6 if scene.owner([square]) == chess.WHITE else 1)


@says("~have a rook on the seventh( rank)?", "~get a rook to the seventh( rank)?", subject="side")
def has_rook_on_seventh(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    rank = 6 if colour == chess.WHITE else 1
    return any(chess.square_rank(square) == rank for square in all_of(scene.board, colour, "rook"))


@says(
    "~have (doubled (rooks|heavy pieces)?|doubled up|a battery)( on|on) {f}",
    subject="side",
)
def has_doubled_heavy(scene: Scene, side: Token, f: Token) -> bool:
    colour = scene.side(side)
    heavy = [square for file in scene.files(f) for square in _heavy_on(scene, file)]
    own = sorted(square for square in heavy if scene.board.color_at(square) == colour)
    return any(_nothing_between(scene.board, a, b) for a, b in pairwise(own))


@says("{pieces:pg*} ~be (doubled|lined up|stacked) on {f}")
def two_are_doubled(scene: Scene, pieces: list[Token], f: Token) -> bool:
    return _doubled(scene, scene.pieces(pieces), f)


def _doubled(scene: Scene, found: list[chess.Square], f: Token) -> bool:
    heavy = [square for file in scene.files(f) for square in _heavy_on(scene, file)]
    scene.owner(found)
    return len(found) == 2 and set(found) <= set(heavy) and _nothing_between(scene.board, *found)


def _nothing_between(board: chess.Board, one: chess.Square, other: chess.Square) -> bool:
    return not chess.SquareSet(chess.between(one, other)) & chess.SquareSet(board.occupied)

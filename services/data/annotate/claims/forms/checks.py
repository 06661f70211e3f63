"""Claims about checks, legal replies and mates in one."""

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import mating_moves, name_at, other_turn
from services.data.annotate.claims.token import Token


@says("~be (already )?in check( here| now)?( from {p})?", subject="side")
def is_in_check(scene: Scene, side: Token, p: Token | None = None) -> bool:
    board = scene.board
    checkers = set(board.checkers())
    return board.turn == scene.side(side) and bool(checkers) and (p is None or scene.piece(p) in checkers)


@says("~be in check( from {p})?", subject="piece")
def king_is_in_check(scene: Scene, king: Token, p: Token | None = None) -> bool:
    square = scene.piece(king)
    checkers = set(scene.board.checkers())
    in_check = scene.board.king(scene.board.turn) == square and bool(checkers)
    return in_check and (p is None or scene.piece(p) in checkers)


@says("~give check", "~be giving check", "~check {king:p}", subject="piece")
def gives_check(scene: Scene, piece: Token, king: Token | None = None) -> bool:
    square = scene.piece(piece)
    if king is not None and name_at(scene.board, scene.piece(king)) != "king":
        return False
    return square in scene.board.checkers()


@says("{pieces:pg*} (both )?~give check", "it ~be (a )?double check from {pieces:pg*}")
def give_check(scene: Scene, pieces: list[Token]) -> bool:
    found = scene.pieces(pieces)
    return set(found) == set(scene.board.checkers())


@says(
    "there ~be (just |only |exactly )?{n} legal (moves?|repl(y|ies)|answers?)( here)?",
    "there ~be (just |only |exactly )?{n} (ways?) (out|to answer it|to meet it)( of it)?",
    "(just|only|exactly) {n} (legal )?(moves?|repl(y|ies)|answers?|ways? out) ~be (available|legal|possible)",
    "(just|only|exactly) {n} moves? (~get|~get {o} king) out of it",
)
def legal_moves_are(scene: Scene, n: str, o: Token | None = None) -> bool:
    return scene.board.legal_moves.count() == count_of(n)


@says(
    "it ~be {s} who (must|~have to) (give way|move|step aside)",
    "{s} ~be to move",
    "{s} to move",
)
def must_move(scene: Scene, s: Token) -> bool:
    return scene.board.turn == scene.side(s)


# -- mates in one ------------------------------------------------------------------------------


@says(
    "~be (checkmate|mate)( at once| on the spot| straight away)?",
    "~mate( at once| on the spot| straight away)?",
    "~end the game( at once| on the spot)?",
    "~be mate, and the game is over",
    subject="move",
)
def move_is_mate(scene: Scene, move: Token) -> bool:
    return scene.step(move)[2].is_checkmate()


@says("there ~be (a )?mate in one( here)? with {m}", "{m} ~be (a )?mate in one")
def mate_in_one(scene: Scene, m: Token) -> bool:
    return scene.candidate(m) in mating_moves(scene.root)


@says(
    "~threaten (mate (with|by) )?{m:a}",
    subject="side",
)
def threatens_mate(scene: Scene, side: Token, m: Token) -> bool:
    board = scene.board
    if board.turn == scene.side(side):
        return False
    then = other_turn(board)
    return then is not None and scene.move_on(then, m) in mating_moves(then)


@says(
    "if it were {o} turn, {m:a} would be mate",
    "given (a|another) tempo, {s} (would )?~mate with {m:a}",
    "{m:a}( mate)? ~be (threatened|the threat|a threat|in the air)( by {s})?",
)
def would_be_mate(scene: Scene, m: Token, o: Token | None = None, s: Token | None = None) -> bool:
    then = other_turn(scene.board)
    owner = o or s
    if then is None or (owner is not None and scene.side(owner) != then.turn):
        return False
    return scene.move_on(then, m) in mating_moves(then)

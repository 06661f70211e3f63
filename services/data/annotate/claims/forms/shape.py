"""Claims about what a move does to the shape of the position: development, files, pawns, squares."""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.forms.stations import home_count, is_outpost
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    ahead_of,
    is_open,
    is_passed,
    is_pawn,
    name_at,
    pawns_on,
    steps_to_go,
)
from services.data.annotate.claims.token import Token


@says(
    "~castle( (?P<w>kingside|queenside|short|long))?",
    "~(bring|put|take) {p} (into )?to safety by castling",
    "~(get|bring|tuck) {p} (away )?(out of|from) the centre",
    subject="move",
)
def castles(scene: Scene, move: Token, w: str = "", p: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    short = before.is_kingside_castling(played)
    wing = not w or short == (w in ("kingside", "short"))
    right_king = p is None or scene.piece(p) == after.king(before.turn)
    return before.is_castling(played) and wing and right_king


@says(
    "~(develop|bring out) (a|the|another|the last|{o}) {name:w}",
    "~(develop|bring out) {p}",
    "~bring {p} (out|into play|into the game)",
    subject="move",
)
def develops(
    scene: Scene, move: Token, name: str = "", p: Token | None = None, o: Token | None = None
) -> bool:
    before, played, after = scene.step(move)
    fewer = home_count(after, before.turn) < home_count(before, before.turn)
    right_piece = p is None or scene.piece(p) == played.to_square
    return fewer and right_piece and name in ("", "piece", name_at(after, played.to_square))


@says("~complete (the |{o} )?development( of the minor pieces)?", subject="move")
def completes_development(scene: Scene, move: Token, o: Token | None = None) -> bool:
    before, _, after = scene.step(move)
    return home_count(before, before.turn) == 1 and home_count(after, before.turn) == 0


@says("~open {f}( up)?", "~(clear|unblock) {f}", subject="move")
def opens_file(scene: Scene, move: Token, f: Token) -> bool:
    before, _, after = scene.step(move)
    return all(is_open(after, file) and not is_open(before, file) for file in scene.files(f))


@says(
    "~(occupy|take|seize|claim|use) {f}( with {p})?",
    "~(put|place|post) (a rook|{p}) on {f}",
    "~(bring|take|swing) (a rook|{p}) to {f}",
    subject="move",
)
def takes_file(scene: Scene, move: Token, f: Token, p: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    file = chess.square_file(played.to_square)
    heavy = name_at(after, played.to_square) in ("rook", "queen")
    right_piece = p is None or scene.piece(p) == played.to_square
    clear = not pawns_on(after, file, before.turn)
    return heavy and right_piece and clear and scene.files(f) == [file]


@says("~(double|stack) (the )?(rooks|heavy pieces|on|up)( on {f}| {g:f})?", subject="move")
def doubles_on_file(scene: Scene, move: Token, f: Token | None = None, g: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    place = played.to_square
    named = f or g
    if named is not None and scene.files(named) != [chess.square_file(place)]:
        return False
    return any(
        after.color_at(s) == before.turn
        and name_at(after, s) in ("rook", "queen")
        and chess.square_file(s) == chess.square_file(place)
        and s in after.attacks(place)
        for s in chess.SQUARES
    ) and name_at(after, place) in ("rook", "queen")


@says("~(invade|reach|enter|penetrate to|seize) the seventh( rank)?", subject="move")
def takes_seventh(scene: Scene, move: Token) -> bool:
    before, played, after = scene.step(move)
    rank = 6 if before.turn == chess.WHITE else 1
    return name_at(after, played.to_square) == "rook" and chess.square_rank(played.to_square) == rank


@says(
    "~(settle|land|plant) on an outpost",
    "~(take|occupy|claim) an outpost( on {q})?",
    "~(put|plant|post|install) {p} on an outpost",
    subject="move",
)
def takes_outpost(scene: Scene, move: Token, q: Token | None = None, p: Token | None = None) -> bool:
    _, played, after = scene.step(move)
    right_piece = p is None or scene.piece(p) == played.to_square
    place = q is None or scene.squares(q) == [played.to_square]
    return right_piece and place and is_outpost(after, played.to_square)


@says(
    "~(push|advance|run) {p}( (on|forward|closer to queening|further|another step))?",
    "~(push|advance) {p} to {q}",
    subject="move",
)
def pushes_passer(scene: Scene, move: Token, p: Token | None = None, q: Token | None = None) -> bool:
    before, played, _ = scene.step(move)
    anonymous = p is None or not (p.squares or p.files or p.owner)
    right_pawn = anonymous or (p is not None and played.from_square == scene.piece(p, before))
    place = q is None or scene.squares(q) == [played.to_square]
    return is_passed(before, played.from_square) and right_pawn and place


@says(
    "~(be|stand|leave it) (just |only |now )?{n} (steps?|squares?|moves?) (away )?from (queening|promotion)",
    subject="move",
)
def pawn_is_so_far(scene: Scene, move: Token, n: str, p: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    right_pawn = p is None or scene.piece(p) == played.to_square
    pawn = is_pawn(after, played.to_square)
    return pawn and right_pawn and steps_to_go(played.to_square, before.turn) == count_of(n)


@says(
    "~(create|make|produce|obtain) (a passed pawn|{q:p})",
    "~give {s} (a passed pawn|{q:p})",
    subject="move",
)
def makes_passer(scene: Scene, move: Token, q: Token | None = None, s: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    right_side = s is None or scene.side(s) == before.turn
    place = q is None or scene.piece(q) == played.to_square
    fresh = is_passed(after, played.to_square) and not is_passed(before, played.from_square)
    return right_side and place and fresh


@says(
    "~(blockade|block|halt|stop) {p}( for now)?",
    "~(stand|sit) in the way of {p}",
    subject="move",
)
def move_blockades(scene: Scene, move: Token, p: Token) -> bool:
    before, played, after = scene.step(move)
    pawn = scene.piece(p)
    side = after.color_at(pawn)
    in_front = (
        side == after.turn and is_pawn(after, pawn) and ahead_of(pawn, not before.turn)[0] == played.to_square
    )
    return in_front and is_passed(after, pawn)


@says(
    "~(free|activate|release|open up|make room for|wake up|give more scope to) {p}",
    "~open (a |the )?(line|diagonal|path|lines) for {p}",
    "~give {p} more (scope|room|air|squares)",
    subject="move",
)
def frees(scene: Scene, move: Token, p: Token) -> bool:
    before, played, after = scene.step(move)
    square = scene.piece(p)
    own = after.color_at(square) == before.turn and square != played.to_square
    slider = name_at(after, square) in ("bishop", "rook", "queen")
    return own and slider and len(after.attacks(square)) >= len(before.attacks(square)) + 3


@says(
    "~centralise (a {w}|{p})",
    "~bring (a {w}|{p}) (towards|to|into) the (centre|middle)",
    subject="move",
)
def centralises(scene: Scene, move: Token, p: Token | None = None, w: str = "") -> bool:
    _, played, after = scene.step(move)
    right_piece = scene.piece(p) == played.to_square if p else w == name_at(after, played.to_square)
    inside = [
        2 <= chess.square_file(s) <= 5 and 2 <= chess.square_rank(s) <= 5
        for s in (played.from_square, played.to_square)
    ]
    return right_piece and inside == [False, True]


@says(
    "~(cover|control|watch|eye|take control of|cover the squares) {q}",
    "~take {q} under control",
    subject="move",
)
def covers(scene: Scene, move: Token, q: Token) -> bool:
    _, played, after = scene.step(move)
    return all(square in after.attacks(played.to_square) for square in scene.squares(q))


@says(
    "~take {q} away from {p}",
    "~deny {p} the square {q}",
    "~keep {p} out of {q}",
    subject="move",
)
def denies(scene: Scene, move: Token, q: Token, p: Token) -> bool:
    """The moved piece guards squares that an enemy piece could otherwise go to."""
    _, played, after = scene.step(move)
    piece = scene.piece(p)
    guarded = all(square in after.attacks(played.to_square) for square in scene.squares(q))
    reached = all(square in after.attacks(piece) for square in scene.squares(q))
    return guarded and reached and after.color_at(piece) == after.turn


@says("~get behind {p}", "~support {p} from behind", "~put a rook behind {p}", subject="move")
def backs_passer(scene: Scene, move: Token, p: Token) -> bool:
    before, played, after = scene.step(move)
    pawn = scene.piece(p)
    rook = played.to_square
    behind = rook not in ahead_of(pawn, before.turn) and chess.square_file(rook) == chess.square_file(pawn)
    own = after.color_at(pawn) == before.turn and is_passed(after, pawn)
    return own and behind and name_at(after, rook) == "rook" and pawn in after.attacks(rook)

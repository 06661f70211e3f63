"""Claims about what a move saves, and what it leaves behind."""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    attackers,
    defenders,
    defends,
    is_doubled,
    is_isolated,
    is_pinned,
    mating_moves,
    name_at,
    other_turn,
)
from services.data.annotate.claims.token import Token


@says(
    "~(parry|stop|rule out|take care of) (the threat of )?{m:a}",
    "~deal with the threat of {m:a}",
    "~prevent {m:a}",
    subject="move",
)
def stops(scene: Scene, move: Token, m: Token) -> bool:
    """A mate in one that was threatened is none now, or what could be played cannot be played any more."""
    before, _, after = scene.step(move)
    then = other_turn(before)
    if then is None:
        return False
    feared = scene.move_on(then, m)
    parried = feared in mating_moves(then) and not mating_moves(after)
    return parried or not after.is_legal(feared)


@says("~(sidestep|avoid|step out of) {m:a}", subject="move")
def avoids_check(scene: Scene, move: Token, m: Token) -> bool:
    """What would have been check can be check no more."""
    before, _, after = scene.step(move)
    then = other_turn(before)
    if then is None:
        return False
    feared = scene.move_on(then, m)
    if not then.gives_check(feared):
        return False
    return not after.is_legal(feared) or not after.gives_check(feared)


@says(
    "~unpin {p}",
    "~break the pin on {p}",
    "~(free|get|release) {p} (from|out of) the pin",
    subject="move",
)
def unpins(scene: Scene, move: Token, p: Token) -> bool:
    before, _, after = scene.step(move)
    square = scene.piece(p)
    own = after.color_at(square) == before.turn == before.color_at(square)
    return own and is_pinned(before, square) and not is_pinned(after, square)


@says("~(block|interrupt|stop) the check", "~shut out {p}", "~interpose( against {p})?", subject="move")
def blocks_check(scene: Scene, move: Token, p: Token | None = None) -> bool:
    before, played, _ = scene.step(move)
    king = before.king(before.turn)
    checkers = list(before.checkers())
    if king is None or len(checkers) != 1 or (p is not None and scene.piece(p, before) != checkers[0]):
        return False
    return played.to_square in chess.SquareSet(chess.between(king, checkers[0]))


@says("~(step|move|walk|get) (the king )?out of (the )?check", "~(step|walk|move) aside", subject="move")
def leaves_check(scene: Scene, move: Token) -> bool:
    before, played, _ = scene.step(move)
    return before.is_check() and name_at(before, played.from_square) == "king"


@says(
    "~(move|take|bring|get|pull) {p} out of (reach|danger|the way) of {by:p}",
    "~(rescue|save) {p} from {by:p}",
    "~step out of (the attack of|the way of|reach of) {by:p}",
    "~(sidestep|dodge|escape) (the attack of |the attack from |the attack by )?{by:p}",
    "~(move|take|bring|get|pull) {p} to safety",
    subject="move",
)
def escapes(scene: Scene, move: Token, p: Token | None = None, by: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    right_piece = p is None or scene.piece(p, before) == played.from_square
    was_hit = attackers(before, played.from_square)
    by_it = by is None or scene.piece(by, before) in was_hit
    return right_piece and bool(was_hit) and by_it and not attackers(after, played.to_square)


@says(
    "~(defend|protect|guard|cover|shore up|look after|support) {wards:pg*}( a second time| again|"
    " once more)?",
    "~add a defender to {wards:pg*}",
    "~give {wards:pg*} (a defender|protection)",
    "~come to the (aid|help|rescue) of {wards:pg*}",
    subject="move",
)
def move_defends(scene: Scene, move: Token, wards: list[Token]) -> bool:
    _, played, after = scene.step(move)
    return all(defends(after, played.to_square, ward) for ward in scene.pieces(wards))


@says(
    "~give {king:p} (some |a little )?(air|luft|room|an escape square)",
    "~make (some )?(luft|air) for {king:p}",
    "~open (a window|an escape square) for {king:p}",
    subject="move",
)
def gives_air(scene: Scene, move: Token, king: Token) -> bool:
    before, played, after = scene.step(move)
    square = scene.piece(king)
    side = before.turn
    if name_at(after, square) != "king" or after.color_at(square) != side or played.to_square == square:
        return False
    return not _exits(before, square, side) and _exits(after, square, side)


def _exits(board: chess.Board, king: chess.Square, side: chess.Color) -> bool:
    near = [s for s in chess.SQUARES if chess.square_distance(s, king) == 1]
    return any(board.color_at(s) != side and not board.attackers(not side, s) for s in near)


@says(
    "~leave {pieces:pg*} (undefended|unprotected|loose|without a defender|hanging|en prise|"
    "unguarded)( behind)?",
    "~(abandon|desert) {pieces:pg*}",
    "~leave {pieces:pg*} in the lurch",
    subject="move",
)
def leaves_loose(scene: Scene, move: Token, pieces: list[Token]) -> bool:
    before, _, after = scene.step(move)
    return all(
        attackers(after, square) and not defenders(after, square) and defenders(before, square)
        for square in scene.pieces(pieces)
    )


@says(
    "~(give up|forfeit|lose) (the right to castle|castling|all castling rights)",
    "~end any hope of castling",
    subject="move",
)
def forfeits_castling(scene: Scene, move: Token) -> bool:
    before, played, after = scene.step(move)
    side = before.turn
    return (
        before.has_castling_rights(side)
        and not after.has_castling_rights(side)
        and not before.is_castling(played)
    )


@says(
    "~leave {p} (?P<w>isolated|doubled)",
    "~saddle {s} with an? (?P<w>isolated|doubled) pawn",
    "~accept {q:p}",
    subject="move",
)
def spoils(
    scene: Scene,
    move: Token,
    w: str = "",
    p: Token | None = None,
    q: Token | None = None,
    s: Token | None = None,
) -> bool:
    before, played, after = scene.step(move)
    word = w or (q.adjective if q else "")
    holds = is_isolated if word == "isolated" else is_doubled
    right_pawn = all(scene.piece(token) == played.to_square for token in (p, q) if token)
    right_side = s is None or scene.side(s) == before.turn
    return (
        right_pawn and right_side and holds(after, played.to_square) and not holds(before, played.from_square)
    )

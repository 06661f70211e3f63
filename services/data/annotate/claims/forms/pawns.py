"""Claims about the pawn skeleton."""

from collections.abc import Callable, Sequence

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    ahead_of,
    all_of,
    defenders,
    files_beside,
    is_backward,
    is_doubled,
    is_isolated,
    is_passed,
    is_pawn,
    pawns_on,
    steps_to_go,
)
from services.data.annotate.claims.token import Token

_WINGS = {"queenside": "abc", "kingside": "fgh"}
_PROPERTY: dict[str, Callable[[chess.Board, chess.Square], bool]] = {
    "passed": is_passed,
    "isolated": is_isolated,
    "doubled": is_doubled,
    "backward": is_backward,
}


def _all(
    scene: Scene, tokens: Token | list[Token], holds: Callable[[chess.Board, chess.Square], bool]
) -> bool:
    return all(holds(scene.board, square) for square in scene.pieces(tokens))


@says(
    "~be ((both|also|all|itself|already) )?(an? )?(?P<w>passed|isolated|doubled|backward)( pawns?)?( now|"
    " as well)?",
    subject="piece",
)
def pawn_is(scene: Scene, pawn: Token, w: str) -> bool:
    return _all(scene, pawn, _PROPERTY[w])


@says("{pawns:pg*} ~be (both |all )?(?P<w>passed|isolated|doubled|backward)")
def several_pawns_are(scene: Scene, pawns: list[Token], w: str) -> bool:
    return _all(scene, pawns, _PROPERTY[w])


@says(
    "~(have|own|get|hold) {p}( there)?",
    "~(have|own|get|hold) {g}( there)?",
    "~have to live with {p}",
    subject="side",
)
def side_has(scene: Scene, side: Token, p: Token | None = None, g: Token | None = None) -> bool:
    found = scene.pieces([token for token in (p, g) if token])
    return scene.owner(found) == scene.side(side)


@says("~(have|own|get) a protected (passed pawn|passer) on {q}", subject="side")
def has_protected_passer(scene: Scene, side: Token, q: Token) -> bool:
    return has_passer(scene, side, q) and all(_guarded(scene.board, square) for square in scene.squares(q))


@says("~be a protected (passed pawn|passer)", "~be passed and protected( by a pawn)?", subject="piece")
def is_protected_passer(scene: Scene, pawn: Token) -> bool:
    return _all(scene, pawn, lambda board, square: is_passed(board, square) and _guarded(board, square))


def _guarded(board: chess.Board, square: chess.Square) -> bool:
    return any(is_pawn(board, defender) for defender in defenders(board, square))


@says("~(have|own|get) a passer on {q}", "~(have|own|get) passers on {q}", subject="side")
def has_passer(scene: Scene, side: Token, q: Token) -> bool:
    found = scene.squares(q)
    return scene.owner(found) == scene.side(side) and all(is_passed(scene.board, s) for s in found)


@says(
    "no (enemy )?pawn can (ever )?stop {p}",
)
def nothing_but_pieces_stop(scene: Scene, p: Token) -> bool:
    return _all(scene, p, is_passed)


@says(
    "~be (just |only |now )?{n} (steps?|moves?|squares?) (away )?from (queening|promotion|promoting)",
    "~need (just |only )?{n} more (moves?|steps?) to (queen|promote)",
    subject="piece",
)
def steps_left(scene: Scene, pawn: Token, n: str) -> bool:
    return _all(scene, pawn, lambda board, square: _steps(board, square) == count_of(n))


def _steps(board: chess.Board, square: chess.Square) -> int:
    side = board.color_at(square)
    return steps_to_go(square, side) if side is not None and is_pawn(board, square) else -1


@says(
    "{p:t} (~blockade|~block|~stand in front of|~stand in the way of|~be planted in front of|~hold up) {q:p}",
)
def blockades(scene: Scene, p: Token, q: Token) -> bool:
    blocker, pawn = scene.piece(p), scene.piece(q)
    side = scene.owner([pawn])
    enemies = scene.board.color_at(blocker) == (not side)
    return enemies and is_pawn(scene.board, pawn) and ahead_of(pawn, side)[0] == blocker


@says("~(have|own|get) connected passers on {q}", "~(have|own|get) connected {g}", subject="side")
def has_connected_passers(scene: Scene, side: Token, q: Token | None = None, g: Token | None = None) -> bool:
    found = scene.squares(q) if q else scene.pieces([token for token in (g,) if token])
    return _are_connected_passers(scene, found) and scene.owner(found) == scene.side(side)


@says("~be connected( passers| passed pawns)?", subject="group")
def are_connected(scene: Scene, pawns: Token) -> bool:
    return _are_connected_passers(scene, scene.pieces(pawns))


def _are_connected_passers(scene: Scene, pawns: Sequence[chess.Square]) -> bool:
    if len(pawns) != 2 or not all(is_passed(scene.board, square) for square in pawns):
        return False
    one, other = pawns
    near = abs(chess.square_rank(other) - chess.square_rank(one)) <= 1
    return near and chess.square_file(other) in files_beside(one)


@says("~(have|get|be left with) doubled pawns on {f}", subject="side")
def has_doubled_pawns(scene: Scene, side: Token, f: Token) -> bool:
    colour = scene.side(side)
    return all(len(pawns_on(scene.board, file, colour)) > 1 for file in scene.files(f))


@says(
    "no (other )?pawn (of {o} own )?~stand beside {p}",
    "{p} ~have no neighbours",
    "{p} ~have no (fellow |other )?pawn on (either|a) neighbouring file",
)
def stands_alone(scene: Scene, p: Token, o: Token | None = None) -> bool:
    return _all(scene, p, is_isolated)


@says("{p} ~have been left behind by its neighbours", "{p} ~lag behind its neighbours")
def lags(scene: Scene, p: Token) -> bool:
    return _all(scene, p, is_backward)


@says(
    "~have (a|the) {wing:w} (pawn )?majority( there)?",
    "~have (more pawns|the extra pawn|an extra pawn) on the {wing:w}",
    subject="side",
)
def has_majority(scene: Scene, side: Token, wing: str) -> bool:
    colour = scene.side(side)
    return _on_wing(scene, colour, wing) > _on_wing(scene, not colour, wing)


@says(
    "~have {n} pawns? (against|to|versus) {k:n} on the {wing:w}",
    "~have a {wing:w} majority of {n} (against|to|versus) {k:n}",
    subject="side",
)
def outnumbers(scene: Scene, side: Token, n: str, k: str, wing: str) -> bool:
    colour = scene.side(side)
    counted = (_on_wing(scene, colour, wing), _on_wing(scene, not colour, wing))
    return counted == (count_of(n), count_of(k))


def _on_wing(scene: Scene, side: chess.Color, wing: str) -> int:
    pawns = all_of(scene.board, side, "pawn")
    return sum(chess.FILE_NAMES[chess.square_file(pawn)] in _WINGS.get(wing, "") for pawn in pawns)


@says(
    "~have {g} in the centre",
    "~have (more|the bigger share|the greater share) of the centre with {g}",
    "~(hold|control|claim|occupy) the centre with {g}",
    subject="side",
)
def holds_centre(scene: Scene, side: Token, g: Token) -> bool:
    colour, found = scene.side(side), scene.group(g)
    central = [s for s in (chess.D4, chess.E4, chess.D5, chess.E5) if is_pawn(scene.board, s)]
    theirs = sum(scene.board.color_at(square) != colour for square in central)
    return scene.owner(found) == colour and set(found) <= set(central) and theirs <= 1


_HEAD_TO_HEAD = "(~block each other|~be locked( together)?|~stand head to head|~face each other)"


@says("{q} " + _HEAD_TO_HEAD, "the centre ~be (fixed|blocked|locked|closed): {q}")
def are_rams(scene: Scene, q: Token) -> bool:
    found = scene.squares(q)
    return len(found) == 2 and _ram(scene.board, *found)


@says("{a:p} and {b:p} " + _HEAD_TO_HEAD)
def two_are_rams(scene: Scene, a: Token, b: Token) -> bool:
    return _ram(scene.board, *scene.pieces([a, b]))


def _ram(board: chess.Board, one: chess.Square, other: chess.Square) -> bool:
    white, black = (one, other) if board.color_at(one) == chess.WHITE else (other, one)
    colours = (board.color_at(white), board.color_at(black)) == (chess.WHITE, chess.BLACK)
    return colours and is_pawn(board, white) and is_pawn(board, black) and black == white + 8

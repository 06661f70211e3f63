"""Claims about contacts: attacks, defence, loose pieces, pins, skewers, forks, overload, discoveries."""

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import count_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    attackers,
    attacks,
    defenders,
    forks,
    in_line,
    name_at,
    pins,
    worth_at,
)
from services.data.annotate.claims.token import Token

_NO_GUARD = "(undefended|unprotected|loose|without (a defender|protection)|unguarded)"


@says(
    "~(attack|hit|eye|target) {targets:pg*}( at once| again| there)?",
    subject="piece",
)
def piece_attacks(scene: Scene, piece: Token, targets: list[Token]) -> bool:
    attacker = scene.piece(piece)
    return all(attacks(scene.board, attacker, target) for target in scene.pieces(targets))


@says(
    "{pieces:pg*} (both |all )?~(attack|hit|eye|target) {target:p}",
)
def pieces_attack(scene: Scene, pieces: list[Token], target: Token) -> bool:
    prey = scene.piece(target)
    return all(attacks(scene.board, attacker, prey) for attacker in scene.pieces(pieces))


@says(
    "~be (also |now |already )?(attacked|hit|under attack|under fire)( by {by:pg*}| from {of:pg*})?",
    subject="piece",
)
def is_attacked(
    scene: Scene, piece: Token, by: list[Token] | None = None, of: list[Token] | None = None
) -> bool:
    prey = scene.piece(piece)
    named = scene.pieces(by or of or [])
    return bool(attackers(scene.board, prey)) and all(attacks(scene.board, a, prey) for a in named)


@says(
    "~be (still )?(attacked|hit) {n}( times)? and (only )?defended {k:n}( times)?",
    subject="piece",
)
def is_attacked_and_defended(scene: Scene, piece: Token, n: str, k: str) -> bool:
    square = scene.piece(piece)
    counted = len(attackers(scene.board, square)), len(defenders(scene.board, square))
    return counted == (count_of(n), count_of(k))


@says(
    "~be (still |also |now |left )?" + _NO_GUARD,
    "~have no (defender|protection|defenders)( at all)?",
    "(nothing|nobody|no piece) ~(defend|protect|guard)",
    "(~stand|~sit|~be left) " + _NO_GUARD,
    subject="piece",
)
def is_undefended(scene: Scene, piece: Token) -> bool:
    return all(not defenders(scene.board, square) for square in scene.pieces(piece))


@says(
    "{pieces:pg*} (~be|~stand) (both |all )?(still |left )?" + _NO_GUARD,
)
def are_undefended(scene: Scene, pieces: list[Token]) -> bool:
    return all(not defenders(scene.board, square) for square in scene.pieces(pieces))


@says(
    "~hang( to {by:p})?",
    "~be en prise( to {by:p})?",
    subject="piece",
)
def hangs(scene: Scene, piece: Token, by: Token | None = None) -> bool:
    square = scene.piece(piece)
    loose = bool(attackers(scene.board, square)) and not defenders(scene.board, square)
    return loose and (by is None or attacks(scene.board, scene.piece(by), square))


@says("{pieces:pg*} ~be (both |all )?(hanging|en prise)")
def several_hang(scene: Scene, pieces: list[Token]) -> bool:
    found = scene.pieces(pieces)
    return all(attackers(scene.board, s) and not defenders(scene.board, s) for s in found)


@says("nothing ~(defend|protect|guard) {p} against {by:p}")
def nothing_defends_against(scene: Scene, p: Token, by: Token) -> bool:
    square = scene.piece(p)
    return not defenders(scene.board, square) and attacks(scene.board, scene.piece(by), square)


@says(
    "~be (only |just |still )?(defended|protected|guarded|held) (only )?by {by:p}( alone)?",
    "~rely on {by:p}( alone)?( for protection)?",
    subject="piece",
)
def is_defended_only_by(scene: Scene, piece: Token, by: Token) -> bool:
    return defenders(scene.board, scene.piece(piece)) == {scene.piece(by)}


@says("only {by:p} ~(defend|protect|guard|hold) {p}", "{by:p} alone ~(defend|protect|guard|hold) {p}")
def alone_defends(scene: Scene, by: Token, p: Token) -> bool:
    return defenders(scene.board, scene.piece(p)) == {scene.piece(by)}


# -- lines ---------------------------------------------------------------------------------------

_PINNED = "(pinned|tied|nailed)( down)?"


@says(
    f"~be {_PINNED} (to|against) {{behind:p}}( by {{pinner:p}})?",
    f"~be {_PINNED} by {{pinner:p}}( (to|against) {{behind:p}})?",
    "~be in a pin( (against|to) {behind:p})?",
    subject="piece",
)
def piece_is_pinned(
    scene: Scene, piece: Token, behind: Token | None = None, pinner: Token | None = None
) -> bool:
    square, board = scene.piece(piece), scene.board
    behind_ = scene.piece(behind) if behind else None
    pinner_ = scene.piece(pinner) if pinner else None
    return any(
        pins(board, a, square, b)
        for a in (attackers(board, square) if pinner_ is None else {pinner_})
        for b in (set(board.piece_map()) - {square} if behind_ is None else {behind_})
    )


@says(
    "~(pin|tie|nail) {pinned:p}( down)? (to|against) {behind:p}",
    "~have {pinned:p} (in a pin|pinned)( (against|to) {behind:p})?",
    subject="piece",
)
def piece_pins(scene: Scene, piece: Token, pinned: Token, behind: Token | None = None) -> bool:
    return piece_is_pinned(scene, pinned, behind, piece)


@says(
    "if {p} (moves|moved|ever moves), {by:p} (hits|attacks|would hit|would attack|could take) {target:p}",
    "once {p} moves, {by:p} (hits|attacks) {target:p}",
    "a move of {p} would uncover an attack (by|of|from) {by:p} on {target:p}",
    "{by:t} ~be lined up with {target:p} behind {p}",
    "only {p} ~stand between {by:p} and {target:p}",
    "{p:t} ~(mask|hide) an attack (by|of|from) {by:p} on {target:p}",
)
def stands_between(scene: Scene, p: Token, by: Token, target: Token) -> bool:
    screen, slider, prey = scene.piece(p), scene.piece(by), scene.piece(target)
    board = scene.board
    reaches = screen in board.attacks(slider) and name_at(board, slider) in ("bishop", "rook", "queen")
    enemies = board.color_at(slider) != board.color_at(prey)
    return reaches and enemies and in_line(board, slider, screen, prey)


@says(
    "~skewer {front:p} (and|to|against) {behind:p}",
    "~have {front:p} and {behind:p} on a skewer",
    subject="piece",
)
def piece_skewers(scene: Scene, piece: Token, front: Token, behind: Token) -> bool:
    slider, first, second = scene.piece(piece), scene.piece(front), scene.piece(behind)
    board = scene.board
    own = scene.owner([first, second])
    value = worth_at(board, second)
    prize = value >= 3 and (value > worth_at(board, slider) or not defenders(board, second))
    dearer = worth_at(board, first) > worth_at(board, slider)
    line = in_line(board, slider, first, second) and attacks(board, slider, first)
    return line and prize and dearer and board.color_at(slider) != own


@says(
    "behind {q:p} ~(stand|be) {p}",
)
def stands_behind(scene: Scene, p: Token, q: Token | None = None) -> bool:
    second = scene.piece(p)
    named = [square for square in scene.mentioned(before=p) if square != second]
    if q is None and not named:
        return False
    front = scene.piece(q) if q else named[0]
    return any(in_line(scene.board, slider, front, second) for slider in attackers(scene.board, front))


@says(
    "~fork {targets:pg*}",
    "~have {targets:pg*} in a fork",
    subject="piece",
)
def piece_forks(scene: Scene, piece: Token, targets: list[Token]) -> bool:
    return forks(scene.board, scene.piece(piece), scene.pieces(targets))


@says(
    "~be overloaded( here)?",
    "~have (two|too many) (jobs|tasks|duties)( to do| at once)?",
    "~be overworked",
    subject="piece",
)
def is_overloaded(scene: Scene, piece: Token) -> bool:
    return len(_wards(scene.board, scene.piece(piece))) >= 2


def _wards(board: chess.Board, guard: chess.Square) -> list[chess.Square]:
    """What it alone defends while it is attacked."""
    return [
        square
        for square, piece in board.piece_map().items()
        if piece.piece_type != chess.KING and attackers(board, square) and defenders(board, square) == {guard}
    ]


@says(
    "{guard:p} alone (~defend|~guard|~hold|~protect) (both )?{wards:pg*}",
    "{guard:p} ~be the only defender of (both )?{wards:pg*}",
    "(both )?{wards:pg*} ~(depend|rely|lean) on {guard:p}( alone)?",
)
def alone_defends_all(scene: Scene, guard: Token, wards: list[Token]) -> bool:
    square = scene.piece(guard)
    return all(defenders(scene.board, ward) == {square} for ward in scene.pieces(wards))

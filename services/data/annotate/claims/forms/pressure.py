"""Claims about the pressure a move puts on enemy pieces, and about what may be taken after it."""

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.forms.strikes import captured
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import (
    attackers,
    attacks,
    defenders,
    forks,
    is_pawn,
    name_at,
    pins,
)
from services.data.annotate.claims.token import Token


@says(
    "~(attack|hit|harass|bother|chase|question|kick|target) {targets:pg*}( at once| with tempo)?",
    "~(pile up|put (more )?pressure) on {targets:pg*}",
    "~(go after|turn on|look at|aim at|take aim at) {targets:pg*}",
    "~put the question to {targets:pg*}",
    subject="move",
)
def move_attacks(scene: Scene, move: Token, targets: list[Token]) -> bool:
    _, played, after = scene.step(move)
    return all(attacks(after, played.to_square, target) for target in scene.pieces(targets))


_ORDINALS = {"second": 2, "third": 3, "fourth": 4}


@says(
    "~(bring|add) a (?P<n>second|third|fourth) attacker against {target:p}",
    "~attack {target:p} (a (?P<n>second|third|fourth) time|once more)",
    subject="move",
)
def adds_attacker(scene: Scene, move: Token, target: Token, n: str = "") -> bool:
    _, played, after = scene.step(move)
    square = scene.piece(target)
    hitting = attackers(after, square)
    return played.to_square in hitting and len(hitting) >= 2 and (not n or len(hitting) == _ORDINALS[n])


@says(
    "~fork {targets:pg*}", "~attack {targets:pg*} (at the same time|at once|simultaneously)", subject="move"
)
def move_forks(scene: Scene, move: Token, targets: list[Token]) -> bool:
    _, played, after = scene.step(move)
    return forks(after, played.to_square, scene.pieces(targets))


@says(
    "~uncover (an attack (by|of|from) )?{by:p}( (on|against) {target:p})?",
    "~uncover {by:p}, which (hits|attacks) {target:p}",
    "~(open|clear) the (line|way) for {by:p} to hit {target:p}",
    "~unmask an attack (by|from) {by:p} on {target:p}",
    subject="move",
)
def uncovers(scene: Scene, move: Token, by: Token, target: Token | None = None) -> bool:
    before, played, after = scene.step(move)
    slider = scene.piece(by)
    if slider == played.to_square or after.color_at(slider) != before.turn:
        return False
    prey = [scene.piece(target)] if target else list(after.attacks(slider))
    return any(
        after.color_at(square) == after.turn
        and attacks(after, slider, square)
        and square not in before.attacks(slider)
        for square in prey
    )


@says(
    "~(pin|tie|nail) {pinned:p}( down)?( (to|against) {behind:p})?",
    "~put {pinned:p} in a pin( against {behind:p})?",
    subject="move",
)
def move_pins(scene: Scene, move: Token, pinned: Token, behind: Token | None = None) -> bool:
    _, played, after = scene.step(move)
    square = scene.piece(pinned)
    backs = [scene.piece(behind)] if behind else [s for s in after.piece_map() if s != square]
    return any(pins(after, played.to_square, square, back) for back in backs)


@says(
    "~(offer|propose) (an exchange|a trade|to exchange|to trade|to swap) (of )?(the )?{name:w}s",
    "~oppose {p}",
    subject="move",
)
def offers_trade(
    scene: Scene, move: Token, name: str = "", p: Token | None = None, s: Token | None = None
) -> bool:
    _, played, after = scene.step(move)
    own = played.to_square
    prey = [scene.piece(p)] if p else [s_ for s_ in after.attacks(own) if after.color_at(s_) == after.turn]
    return any(
        name_at(after, square) == name_at(after, own)
        and name in ("", name_at(after, own))
        and attacks(after, own, square)
        and attacks(after, square, own)
        and bool(defenders(after, square))
        and bool(defenders(after, own))
        for square in prey
    )


@says(
    "~challenge (the )?{targets:pg*}",
    "~(strike|hit|chip away) at {targets:pg*}",
    "~(attack|hit|confront) {targets:pg*} with a pawn",
    subject="move",
)
def pawn_strikes(scene: Scene, move: Token, targets: list[Token]) -> bool:
    before, played, after = scene.step(move)
    pawn = is_pawn(before, played.from_square) and not played.promotion
    return pawn and all(attacks(after, played.to_square, target) for target in scene.pieces(targets))


@says(
    "~run into {by:p}",
    "~put {piece:p} where {by:p} (can take|attacks) it",
    "~(put|leave) {piece:p} en prise( to {by:p})?",
    subject="move",
)
def can_be_taken(scene: Scene, move: Token, by: Token | None = None, piece: Token | None = None) -> bool:
    _, played, after = scene.step(move)
    square = played.to_square
    takers = {reply.from_square for reply in after.legal_moves if captured(after, reply) == square}
    right_piece = piece is None or scene.piece(piece) == square
    return (
        right_piece and bool(takers) and (by is None or scene.piece(by) in attackers(after, square) & takers)
    )

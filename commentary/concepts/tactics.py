"""Contacts between pieces: loose and outnumbered pieces, pins, skewers, forks, overload, hidden attacks.

All is geometry on one board: a piece attacks what it could capture if kings did not matter, and defends
likewise. Whether a contact can be used is for the engine's lines to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import chess

from commentary import concept as registry
from commentary import sight
from commentary.concept import Values
from commentary.exchange import VALUES, gain, worth
from commentary.scene import Scene

concept = partial(registry.concept, topic="contacts")
_NO_GUARD = "(undefended||unprotected|loose|without a defender|without protection|unguarded)"


def undefended(board: chess.Board, square: chess.Square) -> bool:
    """Whether no piece defends what stands there."""
    side = board.color_at(square)
    return side is not None and not board.attackers_mask(side, square)


def _men(board: chess.Board, side: chess.Color) -> Iterator[chess.Square]:
    return chess.scan_forward(board.occupied_co[side] & ~board.kings)


def _attacked(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Color, list[int], list[int]]]:
    """Pieces and pawns that are attacked, with their attackers and defenders."""
    for side in (chess.WHITE, chess.BLACK):
        for square in _men(board, side):
            attackers = list(chess.scan_forward(board.attackers_mask(not side, square)))
            if attackers:
                yield square, side, attackers, list(chess.scan_forward(board.attackers_mask(side, square)))


def can_be_won(board: chess.Board, square: chess.Square) -> bool:
    """Whether the side to move gains by taking there, pinned takers and recaptures considered."""
    moves = board.generate_legal_moves(to_mask=chess.BB_SQUARES[square])
    return any(board.is_capture(move) and gain(board, move) > 0 for move in moves)


# -- loose and outnumbered pieces ----------------------------------------------------------------


def _loose(board: chess.Board) -> Iterator[Values]:
    for square, side, attackers, defenders in _attacked(board):
        if not defenders:
            one = attackers[0] if len(attackers) == 1 else None
            yield {"side": side, "piece": square, "attacker": one, "attackers": attackers}


def _is_loose(scene: Scene, piece: int, attacker: int | None = None, attackers: Sequence[int] = ()) -> bool:
    named = {*attackers, *([] if attacker is None else [attacker])}
    found = sight.attackers(scene.board, piece)
    return bool(found) and named <= found and not sight.defenders(scene.board, piece)


def _loose_weight(board: chess.Board, values: Values) -> float:
    value = worth(board, values["piece"])
    ripe = 1.5 if values["side"] != board.turn else 0.0
    return (3.0 if value > 1 else 1.6) + 0.5 * value + ripe


concept(
    "loose piece",
    "{piece} ~be attacked by {attackers:pieces} and undefended",
    "{attacker} attacks {piece}, which (nothing defends|has no protection)",
    "{piece} ~hang to {attacker}",
    "{piece} ~be loose and under attack from {attackers:pieces}",
    "nothing defends {piece} against {attacker}",
    "{piece} ~be en prise to {attacker}",
    "{piece} ~have no defender, and {attacker} attacks it",
    "{piece} ~be (hanging||en prise|left hanging|attacked and undefended)",
    "||{piece} ~hang",
    "||nothing ~(defend|protect|guard) {piece} against {attacker}",
    detect=_loose,
    holds=_is_loose,
    weight=_loose_weight,
    favours="-side",
)
concept(
    "hanging pieces",
    "||{pieces} ~be (both |all )?(hanging|en prise)",
    holds=lambda scene, pieces: all(sight.hangs(scene.board, square) for square in pieces),
)
concept(
    "undefended",
    "||{pieces} ~(be|stand|sit|be left) (both |all |still |also |now )?(left )?" + _NO_GUARD,
    "||{pieces} ~have no (defender|protection|defenders)( at all)?",
    "||nothing ~(defend|protect|guard) {pieces}",
    "||(nobody|no piece) ~(defend|protect|guard) {pieces}",
    "||{pieces} (nothing|nobody|no piece) ~(defend|protect|guard)",
    holds=lambda scene, pieces: not any(sight.defenders(scene.board, square) for square in pieces),
)
concept(
    "attack",
    "||{pieces} (both |all )?~(attack|hit|eye|target) {targets:pieces}( again| there)?",
    "||{targets:pieces} ~be (also |now |already )?(attacked|hit|under attack|under fire)( by {pieces}| from {pieces})?",
    holds=lambda scene, targets, pieces=(): all(
        sight.attackers(scene.board, target)
        and all(sight.attacks(scene.board, piece, target) for piece in pieces)
        for target in targets
    ),
    weight=0.8,
)
concept(
    "defence",
    "||{pieces} ~(defend|protect|guard|hold|cover) {wards:pieces}",
    "||{wards:pieces} ~be (defended|protected|guarded|held) by {pieces}",
    holds=lambda scene, wards, pieces: all(
        sight.defends(scene.board, piece, ward) for piece in pieces for ward in wards
    ),
    weight=0.8,
)


def _pressed(board: chess.Board) -> Iterator[Values]:
    """Defended pieces that can be won, or would be if it were the other side's turn."""
    turns = {board.turn: board}
    if not board.is_check():
        turns[not board.turn] = board.copy(stack=False)
        turns[not board.turn].turn = not board.turn
    for square, side, attackers, defenders in _attacked(board):
        view = turns.get(not side)
        if defenders and view is not None and can_be_won(view, square):
            yield {
                "side": side,
                "piece": square,
                "attackers": attackers,
                "defender": defenders[0] if len(defenders) == 1 else None,
                "times": len(attackers) if len(attackers) > len(defenders) else None,
                "guards": len(defenders),
            }


def _is_pressed(
    scene: Scene,
    piece: int,
    attackers: Sequence[int] | None = None,
    defender: int | None = None,
    times: int | None = None,
    guards: int = 0,
) -> bool:
    hitting, guarding = sight.attackers(scene.board, piece), sight.defenders(scene.board, piece)
    named = set(attackers or ()) <= hitting and bool(hitting)
    only = defender is None or guarding == {defender}
    return named and only and (times is None or (len(hitting), len(guarding)) == (times, guards))


def _pressed_weight(board: chess.Board, values: Values) -> float:
    value = worth(board, values["piece"])
    cheapest = min(worth(board, square) for square in values["attackers"])
    return 1.0 + 0.4 * value + (1.0 if cheapest < value else 0.0)


concept(
    "pressed piece",
    "{piece} ~be under attack from {attackers:pieces}",
    "{piece} ~be attacked {times} and (only |)defended {guards:times}",
    "{piece} ~be attacked by {attackers:pieces} and defended only by {defender}",
    "only {defender} defends {piece}, and {attackers:pieces} (attack||hit) it",
    "{piece} ~(rely||depend) on {defender} for protection, and {attackers:pieces} (attack||hit) it",
    detect=_pressed,
    holds=_is_pressed,
    weight=_pressed_weight,
    favours="-side",
)
concept(
    "only defender",
    "||{piece} ~be (only |just |still )?(defended|protected|guarded|held) (only )?by {defender}( alone)?",
    "||{piece} ~rely on {defender}( alone)?( for protection)?",
    "||only {defender} ~(defend|protect|guard|hold) {piece}",
    "||{defender} alone ~(defend|protect|guard|hold) {piece}",
    holds=lambda scene, piece, defender: sight.defenders(scene.board, piece) == {defender},
)


def _overloaded(board: chess.Board) -> Iterator[Values]:
    """Pieces that alone defend two others, each of which could otherwise be taken."""
    for side in (chess.WHITE, chess.BLACK):
        wards: dict[chess.Square, list[chess.Square]] = {}
        for square in _men(board, side):
            defenders = board.attackers_mask(side, square)
            if defenders.bit_count() == 1 and board.attackers_mask(not side, square):
                wards.setdefault(chess.lsb(defenders), []).append(square)
        for guard, squares in wards.items():
            if len(squares) >= 2:
                yield {"side": side, "guard": guard, "wards": squares[:2]}


def _is_overloaded(scene: Scene, guard: int, wards: Sequence[int] | None = None) -> bool:
    found = [
        square
        for square, piece in scene.board.piece_map().items()
        if piece.piece_type != chess.KING
        and sight.attackers(scene.board, square)
        and sight.defenders(scene.board, square) == {guard}
    ]
    return len(found) >= 2 and set(wards or ()) <= set(found)


concept(
    "overloaded piece",
    "{guard} ~be (overloaded|overworked): it alone (defends|holds||guards) {wards:pieces}",
    "{guard} alone (guards||defends|holds) {wards:pieces}",
    "{wards:pieces} depend on {guard} alone",
    "{guard} ~have two jobs at once: it is the only defender of {wards:pieces}",
    "{guard} ~be the only defender of {wards:pieces}",
    "||{guard} ~be (overloaded|overworked)( here)?",
    "||{guard} ~have (two|too many) (jobs|tasks|duties)( to do| at once)?",
    detect=_overloaded,
    holds=_is_overloaded,
    weight=lambda board, values: 1.4 + 0.5 * sum(worth(board, square) for square in values["wards"]),
    favours="-side",
)


# -- forks ---------------------------------------------------------------------------------------


def fork_targets(board: chess.Board, attacker: chess.Square) -> list[chess.Square]:
    """What a fork by the piece on `attacker` would count: king, pieces worth more, undefended pieces."""
    side, own = board.color_at(attacker), worth(board, attacker)
    prey = board.attacks_mask(attacker) & board.occupied_co[not side] & ~board.pawns
    return [s for s in chess.scan_forward(prey) if worth(board, s) > own or undefended(board, s)]


def _forks(board: chess.Board) -> Iterator[Values]:
    for side in (chess.WHITE, chess.BLACK):
        for attacker in _men(board, not side):
            targets = fork_targets(board, attacker)
            if len(targets) >= 2:
                yield {"side": side, "attacker": attacker, "targets": targets[:3]}


concept(
    "fork",
    "{attacker} ~fork {targets:pieces}",
    "{attacker} ~have {targets:pieces} in a fork",
    "{attacker} ~attack {targets:pieces} at once",
    detect=_forks,
    holds=lambda scene, attacker, targets: sight.forks(scene.board, attacker, targets),
    weight=4.6,
    favours="-side",
)


# -- lines ---------------------------------------------------------------------------------------


def _behind(board: chess.Board, slider: chess.Square, first: chess.Square) -> chess.Square | None:
    """The next piece on the line from `slider` beyond `first`."""
    beyond = [
        square
        for square in chess.scan_forward(chess.ray(slider, first) & board.occupied)
        if chess.between(slider, square) & chess.BB_SQUARES[first]
    ]
    return min(beyond, key=lambda square: chess.square_distance(slider, square), default=None)


def _through(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Square, chess.Square]]:
    """Line pieces, the first piece on each of their lines, and an enemy of theirs behind it."""
    sliders = board.bishops | board.rooks | board.queens
    for slider in chess.scan_forward(sliders):
        for first in chess.scan_forward(board.attacks_mask(slider) & board.occupied):
            second = _behind(board, slider, first)
            if second is not None and board.color_at(second) != board.color_at(slider):
                yield slider, first, second


def pins(board: chess.Board) -> Iterator[Values]:
    """Behind the pinned piece stands its king, or something worth more than it and the pinner."""
    for slider, first, second in _through(board):
        attacker, front, prize = (worth(board, square) for square in (slider, first, second))
        own = board.color_at(first) == board.color_at(second)
        if own and prize > front and (prize > attacker or prize == VALUES[chess.KING]):
            yield {"side": board.color_at(first), "pinned": first, "pinner": slider, "behind": second}


def _is_pin(scene: Scene, pinned: int, pinner: int | None = None, behind: int | None = None) -> bool:
    board = scene.board
    pinners = sight.attackers(board, pinned) if pinner is None else {pinner}
    prizes = set(board.piece_map()) - {pinned} if behind is None else {behind}
    return any(sight.pins(board, a, pinned, b) for a in pinners for b in prizes)


def _pin_weight(board: chess.Board, values: Values) -> float:
    weight = 1.0 if worth(board, values["pinned"]) == 1 else 4.2
    return weight + (0.8 if board.piece_type_at(values["behind"]) == chess.KING else 0.0)


concept(
    "pin",
    "{pinned} ~be pinned (to|against) {behind}( by {pinner})?",
    "{pinned} ~be pinned (|to {behind} )by {pinner}",
    "{pinner} ~(pin|tie||nail) {pinned}( down)? to {behind}",
    "{pinner} ~have {pinned} in a pin against {behind}",
    "{pinned} ~be in a pin( (against|to) {behind})?",
    "||{pinner} ~(pin|tie|nail) {pinned}( down)? against {behind}",
    "||{pinner} ~pin {pinned}",
    "||{pinned} ~be (pinned|tied|nailed)( down)?",
    detect=pins,
    holds=_is_pin,
    weight=_pin_weight,
    favours="-side",
)


def _skewers(board: chess.Board) -> Iterator[Values]:
    for slider, first, second in _through(board):
        attacker, front, prize = (worth(board, square) for square in (slider, first, second))
        own = board.color_at(first) == board.color_at(second)
        if (
            own
            and front > attacker
            and front >= prize >= 3
            and (prize > attacker or undefended(board, second))
        ):
            yield {"side": board.color_at(first), "attacker": slider, "front": first, "behind": second}


def _is_skewer(scene: Scene, attacker: int, front: int, behind: int) -> bool:
    board = scene.board
    enemies = scene.owner(front, behind) != board.color_at(attacker)
    own, first, prize = (sight.worth_at(board, square) for square in (attacker, front, behind))
    won = prize >= 3 and (prize > own or not sight.defenders(board, behind))
    line = sight.in_line(board, attacker, front, behind) and sight.attacks(board, attacker, front)
    return enemies and line and won and first > own and first >= prize


concept(
    "skewer",
    "{attacker} ~skewer {front} (and||to|against) {behind}",
    "{attacker} ~have {front} and {behind} on a skewer",
    detect=_skewers,
    holds=_is_skewer,
    weight=4.4,
    favours="-side",
)


def _hidden(board: chess.Board) -> Iterator[Values]:
    """Own pieces that leave a line open to a king, queen or undefended piece when they move."""
    for slider, first, second in _through(board):
        if board.color_at(first) != board.color_at(slider):
            continue
        same_file = chess.square_file(first) == chess.square_file(second)
        stays = same_file and board.piece_type_at(first) == chess.PAWN
        kind = board.piece_type_at(second)
        royal = kind in (chess.KING, chess.QUEEN) and kind != board.piece_type_at(slider)
        prey = kind != chess.QUEEN and worth(board, second) >= 3 and undefended(board, second)
        if not stays and (royal or prey) and first != second:
            yield {"side": board.color_at(slider), "slider": slider, "screen": first, "target": second}


def _is_hidden(scene: Scene, slider: int, screen: int, target: int) -> bool:
    board = scene.board
    reaches = screen in board.attacks(slider) and sight.name_at(board, slider) in ("bishop", "rook", "queen")
    enemies = board.color_at(slider) != board.color_at(target)
    return reaches and enemies and sight.in_line(board, slider, screen, target)


concept(
    "hidden attack",
    "(if|once) {screen} moves, {slider} (hits|attacks||would hit|would attack) {target}",
    "{slider} ~be lined up with {target} behind {screen}",
    "only {screen} stands between {slider} and {target}",
    "a move of {screen} would uncover an attack by {slider} on {target}",
    "{screen} ~(mask||hide) an attack by {slider} on {target}",
    detect=_hidden,
    holds=_is_hidden,
    weight=3.4,
    favours="side",
)

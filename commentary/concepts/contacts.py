"""Loose, outnumbered and overloaded pieces, and who attacks and defends what."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, every, of_topic
from commentary.concepts.tactics import men
from commentary.context import Context, Unknown
from commentary.exchange import gain, worth
from commentary.wording import HOW

concept = of_topic("contacts")
_NO_GUARD = "(undefended||unprotected|loose|without a defender|without protection|unguarded)"


def _attacked(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Color, list[int], list[int]]]:
    """Pieces and pawns that are attacked, with their attackers and defenders."""
    for side in chess.COLORS:
        for square in men(board, side):
            attackers = list(chess.scan_forward(board.attackers_mask(not side, square)))
            if attackers:
                yield square, side, attackers, list(chess.scan_forward(board.attackers_mask(side, square)))


def can_be_won(board: chess.Board, square: chess.Square) -> bool:
    """Whether the side to move gains by taking there, pinned takers and recaptures considered."""
    moves = board.generate_legal_moves(to_mask=chess.BB_SQUARES[square])
    return any(board.is_capture(move) and gain(board, move) > 0 for move in moves)


def _loose(board: chess.Board) -> Iterator[Values]:
    for square, side, attackers, defenders in _attacked(board):
        if not defenders:
            attacker = attackers[0] if len(attackers) == 1 else None
            yield {"side": side, "piece": square, "attacker": attacker, "attackers": attackers}


def _loose_weight(board: chess.Board, values: Values) -> float:
    value = worth(board, values["piece"])
    ripe = 1.5 if values["side"] != board.turn else 0.0
    return (3.0 if value > 1 else 1.6) + 0.5 * value + ripe


@concept("loose piece", detect=_loose, weight=_loose_weight, favours="-side").says(
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
)
def _is_loose(
    context: Context, piece: int, attacker: int | None = None, attackers: Sequence[int] = ()
) -> bool:
    named_attackers = {*attackers, *([] if attacker is None else [attacker])}
    return predicates.hangs(context.board, piece) and named_attackers <= predicates.attackers(
        context.board, piece
    )


concept("undefended", holds=every(lambda board, piece: not predicates.defenders(board, piece))).says(
    "||{pieces} ~(be|stand|sit|be left) (both |all |still |also |now )?(left )?" + _NO_GUARD,
    "||{pieces} ~have no (defender|protection|defenders)( at all)?",
    "||nothing ~(defend|protect|guard) {pieces}",
    "||(nobody|no piece) ~(defend|protect|guard) {pieces}",
    "||{pieces} (nothing|nobody|no piece) ~(defend|protect|guard)",
)


@concept("attack", weight=0.8).says(
    "||{pieces} (both |all )?~(attack|hit|eye|target) {targets:prey}( again| there)?",
    "||{side} ~(attack|hit|eye|target) {targets:prey}",
    f"<{{pieces}} {HOW}~(attack|hit|eye|target|threaten) {{targets:prey}}",
    f"<{{targets:pieces}} ~be {HOW}(attacked|hit) by {{pieces}}",
    "||{targets:pieces} ~be (also |now |already )?(attacked|hit|under attack|under fire)( by {pieces}| from {pieces})?",
)
def _are_attacked(
    context: Context, targets: Sequence[int], pieces: Sequence[int] = (), side: bool | None = None
) -> bool:
    hitting = [predicates.attackers(context.board, target) for target in targets]
    enemies = side is None or context.owner(*targets) != side
    return enemies and all(attackers and set(pieces) <= attackers for attackers in hitting)


@concept("defence", weight=0.8).says(
    "||{pieces} ~(defend|protect|guard|hold|cover) {wards:pieces}",
    "||{side} ~(defend|protect|guard) {wards:pieces}",
    f"<{{pieces}} {HOW}~(defend|protect|guard) {{wards:pieces}}",
    f"<{{wards:pieces}} ~be {HOW}(defended|protected|guarded|supported) by {{pieces}}",
    "||{wards:pieces} ~be (well |also |still )?(defended|protected|guarded|held|supported) by {pieces}",
)
def _are_defended(
    context: Context, wards: Sequence[int], pieces: Sequence[int] = (), side: bool | None = None
) -> bool:
    guards = [predicates.defenders(context.board, ward) for ward in wards]
    same_side = side is None or context.owner(*wards) == side
    return same_side and all(defenders and set(pieces) <= defenders for defenders in guards)


def _pressed(board: chess.Board) -> Iterator[Values]:
    """Defended pieces that can be won, or would be if it were the other side's turn."""
    turns = {board.turn: board}
    if not board.is_check():
        turns[not board.turn] = board.copy(stack=False)
        turns[not board.turn].turn = not board.turn
    for square, side, attackers, defenders in _attacked(board):
        view = turns.get(not side)
        if defenders and view is not None and can_be_won(view, square):
            only = defenders[0] if len(defenders) == 1 else None
            times = len(attackers) if len(attackers) > len(defenders) else None
            contact = {"side": side, "piece": square, "attackers": attackers, "defender": only}
            yield {**contact, "times": times, "guards": len(defenders)}


def _pressed_weight(board: chess.Board, values: Values) -> float:
    value = worth(board, values["piece"])
    cheapest = min(worth(board, square) for square in values["attackers"])
    return 1.0 + 0.4 * value + (1.0 if cheapest < value else 0.0)


@concept("pressed piece", detect=_pressed, weight=_pressed_weight, favours="-side").says(
    ">{piece} ~be under attack from {attackers:pieces}",
    "{piece} ~be attacked {times} (and||but|while) (only |)defended {guards:times}",
    ">{piece} ~be attacked by {attackers:pieces} and defended only by {defender}",
    ">only {defender} defends {piece}, and {attackers:pieces} ~attack it",
    ">{piece} ~rely on {defender} for protection and ~be attacked by {attackers:pieces}",
)
def _is_pressed(context: Context, piece: int, times: int, guards: int) -> bool:
    return _is_counted(context, piece, times=times) and _is_counted(context, piece, guards=guards)


@concept("counted contacts", weight=0.3).says(
    "||{piece} ~be (only |just )?(defended|protected|guarded) (only |just )?{guards:times}",
    "||{piece} ~be (only |just )?attacked (only |just )?{times}",
)
def _is_counted(context: Context, piece: int, **counted: int) -> bool:
    """Whether the piece is attacked or defended exactly as often as claimed. Raises `Unknown` if it depends
    on whether pieces count that stand behind others on a line."""
    ((what, number),) = counted.items()
    if number == 0 or predicates.name_at(context.board, piece) == "king":
        raise Unknown("says next to nothing")
    see = predicates.defenders if what == "guards" else predicates.attackers
    board, waves = context.board.copy(stack=False), [0]
    while near := see(board, piece):
        waves.append(len(near))
        for square in near:
            board.remove_piece_at(square)
    direct = sum(waves[:2])
    if direct < number <= sum(waves):
        raise Unknown("with those behind")
    return number == direct


@concept("only defender").says(
    "||{piece:pieces} ~be (only |just |still )?(defended|protected|guarded|held) (only )?by {guard}( alone)?",
    "||{piece:pieces} ~(rely|depend) on {guard}( alone)?( for protection)?",
    "||only {guard} ~(defend|protect|guard|hold) {piece:pieces}",
    "||{guard} alone ~(defend|protect|guard|hold) {piece:pieces}",
    "||{guard} ~be the only defender of {piece:pieces}",
)
def _is_only_defender(context: Context, piece: Sequence[int], guard: int) -> bool:
    return all(predicates.defenders(context.board, ward) == {guard} for ward in piece)


def _overloaded(board: chess.Board) -> Iterator[Values]:
    """Pieces that alone defend two others, each of which could otherwise be taken."""
    for side in chess.COLORS:
        wards: dict[chess.Square, list[chess.Square]] = {}
        for square in men(board, side):
            defenders = board.attackers_mask(side, square)
            if defenders.bit_count() == 1 and board.attackers_mask(not side, square):
                wards.setdefault(chess.lsb(defenders), []).append(square)
        for guard, squares in wards.items():
            if len(squares) >= 2:
                yield {"side": side, "guard": guard, "wards": squares[:2]}


def _overload_weight(board: chess.Board, values: Values) -> float:
    return 1.4 + 0.5 * sum(worth(board, square) for square in values["wards"])


@concept("overloaded piece", detect=_overloaded, weight=_overload_weight, favours="-side").says(
    ">{guard} ~be (overloaded|overworked): it alone (defends|holds) {wards:pieces}",
    ">{guard} alone guards {wards:pieces}",
    ">{wards:pieces} depend on {guard} alone",
    ">{guard} ~have two jobs at once: it is the only defender of {wards:pieces}",
    ">{guard} ~be the only defender of {wards:pieces}",
    "||{guard} ~be (overloaded|overworked)( here)?",
    "||{guard} ~have (two|too many) (jobs|tasks|duties)( to do| at once)?",
)
def _is_overloaded(context: Context, guard: int) -> bool:
    """Whether the guard alone defends two pieces that are attacked. Raises `Unknown` if not: it may have to
    guard squares."""
    board = context.board
    attacked = [
        s
        for s, p in board.piece_map().items()
        if p.piece_type != chess.KING and predicates.attackers(board, s)
    ]
    if sum(predicates.defenders(board, square) == {guard} for square in attacked) < 2:
        raise Unknown("squares to guard")
    return True

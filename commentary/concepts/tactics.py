"""Forks, pins, skewers and hidden attacks.

All is geometry on one board: a piece attacks what it could capture if kings did not matter, and defends
likewise. Whether a contact can be used is for the engine's lines to say.
"""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, of_topic
from commentary.context import Context
from commentary.exchange import VALUES, worth

concept = of_topic("contacts")


def undefended(board: chess.Board, square: chess.Square) -> bool:
    """Whether no piece defends what stands there."""
    side = board.color_at(square)
    return side is not None and not board.attackers_mask(side, square)


def men(board: chess.Board, side: chess.Color) -> Iterator[chess.Square]:
    """A side's pieces and pawns but the king."""
    return chess.scan_forward(board.occupied_co[side] & ~board.kings)


def fork_targets(board: chess.Board, attacker: chess.Square) -> list[chess.Square]:
    """What counts as forked by the piece on `attacker`: the king, pieces worth more, undefended pieces."""
    side, value = board.color_at(attacker), worth(board, attacker)
    prey = board.attacks_mask(attacker) & board.occupied_co[not side] & ~board.pawns
    return [s for s in chess.scan_forward(prey) if worth(board, s) > value or undefended(board, s)]


def _forks(board: chess.Board) -> Iterator[Values]:
    for side in chess.COLORS:
        for attacker in men(board, not side):
            targets = fork_targets(board, attacker)
            if len(targets) >= 2:
                yield {"side": side, "attacker": attacker, "targets": targets[:3]}


@concept("fork", detect=_forks, weight=4.6, favours="-side").says(
    "{attacker} ~fork {targets:prey}",
    "{attacker} ~have {targets:prey} in a fork",
    "{attacker} ~attack {targets:prey} at once",
)
def is_fork(context: Context, attacker: int, targets: Sequence[int]) -> bool:
    """Whether the piece forks all of these."""
    return predicates.forks(context.board, attacker, targets)


def _behind(board: chess.Board, slider: chess.Square, first: chess.Square) -> chess.Square | None:
    """The next piece on the line from `slider` beyond `first`."""
    beyond = [
        square
        for square in chess.scan_forward(chess.ray(slider, first) & board.occupied)
        if chess.between(slider, square) & chess.BB_SQUARES[first]
    ]
    return min(beyond, key=lambda square: chess.square_distance(slider, square), default=None)


def _lines_through(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Square, chess.Square]]:
    """Line pieces, the first piece on each of their lines, and an enemy of theirs behind it."""
    sliders = board.bishops | board.rooks | board.queens
    for slider in chess.scan_forward(sliders):
        for first in chess.scan_forward(board.attacks_mask(slider) & board.occupied):
            second = _behind(board, slider, first)
            if second is not None and board.color_at(second) != board.color_at(slider):
                yield slider, first, second


def pins_on(board: chess.Board, *, opposed: bool = False) -> Iterator[Values]:
    """Behind the pinned piece stands its king, or something worth more than it and the pinner. What can take
    a pinner that is worth as much opposes it: it is left out unless `opposed` is set."""
    for slider, first, second in _lines_through(board):
        attacker, front, prize = (worth(board, square) for square in (slider, first, second))
        same_side = board.color_at(first) == board.color_at(second)
        takes = attacker >= front and board.attacks_mask(first) & chess.BB_SQUARES[slider]
        if (
            same_side
            and (opposed or not takes)
            and prize > front
            and (prize > attacker or prize == VALUES[chess.KING])
        ):
            yield {"side": board.color_at(first), "pinned": first, "pinner": slider, "behind": second}


def _pin_weight(board: chess.Board, values: Values) -> float:
    weight = 1.0 if worth(board, values["pinned"]) == 1 else 4.2
    return weight + (0.8 if board.piece_type_at(values["behind"]) == chess.KING else 0.0)


@concept("pin", detect=pins_on, weight=_pin_weight, favours="-side").says(
    "{pinned} ~be pinned (to|against) {behind}( by {pinner})?",
    "{pinned} ~be pinned (|to {behind} )by {pinner}",
    "{pinner} ~(pin|tie||nail) {pinned}( down)? to {behind}",
    "{pinner} ~have {pinned} in a pin against {behind}",
    "{pinned} ~be in a pin( (against|to) {behind})?",
    "||{pinner} ~(pin|tie|nail) {pinned}( down)? against {behind}",
    "||{pinner} ~pin {pinned}",
    "||{pinned} ~be (pinned|tied|nailed)( down)?",
)
def is_pin(context: Context, pinned: int, pinner: int | None = None, behind: int | None = None) -> bool:
    """Whether it is pinned, by the pinner and to the piece that are named."""
    board = context.board
    pinners = predicates.attackers(board, pinned) if pinner is None else {pinner}
    prizes = set(board.piece_map()) - {pinned} if behind is None else {behind}
    return any(predicates.pins(board, a, pinned, b) for a in pinners for b in prizes)


def _skewers(board: chess.Board) -> Iterator[Values]:
    for slider, first, second in _lines_through(board):
        attacker, front, prize = (worth(board, square) for square in (slider, first, second))
        same_side = board.color_at(first) == board.color_at(second)
        falls = prize > attacker or undefended(board, second)
        if same_side and front > attacker and front >= prize >= 3 and falls:
            yield {"side": board.color_at(first), "attacker": slider, "front": first, "behind": second}


@concept("skewer", detect=_skewers, weight=4.4, favours="-side").says(
    "{attacker} ~skewer {front} (and||to|against) {behind}",
    "{attacker} ~have {front} and {behind} on a skewer",
)
def _is_skewer(context: Context, attacker: int, front: int, behind: int) -> bool:
    board = context.board
    enemies = context.owner(front, behind) != board.color_at(attacker)
    value, first, prize = (predicates.worth_at(board, square) for square in (attacker, front, behind))
    won = prize >= 3 and (prize > value or not predicates.defenders(board, behind))
    line = predicates.in_line(board, attacker, front, behind) and predicates.attacks(board, attacker, front)
    return enemies and line and won and first > value and first >= prize


def _hidden(board: chess.Board) -> Iterator[Values]:
    """Own pieces that leave a line open to a king, queen or undefended piece when they move."""
    for slider, first, second in _lines_through(board):
        if board.color_at(first) != board.color_at(slider):
            continue
        same_file = chess.square_file(first) == chess.square_file(second)
        stays = same_file and board.piece_type_at(first) == chess.PAWN
        kind = board.piece_type_at(second)
        royal = kind in (chess.KING, chess.QUEEN) and kind != board.piece_type_at(slider)
        prey = kind != chess.QUEEN and worth(board, second) >= 3 and undefended(board, second)
        if not stays and (royal or prey) and first != second:
            yield {"side": board.color_at(slider), "slider": slider, "screen": first, "target": second}


@concept("hidden attack", detect=_hidden, weight=3.4, favours="side").says(
    "(if|once) {screen} moves, {slider} (hits|attacks||would hit|would attack) {target}",
    "{slider} ~be lined up with {target} behind {screen}",
    "only {screen} stands between {slider} and {target}",
    "a move of {screen} would uncover an attack by {slider} on {target}",
    "{screen} ~(mask||hide) an attack by {slider} on {target}",
)
def _is_hidden(context: Context, slider: int, screen: int, target: int) -> bool:
    board = context.board
    is_slider = predicates.name_at(board, slider) in ("bishop", "rook", "queen")
    enemies = board.color_at(slider) != board.color_at(target)
    return is_slider and enemies and predicates.in_line(board, slider, screen, target)

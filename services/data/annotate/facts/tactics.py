"""Contacts between pieces: loose and outnumbered pieces, pins, skewers, forks, overload, discoveries.

Everything here is geometry on one board: a piece attacks what it could capture if kings did not
matter, and defends likewise. Whether a contact can be used is for the engine's lines to say.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.exchange import VALUES, worth
from services.data.annotate.facts.fact import Fact


@dataclass(frozen=True, slots=True)
class Loose(Fact):
    """A piece or pawn, not the king, that is attacked and that no own piece defends."""

    square: chess.Square
    side: chess.Color
    attackers: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square, *self.attackers)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Pressed(Fact):
    """A defended piece that has more attackers than defenders, or an attacker worth less than itself."""

    square: chess.Square
    side: chess.Color
    attackers: tuple[chess.Square, ...]
    defenders: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square, *self.attackers)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Pin(Fact):
    """`pinner`, a line piece, attacks `pinned`, and behind it on the same line stands `behind`.

    All three in this order with nothing between; `behind` is the king or worth more than both the
    pinned piece and the pinner.
    """

    pinned: chess.Square
    pinner: chess.Square
    behind: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pinned, self.pinner, self.behind

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Skewer(Fact):
    """`attacker`, a line piece, attacks `front`, which is worth more, and `behind` stands next on that line.

    `behind` is a piece, no pawn, that is worth more than the attacker or has no defender.
    """

    attacker: chess.Square
    front: chess.Square
    behind: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.attacker, self.front, self.behind

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Fork(Fact):
    """One piece attacks two or more `targets`: the king, pieces worth more, undefended pieces."""

    attacker: chess.Square
    targets: tuple[chess.Square, ...]
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.attacker, *self.targets)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Overloaded(Fact):
    """`defender` alone defends each of two or more `wards`, all of them attacked."""

    defender: chess.Square
    wards: tuple[chess.Square, ...]
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.defender, *self.wards)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Discovery(Fact):
    """`screen` alone stands between `slider`, of its own side, and a king, queen or undefended piece.

    If it leaves the line, `slider` attacks `target`. A pawn that can only advance on that line is no screen.
    """

    slider: chess.Square
    screen: chess.Square
    target: chess.Square
    side: chess.Color

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.slider, self.screen, self.target

    @property
    def favours(self) -> chess.Color | None:
        return self.side


def contacts(board: chess.Board) -> Iterator[Fact]:
    """Every contact on the board, the attacks on both sides' pieces."""
    for side in (chess.WHITE, chess.BLACK):
        yield from _attacked(board, side)
        yield from _overloaded(board, side)
        yield from _forks(board, side)
        for slider in chess.scan_forward(_sliders(board, not side)):
            yield from _along(board, slider, side)


def pins(board: chess.Board) -> list[Pin]:
    """The pins alone."""
    return [
        fact
        for side in (chess.WHITE, chess.BLACK)
        for slider in chess.scan_forward(_sliders(board, not side))
        for fact in _along(board, slider, side)
        if isinstance(fact, Pin)
    ]


def undefended(board: chess.Board, square: chess.Square) -> bool:
    """Whether no piece defends what stands there."""
    side = board.color_at(square)
    return side is not None and not board.attackers_mask(side, square)


def _sliders(board: chess.Board, side: chess.Color) -> chess.Bitboard:
    return (board.bishops | board.rooks | board.queens) & board.occupied_co[side]


def _attacked(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    for square in chess.scan_forward(board.occupied_co[side] & ~board.kings):
        attackers = tuple(chess.scan_forward(board.attackers_mask(not side, square)))
        if not attackers:
            continue
        defenders = tuple(chess.scan_forward(board.attackers_mask(side, square)))
        if not defenders:
            yield Loose(square, side, attackers)
        elif len(attackers) > len(defenders) or _cheapest(board, attackers) < worth(board, square):
            yield Pressed(square, side, attackers, defenders)


def _cheapest(board: chess.Board, squares: tuple[chess.Square, ...]) -> int:
    return min(worth(board, square) for square in squares)


def _overloaded(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    wards: dict[chess.Square, list[chess.Square]] = {}
    for square in chess.scan_forward(board.occupied_co[side] & ~board.kings):
        defenders = board.attackers_mask(side, square)
        if defenders.bit_count() == 1 and board.attackers_mask(not side, square):
            wards.setdefault(chess.lsb(defenders), []).append(square)
    for defender, squares in wards.items():
        if len(squares) >= 2:
            yield Overloaded(defender, tuple(squares), side)


def fork_targets(board: chess.Board, attacker: chess.Square) -> tuple[chess.Square, ...]:
    """What a fork by the piece on `attacker` would count: king, pieces worth more, undefended pieces."""
    side = board.color_at(attacker)
    own = worth(board, attacker)
    prey = board.attacks_mask(attacker) & board.occupied_co[not side] & ~board.pawns
    return tuple(
        square
        for square in chess.scan_forward(prey)
        if worth(board, square) > own or undefended(board, square)
    )


def _forks(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    for attacker in chess.scan_forward(board.occupied_co[not side] & ~board.kings):
        targets = fork_targets(board, attacker)
        if len(targets) >= 2:
            yield Fork(attacker, targets, side)


def _along(board: chess.Board, slider: chess.Square, side: chess.Color) -> Iterator[Fact]:
    """What a line piece of the other side than `side` does through the first piece on each of its lines."""
    for first in chess.scan_forward(board.attacks_mask(slider) & board.occupied):
        second = _behind(board, slider, first)
        if second is None or board.color_at(second) != side:
            continue
        if board.color_at(first) == side:
            yield from _through(board, slider, first, second, side)
        elif _can_step_aside(board, first, second) and _worth_uncovering(board, slider, second):
            yield Discovery(slider, first, second, not side)


def _behind(board: chess.Board, slider: chess.Square, first: chess.Square) -> chess.Square | None:
    """The next piece on the line from `slider` beyond `first`."""
    beyond = [
        square
        for square in chess.scan_forward(chess.ray(slider, first) & board.occupied)
        if chess.between(slider, square) & chess.BB_SQUARES[first]
    ]
    return min(beyond, key=lambda square: chess.square_distance(slider, square), default=None)


def _through(
    board: chess.Board, slider: chess.Square, first: chess.Square, second: chess.Square, side: chess.Color
) -> Iterator[Fact]:
    attacker, front, behind = (worth(board, square) for square in (slider, first, second))
    if behind > front and (behind > attacker or behind == VALUES[chess.KING]):
        yield Pin(first, slider, second, side)
    elif front > attacker and behind >= 3 and (behind > attacker or undefended(board, second)):
        yield Skewer(slider, first, second, side)


def _can_step_aside(board: chess.Board, screen: chess.Square, target: chess.Square) -> bool:
    on_file = chess.square_file(screen) == chess.square_file(target)
    return not on_file or board.piece_type_at(screen) != chess.PAWN


def _worth_uncovering(board: chess.Board, slider: chess.Square, target: chess.Square) -> bool:
    kind = board.piece_type_at(target)
    if kind in (chess.KING, chess.QUEEN):
        return kind != board.piece_type_at(slider)
    return worth(board, target) >= 3 and undefended(board, target)

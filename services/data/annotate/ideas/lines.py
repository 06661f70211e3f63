"""What a move does along lines: discovered attacks, pins made and broken."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.exchange import worth
from services.data.annotate.facts.tactics import Pin, pins, undefended
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step


@dataclass(frozen=True, slots=True)
class Uncovers(Idea):
    """The move leaves a line on which `slider` now attacks `target`, which it did not before."""

    slider: chess.Square
    target: chess.Square
    weight: ClassVar[float] = 5.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.slider, self.target


@dataclass(frozen=True, slots=True)
class Pins(Idea):
    """The moved piece pins `pinned` to `behind`, as `facts.tactics.Pin` has it, and did not before."""

    pinned: chess.Square
    behind: chess.Square
    weight: ClassVar[float] = 4.5

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pinned, self.behind


@dataclass(frozen=True, slots=True)
class Unpins(Idea):
    """An own knight, bishop, rook or queen was pinned, stands where it stood and is pinned no longer."""

    piece: chess.Square
    weight: ClassVar[float] = 3.3

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.piece,)


def lines(step: Step) -> Iterator[Idea]:
    """Every idea of a move that has to do with lines between pieces."""
    now = pins(step.after)
    yield from _uncovered(step)
    yield from _pinned(step, now)
    yield from _unpinned(step, now)


def _uncovered(step: Step) -> Iterator[Idea]:
    board = step.after
    sliders = (board.bishops | board.rooks | board.queens) & step.own(board)
    prey = step.enemy(board) & ~board.pawns
    for slider in chess.scan_forward(sliders & ~chess.BB_SQUARES[step.target]):
        fresh = board.attacks_mask(slider) & ~step.before.attacks_mask(slider) & prey
        for target in chess.scan_forward(fresh):
            if target != step.target and (worth(board, target) >= 5 or undefended(board, target)):
                yield Uncovers(slider, target)


def _pinned(step: Step, now: list[Pin]) -> Iterator[Idea]:
    if step.arrived not in (chess.BISHOP, chess.ROOK, chess.QUEEN):
        return
    for fact in now:
        if fact.pinner == step.target and _newly_pinned(step, fact):
            yield Pins(fact.pinned, fact.behind)


def _newly_pinned(step: Step, pin: Pin) -> bool:
    before = step.before
    line = chess.ray(pin.pinned, pin.behind)
    on_line = bool(line & chess.BB_SQUARES[step.origin]) and step.victim is None
    return not (on_line and before.attacks_mask(step.origin) & chess.BB_SQUARES[pin.pinned])


def _unpinned(step: Step, now: list[Pin]) -> Iterator[Idea]:
    still = {fact.pinned for fact in now}
    freed = {
        fact.pinned
        for fact in pins(step.before)
        if fact.side == step.mover and fact.pinned not in {*still, step.origin}
    }
    for square in sorted(freed):
        if step.before.piece_type_at(square) != chess.PAWN:
            yield Unpins(square)

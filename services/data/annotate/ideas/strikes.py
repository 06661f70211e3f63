"""The blows a move strikes: mate, check, captures, promotion, the threat of mate."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.exchange import passed_turn
from services.data.annotate.facts.mates import mating_moves
from services.data.annotate.facts.tactics import undefended
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step


@dataclass(frozen=True, slots=True)
class Mates(Idea):
    """Checkmate. By a piece, or by the line it opened."""

    weight: ClassVar[float] = 100.0


@dataclass(frozen=True, slots=True)
class Stalemates(Idea):
    """No legal move is left and no check is given."""

    weight: ClassVar[float] = -100.0


@dataclass(frozen=True, slots=True)
class Checks(Idea):
    """The enemy king is attacked afterwards: by `checkers`, on the board after the move."""

    checkers: tuple[chess.Square, ...]
    discovered: bool
    replies: int
    weight: ClassVar[float] = 5.0


@dataclass(frozen=True, slots=True)
class Captures(Idea):
    """Takes what stood on `victim`."""

    victim: chess.Square
    kind: chess.PieceType
    en_passant: bool
    loose: bool
    weight: ClassVar[float] = 8.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.victim,)


@dataclass(frozen=True, slots=True)
class Promotes(Idea):
    """A pawn becomes a piece."""

    kind: chess.PieceType
    weight: ClassVar[float] = 9.0


@dataclass(frozen=True, slots=True)
class ThreatensMate(Idea):
    """Were it the mover's turn again, `moves` would mate; the move gives no check."""

    moves: tuple[chess.Move, ...]
    weight: ClassVar[float] = 8.0


def strikes(step: Step) -> Iterator[Idea]:
    """Every blow that a move strikes."""
    if step.after.is_checkmate():
        yield Mates()
    elif step.after.is_stalemate():
        yield Stalemates()
    yield from _captures(step)
    yield from _checks(step)
    yield from _mate_threats(step)


def _captures(step: Step) -> Iterator[Idea]:
    if step.move.promotion:
        yield Promotes(step.move.promotion)
    if step.victim is None:
        return
    kind = step.before.piece_type_at(step.victim)
    if kind:
        passing = step.before.is_en_passant(step.move)
        yield Captures(step.victim, kind, passing, undefended(step.before, step.victim) and not passing)


def _checks(step: Step) -> Iterator[Idea]:
    if not step.after.is_check():
        return
    checkers = tuple(chess.scan_forward(step.after.checkers_mask()))
    moved = {step.target}
    if step.castles:
        moved.add(chess.square(5 if step.target > step.origin else 3, chess.square_rank(step.origin)))
    yield Checks(checkers, bool(set(checkers) - moved), step.after.legal_moves.count())


def _mate_threats(step: Step) -> Iterator[Idea]:
    passed = passed_turn(step.after)
    if passed is None or step.after.is_checkmate() or step.after.is_stalemate():
        return
    if moves := mating_moves(passed):
        yield ThreatensMate(moves)

"""What speaks against a move on the board: pieces left loose, the moved piece exposed, spoilt pawns."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.exchange import worth
from services.data.annotate.facts.pawns import neighbours
from services.data.annotate.facts.tactics import undefended
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step


@dataclass(frozen=True, slots=True)
class LeavesLoose(Idea):
    """Own pieces that were defended stand attacked and undefended after the move; pawns are not counted."""

    pieces: tuple[chess.Square, ...]
    weight: ClassVar[float] = -3.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pieces


@dataclass(frozen=True, slots=True)
class Exposed(Idea):
    """The moved piece can be captured, by a piece worth less or because nothing defends it."""

    attacker: chess.Square
    loose: bool
    weight: ClassVar[float] = -3.5

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.attacker,)


@dataclass(frozen=True, slots=True)
class ForfeitsCastling(Idea):
    """The mover had a right to castle and has none afterwards, without having castled."""

    weight: ClassVar[float] = -2.0


@dataclass(frozen=True, slots=True)
class Spoils(Idea):
    """The mover's own pawn move leaves the moved pawn isolated or doubled, which it was not before."""

    isolated: bool
    weight: ClassVar[float] = -1.5


def drawbacks(step: Step) -> Iterator[Idea]:
    """Everything on the board that speaks against a move."""
    loose = tuple(square for square in _pieces(step) if _became_loose(step, square))
    if loose:
        yield LeavesLoose(tuple(sorted(loose, key=lambda square: -worth(step.after, square))))
    yield from _exposed(step)
    had, has = (board.has_castling_rights(step.mover) for board in (step.before, step.after))
    if had and not has and not step.castles:
        yield ForfeitsCastling()
    if step.arrived == chess.PAWN:
        yield from _spoiled(step)


def _pieces(step: Step) -> Iterator[chess.Square]:
    mask = step.own(step.after) & ~step.after.pawns & ~step.after.kings & ~chess.BB_SQUARES[step.target]
    return chess.scan_forward(mask)


def _became_loose(step: Step, square: chess.Square) -> bool:
    attacked = step.after.attackers_mask(not step.mover, square)
    return bool(attacked) and undefended(step.after, square) and not undefended(step.before, square)


def _exposed(step: Step) -> Iterator[Idea]:
    board, square = step.after, step.target
    takers = {move.from_square for move in board.generate_legal_moves(to_mask=chess.BB_SQUARES[square])}
    if step.kind == chess.KING or not takers:
        return
    cheapest = min(takers, key=lambda taker: (worth(board, taker), taker))
    loose = undefended(board, square)
    if loose or worth(board, cheapest) < worth(board, square):
        yield Exposed(cheapest, loose)


def _spoiled(step: Step) -> Iterator[Idea]:
    before, after = (board.pieces_mask(chess.PAWN, step.mover) for board in (step.before, step.after))
    if before & neighbours(step.origin) and not after & neighbours(step.target):
        yield Spoils(isolated=True)
    elif step.victim is not None:
        file = chess.BB_FILES[chess.square_file(step.target)]
        was_doubled = (before & chess.BB_FILES[chess.square_file(step.origin)]).bit_count() > 1
        if (after & file).bit_count() > 1 and not was_doubled:
            yield Spoils(isolated=False)

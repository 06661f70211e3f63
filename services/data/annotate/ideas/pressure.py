"""The pressure a move puts on enemy pieces: attacks, forks, levers, weak pawns, offers to trade."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.exchange import worth
from services.data.annotate.facts.pawns import Backward, Isolated, weaknesses
from services.data.annotate.facts.tactics import fork_targets, pins, undefended
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step


@dataclass(frozen=True, slots=True)
class Forks(Idea):
    """The moved piece attacks two or more of: the king, pieces worth more than it, undefended pieces."""

    targets: tuple[chess.Square, ...]
    weight: ClassVar[float] = 7.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Attacks(Idea):
    """The moved piece attacks pieces that are worth more or undefended and that it did not attack before."""

    targets: tuple[chess.Square, ...]
    weight: ClassVar[float] = 4.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class Levers(Idea):
    """A pawn that now attacks enemy pawns which it did not attack before."""

    targets: tuple[chess.Square, ...]
    weight: ClassVar[float] = 3.5

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.targets


@dataclass(frozen=True, slots=True)
class PilesUp(Idea):
    """The moved piece attacks a pinned piece, no pawn or king, that it did not attack before."""

    target: chess.Square
    weight: ClassVar[float] = 4.4

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.target,)


@dataclass(frozen=True, slots=True)
class Outnumbers(Idea):
    """The moved piece has joined the attack on `target`, which now has more attackers than defenders.

    It has at least one defender, and had no more attackers than defenders before.
    """

    target: chess.Square
    attackers: int
    defenders: int
    weight: ClassVar[float] = 3.6

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.target,)


@dataclass(frozen=True, slots=True)
class TargetsPawn(Idea):
    """A piece attacks an undefended, isolated or backward pawn that it did not attack before.

    `flaw` says which, in this order of preference.
    """

    target: chess.Square
    flaw: str
    weight: ClassVar[float] = 2.4

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.target,)


@dataclass(frozen=True, slots=True)
class OffersTrade(Idea):
    """The moved piece and an enemy piece of its kind attack each other and both are defended."""

    target: chess.Square
    kind: chess.PieceType
    weight: ClassVar[float] = 3.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.target,)


def pressure(step: Step) -> Iterator[Idea]:
    """Every pressure that the moved piece puts on enemy pieces."""
    if step.castles:
        return
    yield from _attacks(step)
    yield from _added(step)


def _attacks(step: Step) -> Iterator[Idea]:
    board, square = step.after, step.target
    prey = board.attacks_mask(square) & step.enemy(board)
    if step.arrived == chess.PAWN:
        pawns = tuple(chess.scan_forward(prey & board.pawns))
        if pawns:
            yield Levers(pawns)
    forked = fork_targets(board, square)
    if len(forked) >= 2 and step.arrived != chess.KING:
        yield Forks(forked)
        return
    fresh = [target for target in forked if not _attacked_before(step, target) and worth(board, target) < 100]
    if fresh:
        yield Attacks(tuple(sorted(fresh, key=lambda target: -worth(board, target))))
    yield from _trades(step, prey)


def _attacked_before(step: Step, target: chess.Square) -> bool:
    return bool(step.before.attacks_mask(step.origin) & chess.BB_SQUARES[target])


def _trades(step: Step, prey: chess.Bitboard) -> Iterator[Idea]:
    board = step.after
    if step.arrived in (chess.PAWN, chess.KING) or undefended(board, step.target):
        return
    for target in chess.scan_forward(prey & board.pieces_mask(step.arrived, not step.mover)):
        if not undefended(board, target):
            yield OffersTrade(target, step.arrived)


def _added(step: Step) -> Iterator[Idea]:
    """Pieces that the move attacks, not having attacked them before, by what else is the matter with them."""
    fresh = step.after.attacks_mask(step.target) & step.enemy(step.after) & ~step.after.kings
    if not fresh:
        return
    pinned = {fact.pinned for fact in pins(step.after) if fact.pinner != step.target}
    for target in chess.scan_forward(fresh):
        if _attacked_before(step, target) and step.victim is None:
            continue
        if target in pinned and not step.after.pawns & chess.BB_SQUARES[target]:
            yield PilesUp(target)
        else:
            yield from _outnumbered(step, target)
            yield from _flawed(step, target)


def _outnumbered(step: Step, target: chess.Square) -> Iterator[Idea]:
    now, then = (_pressure_on(board, target, step.mover) for board in (step.after, step.before))
    if now[0] > now[1] >= 1 and then[0] <= then[1]:
        yield Outnumbers(target, *now)


def _pressure_on(board: chess.Board, target: chess.Square, attacker: chess.Color) -> tuple[int, int]:
    masks = board.attackers_mask(attacker, target), board.attackers_mask(not attacker, target)
    return masks[0].bit_count(), masks[1].bit_count()


def _flawed(step: Step, target: chess.Square) -> Iterator[Idea]:
    board = step.after
    if step.arrived == chess.PAWN or board.piece_type_at(target) != chess.PAWN:
        return
    if undefended(board, target):
        yield TargetsPawn(target, "undefended")
        return
    for fact in weaknesses(board, not step.mover):
        if isinstance(fact, Isolated | Backward) and fact.square == target:
            yield TargetsPawn(target, "isolated" if isinstance(fact, Isolated) else "backward")
            return

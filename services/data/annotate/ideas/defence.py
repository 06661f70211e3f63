"""What a move saves or leaves behind: defence, escape, blocking, parried mates and threats."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.exchange import passed_turn, worth
from services.data.annotate.facts.mates import mating_moves
from services.data.annotate.facts.tactics import undefended
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step


@dataclass(frozen=True, slots=True)
class Parries(Idea):
    """The other side would have mated at once if the mover had passed; now no move of it mates."""

    move: chess.Move
    weight: ClassVar[float] = 9.0


@dataclass(frozen=True, slots=True)
class StopsThreat(Idea):
    """The other side's threat cannot be played now, or (`check`) is check no longer."""

    threat: chess.Move
    check: bool
    weight: ClassVar[float] = 4.6


@dataclass(frozen=True, slots=True)
class Blocks(Idea):
    """The mover was in check by one line piece; the moved piece stands between it and the king."""

    checker: chess.Square
    weight: ClassVar[float] = 2.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.checker,)


@dataclass(frozen=True, slots=True)
class Evades(Idea):
    """The king leaves a check without capturing."""

    weight: ClassVar[float] = 1.0


@dataclass(frozen=True, slots=True)
class Escapes(Idea):
    """The moved piece was attacked, undefended or by something worth less; now nothing attacks it."""

    attacker: chess.Square
    weight: ClassVar[float] = 4.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.attacker,)


@dataclass(frozen=True, slots=True)
class Defends(Idea):
    """Own pieces that stand attacked and had no defender; the moved piece now defends them."""

    wards: tuple[chess.Square, ...]
    weight: ClassVar[float] = 3.5

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.wards


@dataclass(frozen=True, slots=True)
class Reinforces(Idea):
    """The moved piece joins the defence of `ward`, which had more attackers than defenders."""

    ward: chess.Square
    weight: ClassVar[float] = 3.2

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.ward,)


@dataclass(frozen=True, slots=True)
class GivesAir(Idea):
    """The king stood on its first rank, off the middle files, with no square to go to; now it has one."""

    weight: ClassVar[float] = 2.0


def defence(step: Step) -> Iterator[Idea]:
    """Every idea of a move that has to do with the mover's own pieces."""
    yield from _mate_parried(step)
    yield from _check_met(step)
    yield from _escape(step)
    yield from _wards(step)
    yield from _air(step)


def stopped(step: Step, threat: chess.Move) -> Iterator[Idea]:
    """What a move does to the move that the other side threatens."""
    passed = passed_turn(step.before)
    if passed is None or step.after.is_check() or step.after.is_game_over():
        return
    if not step.after.is_legal(threat):
        # A piece that was taken threatens nothing: the capture says so itself.
        if threat.from_square != step.target:
            yield StopsThreat(threat, check=False)
    elif passed.gives_check(threat) and not step.after.gives_check(threat):
        yield StopsThreat(threat, check=True)


def _mate_parried(step: Step) -> Iterator[Idea]:
    passed = passed_turn(step.before)
    if passed is None or step.after.is_game_over():
        return
    threats = mating_moves(passed)
    if threats and not mating_moves(step.after):
        yield Parries(threats[0])


def _check_met(step: Step) -> Iterator[Idea]:
    if not step.before.is_check() or step.victim is not None:
        return
    if step.kind == chess.KING:
        yield Evades()
    else:
        yield Blocks(chess.lsb(step.before.checkers_mask()))


def _escape(step: Step) -> Iterator[Idea]:
    if step.kind == chess.KING or step.castles:
        return
    attackers = step.before.attackers_mask(not step.mover, step.origin)
    if not attackers or step.after.attackers_mask(not step.mover, step.target):
        return
    cheapest = min(chess.scan_forward(attackers), key=lambda square: worth(step.before, square))
    if undefended(step.before, step.origin) or worth(step.before, cheapest) < worth(step.before, step.origin):
        yield Escapes(cheapest)


def _wards(step: Step) -> Iterator[Idea]:
    if step.castles:
        return
    guarded = step.after.attacks_mask(step.target) & step.own(step.after) & ~step.after.kings
    wards = tuple(
        square
        for square in chess.scan_forward(guarded)
        if undefended(step.before, square)
        and step.before.attackers_mask(not step.mover, square)
        and step.after.attackers_mask(not step.mover, square)
    )
    if wards:
        yield Defends(tuple(sorted(wards, key=lambda square: -worth(step.after, square))))
    for square in chess.scan_forward(guarded & ~step.before.attacks_mask(step.origin)):
        if _was_outnumbered(step, square):
            yield Reinforces(square)


def _was_outnumbered(step: Step, square: chess.Square) -> bool:
    attackers = step.before.attackers_mask(not step.mover, square).bit_count()
    defenders = step.before.attackers_mask(step.mover, square).bit_count()
    still = step.after.attackers_mask(not step.mover, square)
    own = step.before.occupied_co[step.mover] & chess.BB_SQUARES[square]
    return bool(own and still) and attackers > defenders >= 1


def _air(step: Step) -> Iterator[Idea]:
    king = chess.lsb(step.before.pieces_mask(chess.KING, step.mover))
    home = chess.BB_RANK_1 if step.mover else chess.BB_RANK_8
    aside = home & ~(chess.BB_FILE_D | chess.BB_FILE_E)
    if step.kind == chess.KING or step.before.is_check() or not aside & chess.BB_SQUARES[king]:
        return
    if not _exits(step.before, king, step.mover) and _exits(step.after, king, step.mover):
        yield GivesAir()


def _exits(board: chess.Board, king: chess.Square, side: chess.Color) -> bool:
    """Whether the king can step anywhere, by the attacks on the squares beside it."""
    free = chess.BB_KING_ATTACKS[king] & ~board.occupied_co[side]
    return any(not board.attackers_mask(not side, square) for square in chess.scan_forward(free))

"""What a move does to the shape of the position: development, files, pawns, squares for pieces."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import chess

from services.data.annotate.facts.files import Doubled, Seventh, files
from services.data.annotate.facts.pawns import ahead, is_passed
from services.data.annotate.facts.pieces import at_home, pawns_can_attack
from services.data.annotate.ideas.idea import Idea
from services.data.annotate.step import Step

_BIG_CENTRE = chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5 | chess.BB_RANK_6
_CENTRE = (chess.BB_FILE_C | chess.BB_FILE_D | chess.BB_FILE_E | chess.BB_FILE_F) & _BIG_CENTRE


@dataclass(frozen=True, slots=True)
class Castles(Idea):
    """Castling."""

    kingside: bool
    weight: ClassVar[float] = 4.0


@dataclass(frozen=True, slots=True)
class Develops(Idea):
    """A knight or bishop leaves the square it starts from; `left` of its side's still stand there."""

    kind: chess.PieceType
    left: int
    weight: ClassVar[float] = 2.5


@dataclass(frozen=True, slots=True)
class OpensFile(Idea):
    """A pawn leaves a file that had pawns and has none afterwards."""

    file: int
    weight: ClassVar[float] = 2.0


@dataclass(frozen=True, slots=True)
class TakesFile(Idea):
    """A rook or queen comes to a file without pawns (`open`), or without pawns of its side."""

    file: int
    open: bool
    weight: ClassVar[float] = 2.6


@dataclass(frozen=True, slots=True)
class TakesSeventh(Idea):
    """A rook reaches the seventh rank of its side, as `facts.files.Seventh` has it."""

    weight: ClassVar[float] = 3.0


@dataclass(frozen=True, slots=True)
class DoublesRooks(Idea):
    """A rook or queen comes to a file behind or before an own one, as `facts.files.Doubled` has it."""

    file: int
    weight: ClassVar[float] = 2.8


@dataclass(frozen=True, slots=True)
class TakesOutpost(Idea):
    """A knight or bishop moves to an outpost, as `facts.pieces.Outpost` has it."""

    weight: ClassVar[float] = 3.2


@dataclass(frozen=True, slots=True)
class Advances(Idea):
    """A passed pawn moves up; `steps` moves are left to the last rank. Not a promotion."""

    steps: int
    weight: ClassVar[float] = 3.8


@dataclass(frozen=True, slots=True)
class MakesPasser(Idea):
    """The pawn that moved is passed and was not before."""

    weight: ClassVar[float] = 4.2


@dataclass(frozen=True, slots=True)
class Blockades(Idea):
    """The moved piece stands on the square before an enemy passed pawn."""

    pawn: chess.Square
    weight: ClassVar[float] = 3.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.pawn,)


@dataclass(frozen=True, slots=True)
class BacksPasser(Idea):
    """A rook moves behind an own passed pawn, nothing between them."""

    pawn: chess.Square
    weight: ClassVar[float] = 3.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.pawn,)


@dataclass(frozen=True, slots=True)
class Denies(Idea):
    """The pawn that moved now guards an empty square near it that `piece`, no rook, attacks."""

    square: chess.Square
    piece: chess.Square
    weight: ClassVar[float] = 1.7

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.piece,)


@dataclass(frozen=True, slots=True)
class Frees(Idea):
    """A bishop, rook or queen of the mover, not the moved piece, attacks at least three squares more."""

    piece: chess.Square
    weight: ClassVar[float] = 2.0

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.piece,)


@dataclass(frozen=True, slots=True)
class Centralises(Idea):
    """A knight, or with few pieces left the king, gets on c3 to f6 from outside."""

    kind: chess.PieceType
    weight: ClassVar[float] = 1.8


@dataclass(frozen=True, slots=True)
class Covers(Idea):
    """At most two squares of the middle or beyond that the moved piece did not attack before."""

    squares_: tuple[chess.Square, ...]
    weight: ClassVar[float] = 0.8


def shape(step: Step) -> Iterator[Idea]:
    """Every idea of a move that has to do with the shape of the position."""
    if step.castles:
        yield Castles(kingside=step.target > step.origin)
        return
    yield from _development(step)
    if step.kind == chess.PAWN:
        yield from _pawn(step)
    if step.arrived in (chess.ROOK, chess.QUEEN) and not step.move.promotion:
        yield from _heavy(step)
    yield from _stations(step)
    yield from _freed(step)
    yield from _covered(step)


def _development(step: Step) -> Iterator[Idea]:
    if step.origin in at_home(step.before, step.mover) and step.before.ply() <= 40:
        yield Develops(step.kind, len(at_home(step.after, step.mover)))


def _pawn(step: Step) -> Iterator[Idea]:
    left = chess.square_file(step.origin)
    mask = chess.BB_FILES[left]
    if step.before.pawns & mask and not step.after.pawns & mask:
        yield OpensFile(left)
    if step.move.promotion:
        return
    now, then = (
        is_passed(board, square, step.mover)
        for board, square in ((step.after, step.target), (step.before, step.origin))
    )
    rank = chess.square_rank(step.target)
    yield from _denied(step)
    if now:
        yield Advances(7 - rank if step.mover else rank) if then else MakesPasser()


def _denied(step: Step) -> Iterator[Idea]:
    board = step.after
    half = (
        chess.BB_RANK_3 | chess.BB_RANK_4 | chess.BB_RANK_5
        if step.mover
        else chess.BB_RANK_6 | chess.BB_RANK_5 | chess.BB_RANK_4
    )
    guarded = (
        board.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin) & half & ~board.occupied
    )
    pieces = (board.knights | board.bishops | board.queens) & step.enemy(board)
    for square in chess.scan_forward(guarded):
        for piece in chess.scan_forward(board.attackers_mask(not step.mover, square) & pieces):
            yield Denies(square, piece)
            return


def _heavy(step: Step) -> Iterator[Idea]:
    file = chess.square_file(step.target)
    mask = chess.BB_FILES[file]
    if chess.square_file(step.origin) != file and not step.after.pieces_mask(1, step.mover) & mask:
        yield TakesFile(file, open=not step.after.pawns & mask)
    yield from _behind_passer(step)
    for fact in files(step.after):
        if isinstance(fact, Seventh) and fact.rook == step.target and _ranks_differ(step):
            yield TakesSeventh()
        elif isinstance(fact, Doubled) and _doubles(step, fact):
            yield DoublesRooks(file)


def _doubles(step: Step, fact: Doubled) -> bool:
    from_elsewhere = chess.square_file(step.origin) != fact.file
    return step.target in fact.pieces and fact.side == step.mover and from_elsewhere


def _behind_passer(step: Step) -> Iterator[Idea]:
    board, rook = step.after, step.target
    same_file = chess.square_file(step.origin) == chess.square_file(rook)
    if step.arrived != chess.ROOK or same_file:
        return
    reach = board.attacks_mask(rook) & board.pieces_mask(chess.PAWN, step.mover) & ahead(rook, step.mover)
    for pawn in chess.scan_forward(reach):
        if is_passed(board, pawn, step.mover):
            yield BacksPasser(pawn)


def _ranks_differ(step: Step) -> bool:
    return chess.square_rank(step.origin) != chess.square_rank(step.target)


def _stations(step: Step) -> Iterator[Idea]:
    board, square = step.after, step.target
    if step.kind in (chess.KNIGHT, chess.BISHOP):
        relative = chess.square_rank(square) if step.mover else 7 - chess.square_rank(square)
        guarded = board.attackers_mask(step.mover, square) & board.pawns
        if 3 <= relative <= 5 and guarded and not pawns_can_attack(board, square, not step.mover):
            yield TakesOutpost()
    if step.kind in (chess.KNIGHT, chess.KING) and _enters_centre(step):
        yield Centralises(step.kind)
    if step.kind != chess.PAWN:
        yield from _blockade(step)


def _enters_centre(step: Step) -> bool:
    enters = bool(_CENTRE & chess.BB_SQUARES[step.target] & ~chess.BB_SQUARES[step.origin])
    enters = enters and not _CENTRE & chess.BB_SQUARES[step.origin]
    pieces = step.after.occupied & ~step.after.pawns & ~step.after.kings
    return enters and (step.kind == chess.KNIGHT or (pieces.bit_count() <= 4 and not step.after.queens))


def _blockade(step: Step) -> Iterator[Idea]:
    stop = step.target + (8 if step.mover else -8)
    if not 0 <= stop < 64:
        return
    pawns = step.after.pieces_mask(chess.PAWN, not step.mover)
    if pawns & chess.BB_SQUARES[stop] and is_passed(step.after, stop, not step.mover):
        yield Blockades(stop)


def _freed(step: Step) -> Iterator[Idea]:
    board = step.after
    sliders = (board.bishops | board.rooks | board.queens) & board.occupied_co[step.mover]
    best, most = None, 2
    for square in chess.scan_forward(sliders & ~chess.BB_SQUARES[step.target]):
        more = board.attacks_mask(square).bit_count() - step.before.attacks_mask(square).bit_count()
        if more > most:
            best, most = square, more
    if best is not None:
        yield Frees(best)


def _covered(step: Step) -> Iterator[Idea]:
    board = step.after
    fresh = board.attacks_mask(step.target) & ~step.before.attacks_mask(step.origin)
    theirs = chess.BB_RANK_5 | chess.BB_RANK_6 if step.mover else chess.BB_RANK_4 | chess.BB_RANK_3
    middle = chess.BB_D4 | chess.BB_E4 | chess.BB_D5 | chess.BB_E5
    squares = fresh & (theirs & _CENTRE | middle) & ~board.occupied
    if squares and step.kind != chess.KING:
        ranked = sorted(chess.scan_forward(squares), key=lambda s: not middle & chess.BB_SQUARES[s])
        yield Covers(tuple(sorted(ranked[:2])))

"""The pawn skeleton: passed, isolated, doubled and backward pawns, majorities, the centre."""

from collections.abc import Iterator
from dataclasses import dataclass

import chess

from services.data.annotate.facts.fact import Fact

QUEENSIDE = chess.BB_FILE_A | chess.BB_FILE_B | chess.BB_FILE_C
KINGSIDE = chess.BB_FILE_F | chess.BB_FILE_G | chess.BB_FILE_H
_CENTRE = (chess.D4, chess.E4, chess.D5, chess.E5)


@dataclass(frozen=True, slots=True)
class Passed(Fact):
    """No enemy pawn stands before it on its own or a neighbouring file, and no own pawn on its own.

    `steps` moves from its last rank; `protected` when an own pawn defends it; `blocker` is the enemy
    piece on the square before it, if any.
    """

    square: chess.Square
    side: chess.Color
    steps: int
    protected: bool
    blocker: chess.Square | None

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square,)

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Connected(Fact):
    """Two passed pawns of a side on neighbouring files, at most a rank apart."""

    side: chess.Color
    pawns: tuple[chess.Square, chess.Square]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pawns

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Isolated(Fact):
    """No own pawn on a neighbouring file. `open` when no enemy pawn stands before it on its file."""

    square: chess.Square
    side: chess.Color
    open: bool

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return (self.square,)

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Doubled(Fact):
    """Two or more pawns of a side on one file."""

    side: chess.Color
    pawns: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pawns

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Backward(Fact):
    """Not isolated, every neighbour pawn of its side is further advanced, and an enemy pawn guards `stop`.

    `stop` is the empty square before it.
    """

    square: chess.Square
    side: chess.Color
    stop: chess.Square

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.square, self.stop

    @property
    def favours(self) -> chess.Color | None:
        return not self.side


@dataclass(frozen=True, slots=True)
class Majority(Fact):
    """At least two pawns, more than the other side, on a wing: files a to c (`kingside` false) or f to h."""

    side: chess.Color
    kingside: bool
    own: int
    theirs: int

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Centre(Fact):
    """A side's pawns on d4, e4, d5 and e5 when it has two there and the other side at most one."""

    side: chess.Color
    pawns: tuple[chess.Square, ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return self.pawns

    @property
    def favours(self) -> chess.Color | None:
        return self.side


@dataclass(frozen=True, slots=True)
class Rams(Fact):
    """Pawns of both sides head to head on the d- and e-files, White's squares first."""

    pairs: tuple[tuple[chess.Square, chess.Square], ...]

    @property
    def squares(self) -> tuple[chess.Square, ...]:
        return tuple(square for pair in self.pairs for square in pair)


def structure(board: chess.Board) -> Iterator[Fact]:
    """Every fact about the pawns of both sides."""
    for side in (chess.WHITE, chess.BLACK):
        passed = [pawn for pawn in board.pieces(chess.PAWN, side) if is_passed(board, pawn, side)]
        yield from (_passed(board, pawn, side) for pawn in passed)
        yield from _connected(passed, side)
        yield from weaknesses(board, side)
        yield from _centre(board, side)
    yield from _majorities(board)
    yield from _rams(board)


def ahead(square: chess.Square, side: chess.Color) -> chess.Bitboard:
    """The squares of a file beyond `square`, as `side` looks at it."""
    file = chess.BB_FILES[chess.square_file(square)]
    below = chess.BB_SQUARES[square] - 1
    return file & ~below & ~chess.BB_SQUARES[square] if side else file & below


def neighbours(square: chess.Square) -> chess.Bitboard:
    """The files beside that of `square`."""
    file = chess.BB_FILES[chess.square_file(square)]
    return ((file << 1) & ~chess.BB_FILE_A | (file >> 1) & ~chess.BB_FILE_H) & chess.BB_ALL


def is_passed(board: chess.Board, square: chess.Square, side: chess.Color) -> bool:
    """Whether a pawn of `side` on `square` is or would be passed."""
    front = ahead(square, side)
    sides = ((front << 1) & ~chess.BB_FILE_A) | ((front >> 1) & ~chess.BB_FILE_H)
    own = board.pieces_mask(chess.PAWN, side) & front
    return not own and not board.pieces_mask(chess.PAWN, not side) & (front | sides)


def _passed(board: chess.Board, square: chess.Square, side: chess.Color) -> Passed:
    rank = chess.square_rank(square)
    stop = square + (8 if side else -8)
    blocker = stop if board.color_at(stop) == (not side) else None
    return Passed(
        square=square,
        side=side,
        steps=7 - rank if side else rank,
        protected=bool(board.attackers_mask(side, square) & board.pawns),
        blocker=blocker,
    )


def _connected(passed: list[chess.Square], side: chess.Color) -> Iterator[Fact]:
    told: set[chess.Square] = set()  # of three in a row two are enough
    for one in passed:
        for other in passed:
            beside = chess.square_file(other) == chess.square_file(one) + 1
            if beside and abs(chess.square_rank(other) - chess.square_rank(one)) <= 1 and one not in told:
                told.add(other)
                yield Connected(side, (one, other))


def weaknesses(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    """Isolated, backward and doubled pawns of a side."""
    own, enemy = board.pieces_mask(chess.PAWN, side), board.pieces_mask(chess.PAWN, not side)
    for square in chess.scan_forward(own):
        beside = own & neighbours(square)
        if not beside:
            yield Isolated(square, side, open=not enemy & ahead(square, side))
        elif _is_backward(board, square, side, beside):
            yield Backward(square, side, square + (8 if side else -8))
    for file in chess.BB_FILES:
        if (own & file).bit_count() > 1:
            yield Doubled(side, tuple(chess.scan_forward(own & file)))


def _is_backward(board: chess.Board, square: chess.Square, side: chess.Color, beside: chess.Bitboard) -> bool:
    rank = chess.square_rank(square)
    advanced = all((chess.square_rank(pawn) > rank) == side for pawn in chess.scan_forward(beside))
    level = beside & chess.BB_RANKS[rank]
    stop = square + (8 if side else -8)
    guards = board.attackers_mask(not side, stop) & board.pawns
    return advanced and not level and board.piece_type_at(stop) is None and bool(guards)


def _centre(board: chess.Board, side: chess.Color) -> Iterator[Fact]:
    pawns = {colour: board.pieces(chess.PAWN, colour) for colour in (chess.WHITE, chess.BLACK)}
    own = tuple(square for square in _CENTRE if square in pawns[side])
    if len(own) >= 2 and sum(square in pawns[not side] for square in _CENTRE) <= 1:
        yield Centre(side, own)


def _majorities(board: chess.Board) -> Iterator[Fact]:
    for kingside, wing in ((False, QUEENSIDE), (True, KINGSIDE)):
        white, black = (
            (board.pieces_mask(chess.PAWN, side) & wing).bit_count() for side in (chess.WHITE, chess.BLACK)
        )
        if white != black and max(white, black) > 1:
            yield Majority(white > black, kingside, max(white, black), min(white, black))


def _rams(board: chess.Board) -> Iterator[Fact]:
    pairs = tuple(
        (square, square + 8)
        for square in board.pieces(chess.PAWN, chess.WHITE)
        if chess.square_file(square) in (3, 4) and square + 8 in board.pieces(chess.PAWN, chess.BLACK)
    )
    if pairs:
        yield Rams(pairs)

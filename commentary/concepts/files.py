"""Open and half-open files, who stands on them, and rooks on the seventh rank."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import chess

from commentary import predicates
from commentary.concept import Values, every, of_topic
from commentary.context import Context

concept = of_topic("files")
_HEAVY = ("rook", "queen")
_MANY = 3
"""Open files beyond which a list of them says nothing."""


def heavy(board: chess.Board, side: chess.Color, file: int) -> list[chess.Square]:
    """The rooks and queens of a side on a file."""
    mask = (board.rooks | board.queens) & board.occupied_co[side] & chess.BB_FILES[file]
    return list(chess.scan_forward(mask))


def open_files(board: chess.Board) -> list[int]:
    """Files without pawns."""
    return [file for file, mask in enumerate(chess.BB_FILES) if not board.pawns & mask]


def heavy_on(board: chess.Board, file: int, *names: str) -> list[chess.Square]:
    """The same of both sides, square by square."""
    found = [s for side in chess.COLORS for s in predicates.all_of(board, side, *(names or _HEAVY))]
    return [square for square in found if chess.square_file(square) == file]


def _free_files(board: chess.Board) -> Iterator[Values]:
    """Open files that nobody holds."""
    found = open_files(board)
    free = [f for f in found if not any(heavy(board, side, f) for side in chess.COLORS)]
    if board.rooks | board.queens and 0 < len(free) <= _MANY:
        one = {"file": free[0], "only": free[0] if len(found) == 1 else None}
        yield {"files": free, **(one if len(free) == 1 else {})}


concept("open file", detect=_free_files, holds=every(predicates.is_open), weight=1.5).says(
    "{files} ~be (|wide |completely ||fully )open( now)?",
    "||{files} ~come open",
)


@concept("only open file", detect=_free_files, needs="only", weight=1.6).says(
    "{only:file} ~be the only open file( on the board)?",
    "the only open file ~be {only:file}",
    "there ~be (just|only) one open file, {only:file}",
)
def _only_open(context: Context, only: int) -> bool:
    return [file for file in range(8) if predicates.is_open(context.board, file)] == [only]


@concept("free file", detect=_free_files, needs="file", weight=1.5).says(
    "{file} ~be open(,|) and (neither side has a rook or queen on it yet|still unclaimed||unoccupied)",
    "nobody ~have (claimed||occupied|taken) {file:open_file}( yet)?",
    "{file:open_file} ~be still (up for grabs|unclaimed||unoccupied)",
    "neither side has a rook or queen on {file:open_file}( yet)?",
    "||neither side ~have a (rook or queen|heavy piece|rook) on {file}( yet)?",
)
def _is_free(context: Context, file: int) -> bool:
    return predicates.is_open(context.board, file) and not heavy_on(context.board, file)


def _held_files(board: chess.Board) -> Iterator[Values]:
    for file in open_files(board):
        held = {side: heavy(board, side, file) for side in chess.COLORS}
        for side in chess.COLORS:
            if held[side] and not held[not side]:
                yield {"file": file, "piece": held[side][0], "side": side}


@concept("held open file", detect=_held_files, weight=2.3, favours="side").says(
    "{piece} ~(stand on|hold|be already on||occupy|use|command|sit on|be on) {file:open_file}",
    "{file} ~be open, and {piece} (occupies||holds) it",
    "{piece} ~have (taken||occupied|claimed) {file:open_file}",
)
def _is_held(context: Context, file: int, piece: int) -> bool:
    return _is_on(context, file, piece) and predicates.is_open(context.board, file)


def _is_on(context: Context, file: int, piece: int) -> bool:
    return chess.square_file(piece) == file


concept("piece on a file", holds=_is_on, weight=0.5).says(
    "||{piece} ~(stand|sit|be|be placed|be posted) (already |well )?on {file}",
    "||{piece} ~(occupy|hold|use|command) {file}",
)


def _shared_files(board: chess.Board) -> Iterator[Values]:
    for file in open_files(board):
        if all(heavy(board, side, file) for side in chess.COLORS):
            rooks = board.rooks & chess.BB_FILES[file]
            both = all(rooks & board.occupied_co[side] for side in chess.COLORS)
            yield {"file": file, "rooks": file if both else None}


@concept("shared open file", detect=_shared_files, weight=1.5).says(
    "both sides have a heavy piece on {file:open_file}",
    "both sides have a rook on {rooks:open_file}",
    "||both sides ~have a rook on {rooks:file}",
)
def _both_there(context: Context, file: int = -1, rooks: int | None = None) -> bool:
    place, names = (file, _HEAVY) if rooks is None else (rooks, ("rook",))
    found = heavy_on(context.board, place, *names)
    return {context.board.color_at(square) for square in found} == {True, False}


def _half_open(board: chess.Board) -> Iterator[Values]:
    for file, mask in enumerate(chess.BB_FILES):
        for side in (chess.WHITE, chess.BLACK):
            if board.pieces_mask(chess.PAWN, side) & mask or not board.pawns & mask:
                continue
            pawns = board.pieces_mask(chess.PAWN, not side) & mask
            target = chess.lsb(pawns) if side else chess.msb(pawns)
            hitting = board.attackers_mask(side, target) & (board.rooks | board.queens) & mask
            press = {"piece": chess.lsb(hitting)} if hitting else {"free": file}
            yield {"side": side, "file": file, "target": target, **press}


@concept("half-open file", detect=_half_open, needs="free", weight=0.5, favours="side").says(
    "{file} ~be half-open for {side:object}",
    "{side} ~have {file:half_file}( to work with| half-open)?",
    "{side} ~have {file:half_file} to work with",
    "||{side} ~have {file} half-open",
)
def _half_open_for(context: Context, side: bool, file: int) -> bool:
    return predicates.is_half_open(context.board, file, side)


@concept("pressure on a file", detect=_half_open, needs="piece", weight=2.0, favours="side").says(
    "{piece} ~(press against|bear down on) {target} (on|along||down) {file:half_file}",
    "{piece} ~look down {file:half_file} at {target}",
    "along {file:half_file} {piece} ~(eye|press against) {target}",
    "{piece} ~(eye||attack|pressure|hit) {target} (along||down|on) {file}",
)
def _presses(context: Context, piece: int, target: int, file: int) -> bool:
    same = chess.square_file(piece) == chess.square_file(target) == file
    return same and predicates.attacks(context.board, piece, target)


def _seventh(board: chess.Board) -> Iterator[Values]:
    for side in (chess.WHITE, chess.BLACK):
        seventh, eighth = (chess.BB_RANK_7, chess.BB_RANK_8) if side else (chess.BB_RANK_2, chess.BB_RANK_1)
        enemy = board.occupied_co[not side]
        if enemy & (board.pawns & seventh | board.kings & (seventh | eighth)):
            for square in chess.scan_forward(board.pieces_mask(chess.ROOK, side) & seventh):
                yield {"side": side, "rook": square}


@concept("rook on the seventh", detect=_seventh, weight=3.4, favours="side").says(
    "{rook} ~(be||stand|sit) on the seventh rank",
    "{rook} ~have (reached|invaded||penetrated to) the seventh( rank)?",
    "{rook} ~stand on the seventh",
    "{side} ~have a rook on the seventh( rank)?",
)
def _is_on_seventh(context: Context, rook: int | None = None, side: bool | None = None) -> bool:
    if rook is not None:
        return chess.square_rank(rook) == (6 if context.owner(rook) else 1)
    rooks = predicates.all_of(context.board, bool(side), "rook")
    return any(chess.square_rank(square) == (6 if side else 1) for square in rooks)


def _doubled(board: chess.Board) -> Iterator[Values]:
    for file, mask in enumerate(chess.BB_FILES):
        for side in (chess.WHITE, chess.BLACK):
            if board.pieces_mask(chess.PAWN, side) & mask:
                continue
            for one, other in pairwise(heavy(board, side, file)):
                rook = board.rooks & (chess.BB_SQUARES[one] | chess.BB_SQUARES[other])
                if rook and not chess.between(one, other) & board.occupied:
                    yield {"side": side, "file": file, "pieces": [one, other]}


def _nothing_between(board: chess.Board, one: chess.Square, other: chess.Square) -> bool:
    return not any(board.piece_at(square) for square in chess.SquareSet(chess.between(one, other)))


@concept("doubled heavy pieces", detect=_doubled, weight=2.3, favours="side").says(
    "{pieces} ~be (doubled|lined up||stacked) on {file}",
    "{side} ~have (a battery|heavy pieces doubled||doubled|doubled rooks) on {file}",
)
def _are_doubled(context: Context, file: int, side: bool | None = None, pieces: Sequence[int] = ()) -> bool:
    found = heavy_on(context.board, file)
    if side is not None:
        own = sorted(square for square in found if context.board.color_at(square) == side)
        return any(_nothing_between(context.board, a, b) for a, b in pairwise(own))
    context.owner(*pieces)
    return len(pieces) == 2 and set(pieces) <= set(found) and _nothing_between(context.board, *pieces)

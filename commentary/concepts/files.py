"""Open and half-open files, who stands on them, and rooks on the seventh rank."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import chess

from commentary import predicates
from commentary.concept import Values, of_topic
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
    """The rooks and queens of both sides on a file, or the pieces of these `names`, square by square."""
    pieces = [s for side in chess.COLORS for s in predicates.all_of(board, side, *(names or _HEAVY))]
    return [square for square in pieces if chess.square_file(square) == file]


def _free_files(board: chess.Board) -> Iterator[Values]:
    """Open files that nobody holds."""
    free = [f for f in open_files(board) if not any(heavy(board, side, f) for side in chess.COLORS)]
    if board.rooks | board.queens and 0 < len(free) <= _MANY:
        yield {"files": free, "free": free[0] if len(free) == 1 else None}


@concept("open file", detect=_free_files, weight=1.5).says(
    "{files} ~be (|wide |completely ||fully )open( now)?",
    "nobody ~have (claimed||occupied|taken) {free:open_file}( yet)?",
    "{free:open_file} ~be still (up for grabs|unclaimed||unoccupied)",
    "neither side ~have a rook or queen on {free:open_file}( yet)?",
    "||{files} ~come open",
)
def _are_open(context: Context, files: Sequence[int] = (), free: int | None = None) -> bool:
    board, all_files = context.board, [*files, *([] if free is None else [free])]
    return all(predicates.is_open(board, file) for file in all_files) and (
        free is None or not heavy_on(board, free)
    )


@concept("half-open file", weight=0.2).says(
    "||{files} ~be (now |already )?half-open( for {side:object})?",
    "||{side} ~have {half:half_file}",
)
def _are_half_open(
    context: Context, files: Sequence[int] = (), side: bool | None = None, half: int | None = None
) -> bool:
    """Whether the files have a pawn, but none of the side that is named, or of one of both if none is."""
    all_files = [*files, *([] if half is None else [half])]
    sides = chess.COLORS if side is None else (side,)
    return bool(all_files) and all(
        any(predicates.is_half_open(context.board, file, colour) for colour in sides) for file in all_files
    )


def _held_files(board: chess.Board) -> Iterator[Values]:
    for file in open_files(board):
        held = {side: heavy(board, side, file) for side in chess.COLORS}
        for side in chess.COLORS:
            if held[side] and not held[not side]:
                yield {"file": file, "piece": held[side][0], "side": side}


def _is_on(context: Context, file: int, piece: int) -> bool:
    return chess.square_file(piece) == file


concept(
    "held open file",
    detect=_held_files,
    holds=lambda c, file, piece: _is_on(c, file, piece) and predicates.is_open(c.board, file),
    weight=2.3,
    favours="side",
).says(
    "{piece} ~(stand on|hold|be already on||occupy|use|command|sit on|be on) {file:open_file}",
    "{file} ~be open, and {piece} (occupies||holds) it",
    "{piece} ~have (taken||occupied|claimed) {file:open_file}",
)
concept("piece on a file", holds=_is_on, weight=0.5).says(
    "||{piece} ~(stand|sit|be|be placed|be posted) (already |well )?on {file}",
    "||{piece} ~(occupy|hold|use|command) {file}",
)


def _half_open(board: chess.Board) -> Iterator[Values]:
    for file, mask in enumerate(chess.BB_FILES):
        for side in chess.COLORS:
            if board.pieces_mask(chess.PAWN, side) & mask or not board.pawns & mask:
                continue
            pawns = board.pieces_mask(chess.PAWN, not side) & mask
            target = chess.lsb(pawns) if side else chess.msb(pawns)
            hitting = board.attackers_mask(side, target) & (board.rooks | board.queens) & mask
            if hitting:
                yield {"side": side, "file": file, "target": target, "piece": chess.lsb(hitting)}


@concept("pressure on a file", detect=_half_open, weight=2.0, favours="side").says(
    "{piece} ~(press against|bear down on) {target} (on|along||down) {file:half_file}",
    "{piece} ~look down {file:half_file} at {target}",
    "along {file:half_file} {piece} ~(eye|press against) {target}",
    "{piece} ~(eye||attack|pressure|hit) {target} (along||down|on) {file}",
)
def _presses(context: Context, piece: int, target: int, file: int) -> bool:
    same = chess.square_file(piece) == chess.square_file(target) == file
    return same and predicates.attacks(context.board, piece, target)


def seventh(board: chess.Board) -> Iterator[Values]:
    """Rooks on the seventh rank with something to do there."""
    for side in chess.COLORS:
        rank, last = (chess.BB_RANK_7, chess.BB_RANK_8) if side else (chess.BB_RANK_2, chess.BB_RANK_1)
        enemy = board.occupied_co[not side]
        if enemy & (board.pawns & rank | board.kings & (rank | last)):
            for square in chess.scan_forward(board.pieces_mask(chess.ROOK, side) & rank):
                yield {"side": side, "rook": square}


@concept("rook on the seventh", detect=seventh, weight=3.4, favours="side").says(
    "{rook} ~(be||stand|sit) on the seventh rank",
    "{rook} ~have (reached|invaded||penetrated to) the seventh( rank)?",
    "{rook} ~stand on the seventh",
    "{side} ~have a rook on the seventh( rank)?",
)
def is_on_seventh(context: Context, rook: int | None = None, side: bool | None = None) -> bool:
    """A rook, or one of a side, on the rank where the other side's pawns start."""
    owner = context.owner(rook) if rook is not None else bool(side)
    rooks = [s for s in predicates.all_of(context.board, owner, "rook") if rook in (None, s)]
    return any(chess.square_rank(square) == (6 if owner else 1) for square in rooks)


def _doubled(board: chess.Board) -> Iterator[Values]:
    for file, mask in enumerate(chess.BB_FILES):
        for side in chess.COLORS:
            if board.pieces_mask(chess.PAWN, side) & mask:
                continue
            for first, second in pairwise(heavy(board, side, file)):
                rook = board.rooks & (chess.BB_SQUARES[first] | chess.BB_SQUARES[second])
                if rook and not chess.between(first, second) & board.occupied:
                    yield {"side": side, "file": file, "pieces": [first, second]}


@concept("doubled heavy pieces", detect=_doubled, weight=2.3, favours="side").says(
    "{pieces} ~be (doubled|lined up||stacked) on {file}",
    "{side} ~have (a battery|heavy pieces doubled||doubled|doubled rooks) on {file}",
)
def _are_doubled(context: Context, file: int, side: bool | None = None, pieces: Sequence[int] = ()) -> bool:
    owner = context.owner(*pieces) if side is None else side
    there = [s for s in heavy_on(context.board, file) if context.board.color_at(s) == owner]
    pairs = [pieces] if pieces else pairwise(sorted(there))
    return any(set(pair) <= set(there) and predicates.defends(context.board, *pair) for pair in pairs)

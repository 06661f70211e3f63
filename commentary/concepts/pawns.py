"""The pawn skeleton: isolated, doubled and backward pawns, majorities, the centre."""

from collections.abc import Iterator, Sequence
from typing import Any

import chess

from commentary import predicates
from commentary.concept import Values, every, of_topic
from commentary.context import Context, Unknown

concept = of_topic("pawns")
_WINGS = {"queenside": "abc", "kingside": "fgh"}
_HALVES = {"queenside": "abcd", "kingside": "efgh"}
_CENTRE = (chess.D4, chess.E4, chess.D5, chess.E5)


def ahead(square: chess.Square, side: chess.Color) -> chess.Bitboard:
    """The squares of a file beyond `square`, as `side` looks at it."""
    file, below = chess.BB_FILES[chess.square_file(square)], chess.BB_SQUARES[square] - 1
    return file & ~below & ~chess.BB_SQUARES[square] if side else file & below


def beside(mask: chess.Bitboard) -> chess.Bitboard:
    """The squares to the left and right of those in `mask`."""
    return ((mask << 1) & ~chess.BB_FILE_A | (mask >> 1) & ~chess.BB_FILE_H) & chess.BB_ALL


def neighbours(square: chess.Square) -> chess.Bitboard:
    """The files beside that of `square`."""
    return beside(chess.BB_FILES[chess.square_file(square)])


def would_be_passed(board: chess.Board, square: chess.Square, side: chess.Color) -> bool:
    """Whether a pawn of `side` on `square` is or would be passed: nothing before it on three files."""
    front = ahead(square, side)
    own_pawns = board.pieces_mask(chess.PAWN, side) & front
    return not own_pawns and not board.pieces_mask(chess.PAWN, not side) & (front | beside(front))


def steps(square: chess.Square, side: chess.Color) -> int:
    """How many moves of one rank a pawn is away from the last rank."""
    return 7 - chess.square_rank(square) if side else chess.square_rank(square)


def stop_of(square: chess.Square, side: chess.Color) -> chess.Square:
    """The square before a pawn."""
    return square + 8 if side else square - 8


def pawns_of(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Color]]:
    """Every pawn with its side."""
    for side in chess.COLORS:
        for square in chess.scan_forward(board.pieces_mask(chess.PAWN, side)):
            yield square, side


def _isolated(board: chess.Board) -> Iterator[Values]:
    """The isolated pawns of a side, together when there are two or three; more of them say nothing."""
    for side in chess.COLORS:
        pawns = board.pieces_mask(chess.PAWN, side)
        squares = [square for square in chess.scan_forward(pawns) if not pawns & neighbours(square)]
        if len(squares) == 1:
            yield {"side": side, "pawn": squares[0], "pawns": None}
        elif 1 < len(squares) <= 3:
            yield {"side": side, "pawn": None, "pawns": squares}


def _isolated_weight(board: chess.Board, values: Values) -> float:
    pawns = values["pawns"] or [values["pawn"]]
    enemy = board.pieces_mask(chess.PAWN, not values["side"])
    exposed = any(not enemy & ahead(pawn, values["side"]) for pawn in pawns)
    passed = all(would_be_passed(board, pawn, values["side"]) for pawn in pawns)
    return (0.6 if passed else 1.7 if exposed else 1.2) + 0.3 * (len(pawns) - 1)


isolated = every(predicates.is_isolated)
concept("isolated pawn", detect=_isolated, holds=isolated, weight=_isolated_weight, favours="-side").says(
    "{pawn} ~be (isolated|an isolated pawn)( now| as well)?",
    "{side} ~have an isolated pawn on {pawn:square}",
    "{side} ~have to live with an isolated pawn on {pawn:square}",
    "{pawn} ~have no (neighbours|fellow pawn on either neighbouring file)",
    "{pawns:pieces} ~be (isolated||all isolated|both isolated)",
    "{side} ~have isolated pawns on {pawns:squares}",
)


def _doubled(board: chess.Board) -> Iterator[Values]:
    for side in chess.COLORS:
        for file, mask in enumerate(chess.BB_FILES):
            pawns = list(chess.scan_forward(board.pieces_mask(chess.PAWN, side) & mask))
            if len(pawns) > 1:
                yield {"side": side, "pawns": pawns, "file": file}


@concept("doubled pawns", detect=_doubled, weight=1.4, favours="-side").says(
    "{side} ~have doubled pawns on ({file}|{pawns:squares})",
    "{pawns:pieces} ~be doubled",
    "||{side} ~(get|be left with) doubled pawns on {file}",
    "||{pawn} ~be (a )?doubled( pawn)?",
)
def _are_doubled(context: Context, file: int | None = None, **slots: Any) -> bool | None:
    if file is not None:
        return len(predicates.pawns_on(context.board, file, slots["side"])) > 1
    return every(predicates.is_doubled)(context, **slots)


def _backward(board: chess.Board) -> Iterator[Values]:
    for square, side in pawns_of(board):
        pawns = board.pieces_mask(chess.PAWN, side)
        near, rank, stop = pawns & neighbours(square), chess.square_rank(square), stop_of(square, side)
        advanced = all((chess.square_rank(s) > rank) == side for s in chess.scan_forward(near))
        level = near & chess.BB_RANKS[rank]
        guards = board.attackers_mask(not side, stop) & board.pawns
        if near and advanced and not level and board.piece_type_at(stop) is None and guards:
            yield {"pawn": square, "side": side}


backward = every(predicates.is_backward)
concept("backward pawn", detect=_backward, holds=backward, weight=1.6, favours="-side").says(
    "{pawn} ~be (backward|a backward pawn)( now| as well)?",
    "{side} ~have a backward pawn on {pawn:square}",
    "{pawn} (~have been left behind by|~lag behind) its neighbours",
)


def _majorities(board: chess.Board) -> Iterator[Values]:
    for wing, letters in _WINGS.items():
        mask = sum(chess.BB_FILES[chess.FILE_NAMES.index(letter)] for letter in letters)
        white, black = ((board.pieces_mask(chess.PAWN, side) & mask).bit_count() for side in (True, False))
        if white != black and max(white, black) > 1:
            yield {"side": white > black, "wing": wing, "own": max(white, black), "theirs": min(white, black)}


@concept(
    "pawn majority", detect=_majorities, weight=lambda board, v: 0.6 if board.queens else 1.9, favours="side"
).says(
    "{side} ~have (a|the) {wing:word} (majority||pawn majority)",
    "{side} ~have more pawns on the {wing:word}",
    "on the {wing:word} {side} ~have {own:count} pawns against {theirs:count}",
    "the {wing:word} majority ~belong to {side:object}",
    "{side} ~have {own:count} pawns (against||to|versus) {theirs:count} on the {wing:word}",
    "{side} ~have a {wing:word} majority of {own:count} (against||to|versus) {theirs:count}",
)
def _has_majority(context: Context, side: bool, wing: str, own: int = -1, theirs: int = -1) -> bool:
    """Whether a side has more pawns there, and so many, with the d- or e-file or without."""
    for letters in (_WINGS.get(wing, ""), _HALVES.get(wing, "")):
        files = [chess.FILE_NAMES.index(letter) for letter in letters]
        ours, others = (
            sum(len(predicates.pawns_on(context.board, file, colour)) for file in files)
            for colour in (side, not side)
        )
        if ours > others and own in (-1, ours) and theirs in (-1, others):
            return True
    return False


def _centre(board: chess.Board) -> Iterator[Values]:
    for side in chess.COLORS:
        own_pawns, enemy_pawns = (board.pieces(chess.PAWN, colour) for colour in (side, not side))
        pawns = [square for square in _CENTRE if square in own_pawns]
        if len(pawns) >= 2 and sum(square in enemy_pawns for square in _CENTRE) <= 1:
            yield {"side": side, "pawns": pawns}


@concept("pawn centre", detect=_centre, weight=2.2, favours="side").says(
    "{side} ~have pawns on {pawns:squares} in the centre",
    "pawns on {pawns:squares} give {side:object} the centre",
    "{side} ~(hold|control|claim||occupy) the centre with pawns on {pawns:squares}",
    "{side} ~have the (bigger||greater) share of the centre with pawns on {pawns:squares}",
)
def _holds_centre(context: Context, side: bool, pawns: Sequence[int]) -> bool:
    central = [square for square in predicates.CENTRE if predicates.is_pawn(context.board, square)]
    theirs = sum(context.board.color_at(square) != side for square in central)
    return context.owner(*pawns) == side and set(pawns) <= set(central) and theirs <= 1


def _rams(board: chess.Board) -> Iterator[Values]:
    black = board.pieces_mask(chess.PAWN, chess.BLACK)
    for square in chess.scan_forward(board.pieces_mask(chess.PAWN, chess.WHITE)):
        if chess.square_file(square) in (3, 4) and black & chess.BB_SQUARES[square + 8]:
            yield {"one": square, "other": square + 8}
            return


@concept("locked pawns", detect=_rams, weight=1.0).says(
    "{one} and {other} (block each other|stand head to head|are locked together||are locked|face each other)"
)
def _are_locked(context: Context, one: int, other: int) -> bool:
    board = context.board
    if not predicates.is_pawn(board, one) and not predicates.is_pawn(board, other):
        raise Unknown("pieces on a line")
    white, black = (one, other) if board.color_at(one) == chess.WHITE else (other, one)
    colours = (board.color_at(white), board.color_at(black)) == (chess.WHITE, chess.BLACK)
    pawns = predicates.is_pawn(board, white) and predicates.is_pawn(board, black)
    return colours and pawns and black == white + 8

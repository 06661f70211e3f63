"""The pawn skeleton: passed, isolated, doubled and backward pawns, majorities, the centre."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import chess

from commentary import concept as registry
from commentary import sight
from commentary.concept import Values
from commentary.scene import Scene

concept = partial(registry.concept, topic="pawns")
_WINGS = {"queenside": "abc", "kingside": "fgh"}
_CENTRE = (chess.D4, chess.E4, chess.D5, chess.E5)
_NEAR = 3
"""Steps from which on the way to promotion is worth counting."""

Truth = Callable[[chess.Board, chess.Square], bool]


def ahead(square: chess.Square, side: chess.Color) -> chess.Bitboard:
    """The squares of a file beyond `square`, as `side` looks at it."""
    file, below = chess.BB_FILES[chess.square_file(square)], chess.BB_SQUARES[square] - 1
    return file & ~below & ~chess.BB_SQUARES[square] if side else file & below


def beside(mask: chess.Bitboard) -> chess.Bitboard:
    """The squares to the left and right."""
    return ((mask << 1) & ~chess.BB_FILE_A | (mask >> 1) & ~chess.BB_FILE_H) & chess.BB_ALL


def neighbours(square: chess.Square) -> chess.Bitboard:
    """The files beside that of `square`."""
    return beside(chess.BB_FILES[chess.square_file(square)])


def is_passed(board: chess.Board, square: chess.Square, side: chess.Color) -> bool:
    """Whether a pawn of `side` on `square` is or would be passed: nothing before it on three files."""
    front = ahead(square, side)
    own = board.pieces_mask(chess.PAWN, side) & front
    return not own and not board.pieces_mask(chess.PAWN, not side) & (front | beside(front))


def steps(square: chess.Square, side: chess.Color) -> int:
    """Moves from the last rank."""
    return 7 - chess.square_rank(square) if side else chess.square_rank(square)


def stop_of(square: chess.Square, side: chess.Color) -> chess.Square:
    """The square before a pawn."""
    return square + 8 if side else square - 8


def _pawns(board: chess.Board) -> Iterator[tuple[chess.Square, chess.Color]]:
    for side in (chess.WHITE, chess.BLACK):
        for square in chess.scan_forward(board.pieces_mask(chess.PAWN, side)):
            yield square, side


# -- passed pawns --------------------------------------------------------------------------------


def _passers(board: chess.Board) -> Iterator[Values]:
    for square, side in _pawns(board):
        if is_passed(board, square, side):
            yield {"pawn": square, "side": side}


def _guarded_passers(board: chess.Board) -> Iterator[Values]:
    for values in _passers(board):
        if board.attackers_mask(values["side"], values["pawn"]) & board.pawns:
            yield values


def _near_passers(board: chess.Board) -> Iterator[Values]:
    for values in _passers(board):
        left = steps(values["pawn"], values["side"])
        if left <= _NEAR:
            yield {
                **values,
                "steps": left if left > 1 else None,
                "one": values["pawn"] if left == 1 else None,
            }


def _blocked_passers(board: chess.Board) -> Iterator[Values]:
    for values in _passers(board):
        stop = stop_of(values["pawn"], values["side"])
        if board.color_at(stop) == (not values["side"]):
            yield {**values, "blocker": stop}


def _passer_weight(board: chess.Board, values: Values) -> float:
    near = max(0, 4 - steps(values["pawn"], values["side"])) * 1.1
    return 2.2 + near + (0.0 if board.queens else 1.0)


def _all_are(
    truth: Truth, scene: Scene, pawn: int | None = None, pawns: Sequence[int] = (), side: bool | None = None
) -> bool:
    squares = [*pawns, *([] if pawn is None else [pawn])]
    right_side = side is None or all(scene.board.color_at(square) == side for square in squares)
    return bool(squares) and right_side and all(truth(scene.board, square) for square in squares)


def _guarded(board: chess.Board, square: chess.Square) -> bool:
    guard = any(sight.is_pawn(board, defender) for defender in sight.defenders(board, square))
    return sight.is_passed(board, square) and guard


def _steps_left(
    scene: Scene, pawn: int | None = None, one: int | None = None, steps: int = 1, side: bool = True
) -> bool:
    square = pawn if pawn is not None else one
    colour = scene.board.color_at(square) if square is not None else None
    if square is None or colour is None or not sight.is_pawn(scene.board, square):
        return False
    return sight.steps_to_go(square, colour) == steps


def _passed_and_near(scene: Scene, pawn: int | None = None, one: int | None = None, steps: int = 1) -> bool:
    square = pawn if pawn is not None else one
    return (
        square is not None
        and sight.is_passed(scene.board, square)
        and _steps_left(scene, square, None, steps)
    )


def _blockades(scene: Scene, blocker: int, pawn: int) -> bool:
    side = scene.owner(pawn)
    enemies = scene.board.color_at(blocker) == (not side)
    return enemies and sight.is_pawn(scene.board, pawn) and sight.ahead_of(pawn, side)[0] == blocker


def _passed_but_blocked(scene: Scene, blocker: int, pawn: int) -> bool:
    return sight.is_passed(scene.board, pawn) and _blockades(scene, blocker, pawn)


concept(
    "passed pawn",
    "{pawn} ~be (a passed pawn|passed||a passer)( now| as well)?",
    "{side} ~have a (passed pawn|passer) on {pawn:square}",
    "no (pawn|enemy pawn) can (stop||ever stop) {pawn}",
    "||{pawns:pieces} ~be (both |all )?passed( pawns)?",
    "||{side} ~(own|get) a (passed pawn|passer) on {pawn:square}",
    "||{side} ~(have|get) (passed pawns|passers) on {pawns:squares}",
    detect=_passers,
    holds=partial(_all_are, sight.is_passed),
    weight=_passer_weight,
    favours="side",
)
concept(
    "protected passed pawn",
    "{side} ~have a protected (passed pawn|passer) on {pawn:square}",
    "{pawn} ~be (a protected passer|passed and protected||a protected passed pawn)( by a pawn)?",
    detect=_guarded_passers,
    holds=partial(_all_are, _guarded),
    weight=lambda board, values: 0.7 + _passer_weight(board, values),
    favours="side",
)
concept(
    "passed pawn near promotion",
    "{pawn} ~be passed and only {steps:count} steps from queening",
    "{one:piece} ~be passed and only one step from queening",
    detect=_near_passers,
    holds=_passed_and_near,
    weight=lambda board, values: 0.5 + _passer_weight(board, values),
    favours="side",
)
concept(
    "steps to promotion",
    "{pawn} ~be (just |only )?{steps:count} (steps||step|move|moves|square|squares) (away |)from (promotion|queening||promoting)",
    "{pawn} ~need (just|only) {steps:count} more (moves||move|steps) to (queen||promote)",
    detect=lambda board: (values for values in _near_passers(board) if values["steps"] is not None),
    holds=_steps_left,
    weight=lambda board, values: 0.4 + _passer_weight(board, values),
    favours="side",
)
concept(
    "blockaded passed pawn",
    "{pawn} ~be passed, but {blocker} stands in front of it",
    "{blocker} ~blockade {pawn}",
    detect=_blocked_passers,
    holds=_passed_but_blocked,
    weight=lambda board, values: 0.2 + _passer_weight(board, values),
)
concept(
    "blockade",
    "||{blocker} ~(block|stand in front of|stand in the way of|be planted in front of|hold up) {pawn}",
    holds=_blockades,
)


def _connected(board: chess.Board) -> Iterator[Values]:
    for side in (chess.WHITE, chess.BLACK):
        passers = [values["pawn"] for values in _passers(board) if values["side"] == side]
        told: set[chess.Square] = set()  # of three in a row two are enough
        for one in passers:
            for other in passers:
                next_to = chess.square_file(other) == chess.square_file(one) + 1
                if (
                    next_to
                    and abs(chess.square_rank(other) - chess.square_rank(one)) <= 1
                    and one not in told
                ):
                    told.add(other)
                    yield {"side": side, "pawns": [one, other]}


def _are_connected(scene: Scene, pawns: Sequence[int], side: bool | None = None) -> bool:
    if len(pawns) != 2 or not _all_are(sight.is_passed, scene, pawns=pawns, side=side):
        return False
    one, other = pawns
    near = abs(chess.square_rank(other) - chess.square_rank(one)) <= 1
    return (
        near
        and chess.square_file(other) in sight.files_beside(one)
        and len({scene.board.color_at(s) for s in pawns}) == 1
    )


concept(
    "connected passed pawns",
    "{side} ~have connected (passed pawns|passers) on {pawns:squares}",
    "{pawns:pieces} ~be connected passers",
    "||{pawns:pieces} ~be connected( passed pawns)?",
    detect=_connected,
    holds=_are_connected,
    weight=4.5,
    favours="side",
)


# -- weaknesses ----------------------------------------------------------------------------------


def _isolated(board: chess.Board) -> Iterator[Values]:
    """The isolated pawns of a side, together when there are two or three; more of them say nothing."""
    for side in (chess.WHITE, chess.BLACK):
        own = board.pieces_mask(chess.PAWN, side)
        found = [square for square in chess.scan_forward(own) if not own & neighbours(square)]
        if len(found) == 1:
            yield {"side": side, "pawn": found[0], "pawns": None}
        elif 1 < len(found) <= 3:
            yield {"side": side, "pawn": None, "pawns": found}


def _isolated_weight(board: chess.Board, values: Values) -> float:
    pawns = values["pawns"] or [values["pawn"]]
    enemy = board.pieces_mask(chess.PAWN, not values["side"])
    exposed = any(not enemy & ahead(pawn, values["side"]) for pawn in pawns)
    passed = all(is_passed(board, pawn, values["side"]) for pawn in pawns)
    return (0.6 if passed else 1.7 if exposed else 1.2) + 0.3 * (len(pawns) - 1)


concept(
    "isolated pawn",
    "{pawn} ~be (isolated|an isolated pawn)( now| as well)?",
    "{side} ~have an isolated pawn on {pawn:square}",
    "{side} ~have to live with an isolated pawn on {pawn:square}",
    "{pawn} ~have no (neighbours|fellow pawn on either neighbouring file)",
    "{pawns:pieces} ~be (isolated|all isolated||both isolated)",
    "{side} ~have isolated pawns on {pawns:squares}",
    detect=_isolated,
    holds=partial(_all_are, sight.is_isolated),
    weight=_isolated_weight,
    favours="-side",
)


def _doubled(board: chess.Board) -> Iterator[Values]:
    for side in (chess.WHITE, chess.BLACK):
        for file, mask in enumerate(chess.BB_FILES):
            pawns = list(chess.scan_forward(board.pieces_mask(chess.PAWN, side) & mask))
            if len(pawns) > 1:
                yield {"side": side, "pawns": pawns, "file": file}


def _are_doubled(
    scene: Scene, pawns: Sequence[int] = (), side: bool | None = None, file: int = -1, pawn: int | None = None
) -> bool:
    if file >= 0:
        return side is not None and len(sight.pawns_on(scene.board, file, side)) > 1
    return _all_are(sight.is_doubled, scene, pawn, pawns, side)


concept(
    "doubled pawns",
    "{side} ~have doubled pawns on ({file}|{pawns:squares})",
    "{pawns:pieces} ~be doubled",
    "||{side} ~(get|be left with) doubled pawns on {file}",
    "||{pawn} ~be (a )?doubled( pawn)?",
    detect=_doubled,
    holds=_are_doubled,
    weight=1.4,
    favours="-side",
)


def _backward(board: chess.Board) -> Iterator[Values]:
    for square, side in _pawns(board):
        own = board.pieces_mask(chess.PAWN, side)
        near, rank, stop = own & neighbours(square), chess.square_rank(square), stop_of(square, side)
        advanced = all((chess.square_rank(s) > rank) == side for s in chess.scan_forward(near))
        level = near & chess.BB_RANKS[rank]
        guards = board.attackers_mask(not side, stop) & board.pawns
        if near and advanced and not level and board.piece_type_at(stop) is None and guards:
            yield {"pawn": square, "side": side}


concept(
    "backward pawn",
    "{pawn} ~be (backward|a backward pawn)( now| as well)?",
    "{side} ~have a backward pawn on {pawn:square}",
    "{pawn} (~have been left behind by|~lag behind) its neighbours",
    detect=_backward,
    holds=partial(_all_are, sight.is_backward),
    weight=1.6,
    favours="-side",
)


# -- wings and the centre ------------------------------------------------------------------------


def _majorities(board: chess.Board) -> Iterator[Values]:
    for wing, letters in _WINGS.items():
        mask = sum(chess.BB_FILES[chess.FILE_NAMES.index(letter)] for letter in letters)
        white, black = ((board.pieces_mask(chess.PAWN, side) & mask).bit_count() for side in (True, False))
        if white != black and max(white, black) > 1:
            yield {"side": white > black, "wing": wing, "own": max(white, black), "theirs": min(white, black)}


def _has_majority(
    scene: Scene, side: bool, wing: str, own: int | None = None, theirs: int | None = None
) -> bool:
    pawns = {
        colour: sum(
            chess.FILE_NAMES[chess.square_file(pawn)] in _WINGS.get(wing, "")
            for pawn in sight.all_of(scene.board, colour, "pawn")
        )
        for colour in chess.COLORS
    }
    exact = own is None or (pawns[side], pawns[not side]) == (own, theirs)
    return pawns[side] > pawns[not side] and exact


concept(
    "pawn majority",
    "{side} ~have (a|the) {wing:word} (majority||pawn majority)",
    "{side} ~have more pawns on the {wing:word}",
    "on the {wing:word} {side} ~have {own:count} pawns against {theirs:count}",
    "the {wing:word} majority ~belong to {side:object}",
    "{side} ~have {own:count} pawns (against||to|versus) {theirs:count} on the {wing:word}",
    "{side} ~have a {wing:word} majority of {own:count} (against||to|versus) {theirs:count}",
    detect=_majorities,
    holds=_has_majority,
    weight=lambda board, values: 0.6 if board.queens else 1.9,
    favours="side",
)


def _centre(board: chess.Board) -> Iterator[Values]:
    for side in (chess.WHITE, chess.BLACK):
        own, enemy = (board.pieces(chess.PAWN, colour) for colour in (side, not side))
        pawns = [square for square in _CENTRE if square in own]
        if len(pawns) >= 2 and sum(square in enemy for square in _CENTRE) <= 1:
            yield {"side": side, "pawns": pawns}


def _holds_centre(scene: Scene, side: bool, pawns: Sequence[int]) -> bool:
    central = [square for square in _CENTRE if sight.is_pawn(scene.board, square)]
    theirs = sum(scene.board.color_at(square) != side for square in central)
    return scene.owner(*pawns) == side and set(pawns) <= set(central) and theirs <= 1


concept(
    "pawn centre",
    "{side} ~have pawns on {pawns:squares} in the centre",
    "pawns on {pawns:squares} give {side:object} the centre",
    "{side} ~(hold|control|claim||occupy) the centre with pawns on {pawns:squares}",
    "{side} ~have the (bigger||greater) share of the centre with pawns on {pawns:squares}",
    detect=_centre,
    holds=_holds_centre,
    weight=2.2,
    favours="side",
)


def _rams(board: chess.Board) -> Iterator[Values]:
    black = board.pieces_mask(chess.PAWN, chess.BLACK)
    for square in chess.scan_forward(board.pieces_mask(chess.PAWN, chess.WHITE)):
        if chess.square_file(square) in (3, 4) and black & chess.BB_SQUARES[square + 8]:
            yield {"one": square, "other": square + 8}
            return


def _ram(scene: Scene, one: int, other: int) -> bool:
    board = scene.board
    white, black = (one, other) if board.color_at(one) == chess.WHITE else (other, one)
    colours = (board.color_at(white), board.color_at(black)) == (chess.WHITE, chess.BLACK)
    return colours and sight.is_pawn(board, white) and sight.is_pawn(board, black) and black == white + 8


concept(
    "locked pawns",
    "{one} and {other} (block each other|stand head to head|are locked together||are locked|face each other)",
    detect=_rams,
    holds=_ram,
    weight=1.0,
)

"""Passed pawns, protected, blocked, connected, near promotion, and what a move does with one."""

from collections.abc import Iterator, Sequence

import chess

from commentary import predicates
from commentary.concept import Values, Weight, every, move_concept, of_moved, of_topic
from commentary.concepts.pawns import pawns_of, steps, stop_of, would_be_passed
from commentary.context import Context, Unknown
from commentary.step import Step

concept = of_topic("pawns")
_NEAR = 3
"""Steps from which on the way to promotion is worth counting."""


def _passers(board: chess.Board) -> Iterator[Values]:
    for square, side in pawns_of(board):
        if would_be_passed(board, square, side):
            left, stop = steps(square, side), stop_of(square, side)
            yield {
                "pawn": square,
                "side": side,
                "guarded": True if board.attackers_mask(side, square) & board.pawns else None,
                "near": left if left <= _NEAR else None,
                "steps": left if 1 < left <= _NEAR else None,
                "one": square if left == 1 else None,
                "blocker": stop if board.color_at(stop) == (not side) else None,
            }


def _passer_weight(base: float) -> Weight:
    """The weight of a passed pawn: it grows with every step, and when the queens are off."""

    def weight(board: chess.Board, values: Values) -> float:
        near = max(0, 4 - steps(values["pawn"], values["side"])) * 1.1
        return base + (2.2 + near + (0.0 if board.queens else 1.0))

    return weight


def _guarded(board: chess.Board, square: chess.Square) -> bool:
    guard = any(predicates.is_pawn(board, defender) for defender in predicates.defenders(board, square))
    return predicates.is_passed(board, square) and guard


def _blockades(context: Context, blocker: int, pawn: int) -> bool:
    side = context.owner(pawn)
    enemies = context.board.color_at(blocker) == (not side)
    if not predicates.is_pawn(context.board, pawn):
        raise Unknown("a piece is blocked on its lines")
    return enemies and predicates.ahead_of(pawn, side)[0] == blocker


passed = every(predicates.is_passed)
concept("passed pawn", detect=_passers, holds=passed, weight=_passer_weight(0.0), favours="side").says(
    "{pawn} ~be (a passed pawn|passed||a passer)( now| as well)?",
    "{side} ~have a (passed pawn|passer) on {pawn:square}",
    "no (pawn|enemy pawn) can (stop||ever stop) {pawn}",
    "||{pawns:pieces} ~be (both |all )?passed( pawns)?",
    "||{side} ~(own|get) a (passed pawn|passer) on {pawn:square}",
    "||{side} ~(have|get) (passed pawns|passers) on {pawns:squares}",
)
concept(
    "some passed pawn",
    holds=lambda context, side: any(
        predicates.is_passed(context.board, pawn) for pawn in predicates.all_of(context.board, side, "pawn")
    ),
    weight=0.2,
).says("||{side} ~(have|own) a (passed pawn|passer)")
concept(
    "protected passed pawn",
    detect=_passers,
    needs="guarded",
    holds=every(_guarded),
    weight=_passer_weight(0.7),
    favours="side",
).says(
    "{side} ~have a protected (passed pawn|passer) on {pawn:square}",
    "{pawn} ~be (a protected passer|passed and protected||a protected passed pawn)( by a pawn)?",
)


@concept(
    "passed pawn near promotion", detect=_passers, needs="near", weight=_passer_weight(0.5), favours="side"
).says(
    "{pawn} ~be passed and only {steps:count} steps from queening",
    "{one:piece} ~be passed and only one step from queening",
)
def _passed_and_near(context: Context, steps: int = 1, **slots: int) -> bool:
    (square,) = slots.values()
    return predicates.is_passed(context.board, square) and _steps_left(context, square, steps)


@concept(
    "steps to promotion", detect=_passers, needs="steps", weight=_passer_weight(0.4), favours="side"
).says(
    "{pawn} ~be (just |only )?{steps:count} (steps||step|move|moves|square|squares) (away |)from (promotion|queening||promoting)",
    "{pawn} ~need (just|only) {steps:count} more (moves||move|steps) to (queen||promote)",
)
def _steps_left(context: Context, pawn: int, steps: int) -> bool:
    side = context.owner(pawn)
    return predicates.is_pawn(context.board, pawn) and predicates.steps_to_go(pawn, side) == steps


@concept("blockaded passed pawn", detect=_passers, needs="blocker", weight=_passer_weight(0.2)).says(
    "{pawn} ~be passed, but {blocker} stands in front of it",
    ">{blocker} ~blockade {pawn}",
)
def _passed_but_blocked(context: Context, blocker: int, pawn: int) -> bool:
    return _blockades(context, blocker, pawn) and predicates.is_passed(context.board, pawn)


concept("blockade", holds=_blockades).says(
    "||{blocker} ~(block|blockade|stand in front of|stand in the way of|be planted in front of|hold up) {pawn}",
    "||{pawn} ~be (blocked|blockaded|stopped|held up) by {blocker}",
)


@concept("behind a passed pawn", weight=0.5).says(
    "||{piece} ~(be|stand|sit|be placed|be posted) (already |right |directly |well )?behind {pawn}",
    "||{side} ~have (a|its) rook behind {pawn}",
)
def _is_behind(context: Context, pawn: int, piece: int | None = None, side: bool | None = None) -> bool:
    """A rook or queen further back on its file, with nothing between them."""
    board = context.board
    pieces = predicates.all_of(board, bool(side), "rook") if piece is None else [piece]
    heavy = all(predicates.name_at(board, square) in ("rook", "queen") for square in pieces)
    if not heavy or not predicates.is_passed(board, pawn):
        raise Unknown("behind something else")
    file = {square for square in pieces if chess.square_file(square) == chess.square_file(pawn)}
    behind = file - set(predicates.ahead_of(pawn, context.owner(pawn)))
    clear = [s for s in behind if not any(map(board.piece_at, chess.SquareSet(chess.between(s, pawn))))]
    if behind and not clear:
        raise Unknown("something stands between them")
    return bool(clear)


move_concept("goes behind a passed pawn", holds=of_moved(_is_behind, "piece"), weight=0.5).says(
    "||~(put|place|post|bring|move|swing) {moved} behind {pawn}"
)


def _connected(board: chess.Board) -> Iterator[Values]:
    for side in chess.COLORS:
        passers = [values["pawn"] for values in _passers(board) if values["side"] == side]
        partners: set[chess.Square] = set()  # of three in a row two are enough
        for pawn in passers:
            for neighbour in passers:
                next_to = chess.square_file(neighbour) == chess.square_file(pawn) + 1
                if next_to and chess.square_distance(pawn, neighbour) == 1 and pawn not in partners:
                    partners.add(neighbour)
                    yield {"side": side, "pawns": [pawn, neighbour]}


@concept("connected passed pawns", detect=_connected, weight=4.5, favours="side").says(
    "{side} ~have connected (passed pawns|passers) on {pawns:squares}",
    "{pawns:pieces} ~be connected passers",
    "||{pawns:pieces} ~be connected passed pawns",
)
def _are_connected(context: Context, pawns: Sequence[int], side: bool | None = None) -> bool:
    if len(pawns) != 2 or not passed(context, pawns=pawns, side=side):
        return False
    first, second = pawns
    beside = chess.square_file(second) in predicates.files_beside(first)
    near = abs(chess.square_rank(second) - chess.square_rank(first)) <= 1
    return beside and near and context.board.color_at(first) == context.board.color_at(second)


@concept("connected", weight=0.3).says("||{pieces} ~be (also |now |already )?connected")
def _are_joined(context: Context, pieces: Sequence[int]) -> bool:
    """Whether two rooks defend each other, or two pawns of a side are on neighbouring files."""
    names = {predicates.name_at(context.board, square) for square in pieces}
    if len(pieces) != 2 or names not in ({"rook"}, {"pawn"}):
        raise Unknown("what connects them")
    context.owner(*pieces)
    if names == {"rook"}:
        return predicates.defends(context.board, *pieces)
    return chess.square_file(pieces[1]) in predicates.files_beside(pieces[0])


def _pushes(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    if not moved or not would_be_passed(step.after, step.target, step.mover):
        return
    if would_be_passed(step.before, step.origin, step.mover):
        left = steps(step.target, step.mover)
        yield {"pawn": step.origin, "near": left if 1 < left <= _NEAR else None}


@move_concept("pushes a passed pawn", detect=_pushes, weight=3.8).says(
    "~(push|advance) {pawn:passer} to {here:square}",
    "~(push|advance) {pawn:passer}",
    "~run {pawn:passer} forward",
    "~(push|advance) {pawn:passer} and ~leave it only {near:count} steps from queening",
    "||~(push|advance|run) {pawn:passer}( forward| on| further)?",
)
def _is_pushing(context: Context, pawn: int, near: int | None = None) -> bool:
    counted = near in (None, predicates.steps_to_go(context.to, context.before.turn))
    return pawn == context.origin and counted and predicates.is_passed(context.before, pawn)


def _makes_passer(step: Step) -> Iterator[Values]:
    moved = step.kind == chess.PAWN and not step.move.promotion
    was = would_be_passed(step.before, step.origin, step.mover)
    if moved and not was and would_be_passed(step.after, step.target, step.mover):
        yield {"side": step.mover}


@move_concept("makes a passed pawn", detect=_makes_passer, weight=4.2).says(
    "~(create|make||produce|obtain) a passed pawn on {here:square}",
    "~give {side:object} a passed pawn on {here:square}",
    "||~(create|make|produce|obtain) a passed pawn",
    "||~give {side:object} a passed pawn",
)
def _is_new_passer(context: Context, side: bool | None = None) -> bool:
    was = predicates.is_passed(context.before, context.origin)
    return predicates.is_passed(context.board, context.to) and not was and side in (None, context.before.turn)


def _stops_passer(step: Step) -> Iterator[Values]:
    stop = stop_of(step.target, step.mover)
    if step.kind == chess.PAWN or not 0 <= stop < 64:
        return
    pawns = step.after.pieces_mask(chess.PAWN, not step.mover)
    if pawns & chess.BB_SQUARES[stop] and would_be_passed(step.after, stop, not step.mover):
        yield {"pawn": stop}


move_concept("blockades", detect=_stops_passer, holds=of_moved(_blockades, "blocker"), weight=3.0).says(
    "~(blockade|stand in the way of||block|halt|stop) {pawn}( for now)?"
)

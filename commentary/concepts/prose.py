"""What models say in their own words, and no writer here: read, never written."""

from collections.abc import Sequence

from commentary import predicates
from commentary.concept import every, of_topic
from commentary.concepts.strikes import is_gain
from commentary.context import Context, Unknown
from commentary.token import parse_move
from commentary.wording import HOW, SOME

concept = of_topic("prose")
move_concept = of_topic("prose", about_moves=True)

move_concept(
    "captures with a piece",
    holds=lambda context, victim, piece: context.victim == victim and piece == context.origin,
    weight=2.0,
).says("||~(involve capturing|suggest capturing|capture|take) {victim:before} with {piece:before}")


def _reaches(
    context: Context, squares: Sequence[int], pieces: Sequence[int] = (), side: bool | None = None
) -> bool:
    """Whether the pieces, or the side, attack every square, and each of the pieces attacks one of them."""
    board = context.board
    if side is not None:
        return all(board.attackers(side, square) for square in squares)
    reached = [set(board.attacks(piece)) & set(squares) for piece in pieces]
    return all(reached) and set(squares) <= set().union(*reached)


def _is_central(context: Context, pieces: Sequence[int], squares: Sequence[int] = ()) -> bool:
    """Whether each piece stands on or attacks d4, e4, d5 or e5, and all squares named are attacked."""
    reaches_squares = not squares or _reaches(context, squares, pieces)
    return reaches_squares and all(
        predicates.CENTRE & {piece, *context.board.attacks(piece)} for piece in pieces
    )


def _could_take(context: Context, target: int, side: bool | None = None) -> bool:
    """Whether a side, at its turn, takes something that is loose, or worth more than what takes it."""
    board, taker = context.board, context.before.turn if side is None else side
    takers = predicates.attackers(board, target)
    if board.color_at(target) == taker or not takers:
        return False
    cheapest = min(predicates.worth_at(board, square) for square in takers)
    if predicates.defenders(board, target) and predicates.worth_at(board, target) <= cheapest:
        raise Unknown("an exchange")
    return True


_REACH = "~(control|cover|attack|target|hit|eye|defend|protect|guard|support|influence|pressure)"
concept("controls squares", holds=_reaches, weight=0.3).says(
    "||{pieces} (both |also |directly )?~(control|cover|guard|watch|eye|influence|attack|target|hit|protect|defend) (the )?(key |important |central )?(square |squares )?{squares}",
    "||{squares} ~be (also |directly )?(controlled|covered|guarded|attacked|protected|defended) by {pieces}",
    "||{squares} ~be (also |directly )?(controlled|covered|guarded|attacked) by {side:object}",
    "||{side} ~control {squares}",
    f"<{{pieces}} {HOW}{_REACH} {SOME}{{squares}}",
    f"<{{squares}} ~be {HOW}(controlled|covered|guarded) by {{pieces}}",
)
concept("controls the centre", holds=_is_central, weight=0.2).says(
    "||{pieces} ~(control|influence|occupy|cover|eye) (the )?(key |important |some )?(centre|central squares|squares in the centre)( (like|such as|including) {squares})?"
)
move_concept(
    "fights for the centre", holds=lambda context: _is_central(context, [context.to]), weight=0.2
).says(
    "||~(control|contest|occupy|influence|fight for|claim|take control of|strengthen control of|increase control over|stake a claim in) (the |key |important |more of the )?(centre|central squares|central space)"
)
concept("defended", holds=every(predicates.defenders), weight=0.1).says(
    "||{pieces} ~be (well |also |already |still |now |adequately |sufficiently )?(defended|protected|guarded|supported)"
)
concept(
    "not attacked", holds=every(lambda board, piece: not predicates.attackers(board, piece)), weight=0.1
).says(
    "||{pieces} ~be not (currently |directly |immediately )?(attacked|under attack|threatened|in danger|under threat)"
)
concept("threat to take", holds=_could_take, weight=1.0).says(
    "||{side} ~threaten to (capture|take|win) {target:piece}"
)
move_concept("threatens to take", holds=_could_take, weight=1.0).says(
    "||~threaten to (capture|take|win) {target:piece}"
)

move_concept(
    "captures a kind",
    holds=lambda c, kind: c.victim is not None and c.before.piece_type_at(c.victim) == kind,
    weight=0.5,
).says("||~(capture|take|remove|eliminate) (a|an) (black |white |enemy |free )?{kind}")


@move_concept("gains a kind", weight=0.5).says(
    "||~(win|grab|pick up) (a|an) (black |white |enemy |free )?{kind}"
)
def _gains(context: Context, kind: int) -> bool:
    if context.victim is None:
        raise Unknown("it may be taken later")
    return context.before.piece_type_at(context.victim) == kind and is_gain(context)


# -- what is only named ----------------------------------------------------------------------------


def _is_named(context: Context, mention: str) -> bool:
    """Whether a move can be played at the turn of its side, or such a piece stands where "Bh1" says. Raises
    `Unknown` if not: it may be named for another position."""
    if context.is_piece(context.root, mention):
        return True
    for board in (context.root, predicates.other_turn(context.root)):
        if board is not None and parse_move(board, mention) is not None:
            return True
    raise Unknown("a move of another position")


def _walks(context: Context, origin: int, goals: Sequence[int]) -> bool:
    """Whether the piece there can go to all these squares. Raises `Unknown` if not: a way that is looked for
    may not be there."""
    if not set(goals) <= {move.to_square for move in context.root.legal_moves if move.from_square == origin}:
        raise Unknown("a way that is looked for")
    return True


given = of_topic("given", weight=0.1)
given("named piece", holds=lambda context, piece: bool(piece)).says("<{piece:placed}", "<{piece:group}")
given("named move", holds=_is_named).says("<{mention}")
given("named way", holds=_walks).says("<(from )?{origin:spot} (to|->|\u2192) {goals:squares}")

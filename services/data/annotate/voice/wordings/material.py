"""Words for who has which pieces."""

from collections.abc import Sequence

import chess

from services.data.annotate.facts.material import (
    Balance,
    BishopPair,
    Ending,
    OppositeBishops,
    QueensOff,
)
from services.data.annotate.play import Swing
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.wordings.registry import states

_NAMES = ("pawn", "knight", "bishop", "rook", "queen")


def units(counts: Sequence[int]) -> str:
    """Pieces in words, the big ones first.

    >>> units((2, 0, 0, 1, 0))
    'a rook and two pawns'
    """
    parts = [_unit(counts[kind], _NAMES[kind]) for kind in (4, 3, 2, 1, 0) if counts[kind]]
    return Pen.join(parts)


def _unit(count: int, name: str) -> str:
    return f"a {name}" if count == 1 else f"{Pen.number(count)} {name}s"


def is_exchange(more: Sequence[int], less: Sequence[int]) -> bool:
    """A rook against a knight or bishop and nothing else."""
    return tuple(more) == (0, 0, 0, 1, 0) and sum(less[1:3]) == 1 and less[0] == less[3] == less[4] == 0


@states(Balance)
def balance(pen: Pen, board: chess.Board, fact: Balance) -> str:
    if not any(fact.white) and not any(fact.black):
        return pen.say(_EVEN)
    if fact.points == 0:
        return _unbalanced(pen, fact, side=pen.root.turn)
    side = fact.points > 0
    return ahead(pen, Swing(fact.surplus(side), fact.surplus(not side)), side)


_EVEN = (
    "material is level",
    "the material is even",
    "material is equal",
    "the material count is level",
    "nobody is ahead in material",
    "annotator|the material is balanced",
    "both sides have the same pieces",
    "calculator|the pieces are the same on both sides",
)


def _unbalanced(pen: Pen, fact: Balance, *, side: chess.Color) -> str:
    own, other = fact.surplus(side), fact.surplus(not side)
    party = pen.side(side)
    if not any(own) or not any(other):
        return pen.say(_EVEN[:5])
    return pen.say(
        (
            "{side.has} {own} for {other}",
            "{side.has} {own} against {other}",
            "the material is unbalanced: {side.has} {own} for {other}",
            "material is level, but {side.has} {own} for {other}",
        ),
        side=party,
        own=units(own),
        other=units(other),
    )


def ahead(pen: Pen, change: Swing, side: chess.Color) -> str:
    """Says that `side` is ahead by what it has won for what it has lost."""
    slots: dict[str, object] = {"side": pen.side(side), "other": pen.side(not side)}
    if is_exchange(change.won, change.lost):
        return pen.say(_EXCHANGE, **slots)
    plain = change.plain
    if any(plain.lost):
        return pen.say(_FOR, more=units(plain.won), less=units(plain.lost), **slots)
    return _clear(pen, plain.won, side)


_EXCHANGE = ("{side.is_} the exchange up", "{side.is_} the exchange ahead", "{other.is_} the exchange down")
_FOR = ("{side.has} {more} for {less}", "{side.has} {more} against {less}")


def _clear(pen: Pen, more: Sequence[int], side: chess.Color) -> str:
    options = [
        "{side.is_} {more} up",
        "{side.is_} {more} ahead",
        "{side.is_} {more} to the good",
        "{other.is_} {more} down",
        "{other.is_} {more} behind",
    ]
    if sum(more) == 1:
        name = _NAMES[more.index(1)]
        options.append(f"{{side.has}} an extra {name}")
        if name in ("knight", "bishop"):
            options += ["{side.is_} a piece up", "{other.is_} a piece down", "{side.is_} a piece ahead"]
    if sum(more[1:]) > 1:
        options = ["{side.is_} far ahead in material", "{other.is_} far behind in material", *options[:2]]
    return pen.say(options, side=pen.side(side), other=pen.side(not side), more=units(more))


@states(BishopPair)
def bishop_pair(pen: Pen, board: chess.Board, fact: BishopPair) -> str:
    return pen.say(
        (
            "{side.has} the bishop pair",
            "{side.has} the two bishops",
            "the bishop pair belongs to {side.object_}",
            "{side.do[own]} the bishop pair",
            "{side.has} the pair of bishops",
        ),
        side=pen.side(fact.side),
    )


@states(OppositeBishops)
def opposite_bishops(pen: Pen, board: chess.Board, fact: OppositeBishops) -> str:
    return pen.say(
        (
            "there are bishops of opposite colours",
            "the bishops are of opposite colours",
            "the bishops run on opposite colours",
            "bishops of opposite colours are on the board",
            "there are opposite-coloured bishops",
        )
    )


@states(Ending)
def ending(pen: Pen, board: chess.Board, fact: Ending) -> str:
    name = chess.piece_name(fact.kind)
    options = ["this is a {kind} ending", "we have a {kind} ending", "it is a {kind} endgame"]
    if fact.kind == chess.PAWN:
        options += ["this is a pure pawn ending", "only kings and pawns are left", "it is a pure pawn ending"]
    else:
        options += ["only {kind}s and pawns are left besides the kings", "only {kind}s and pawns are left"]
    if not board.pawns:
        options = options[:3]
    return pen.say(options, kind=name)


@states(QueensOff)
def queens_off(pen: Pen, board: chess.Board, fact: QueensOff) -> str:
    return pen.say(
        (
            "the queens are off",
            "queens are off the board",
            "the queens have been exchanged",
            "there are no queens on the board",
            "the queens have gone",
            "the queens have come off",
        )
    )

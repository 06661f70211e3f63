"""Who has more: the balance of material."""

from collections import Counter
from collections.abc import Iterator, Sequence

import chess

from commentary.concept import Concept, Values, Weight, of_topic
from commentary.context import Context, Unknown
from commentary.exchange import VALUES
from commentary.predicates import WORTH, count, total
from commentary.slots import KINDS

concept = of_topic("material")
TYPES = (chess.PAWN, chess.KNIGHT, chess.BISHOP, chess.ROOK, chess.QUEEN)
_MINORS = (1, 2)
_MUCH = 5
"""In pawns: from here on a side is far ahead."""


def counts(board: chess.Board, side: chess.Color) -> tuple[int, ...]:
    """Pawns, knights, bishops, rooks and queens of a side."""
    return tuple(board.pieces_mask(kind, side).bit_count() for kind in TYPES)


def points(units: Sequence[int]) -> int:
    """What pieces are worth in pawns."""
    return sum(VALUES[kind] * n for kind, n in zip(TYPES, units, strict=True))


def plain(more: Sequence[int], less: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two surpluses with knights and bishops cancelled against each other."""
    more, less = list(more), list(less)
    for minor, counterpart in (_MINORS, _MINORS[::-1]):
        traded = min(more[minor], less[counterpart])
        more[minor] -= traded
        less[counterpart] -= traded
    return tuple(more), tuple(less)


def is_exchange(more: Sequence[int], less: Sequence[int]) -> bool:
    """A rook against a knight or bishop and nothing else."""
    return tuple(more) == (0, 0, 0, 1, 0) and sum(less[1:3]) == 1 and less[0] == less[3] == less[4] == 0


def surpluses(board: chess.Board, side: chess.Color) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a side has that the other has not, and the other way round."""
    pairs = [(o, t) for o, t in zip(counts(board, side), counts(board, not side), strict=True)]
    return tuple(max(0, o - t) for o, t in pairs), tuple(max(0, t - o) for o, t in pairs)


def lead(board: chess.Board, side: chess.Color) -> int:
    """How many pawns a side's surplus is worth more than the other's."""
    more, less = surpluses(board, side)
    return points(more) - points(less)


def balance(board: chess.Board) -> tuple[str, Values]:
    """The concept that says how the material stands, and its values."""
    ahead = lead(board, chess.WHITE)
    side = ahead > 0 or (ahead == 0 and board.turn)
    more, less = surpluses(board, side)
    values: dict[str, object] = {"side": side, "other": not side}
    if ahead == 0:
        if not any(plain(more, less)[0]):
            return "level material", values
        return "one for another", values | {"even": side, "more": more, "less": less}
    if is_exchange(more, less):
        return "exchange up", values
    more, less = plain(more, less)
    if any(less):
        return "one for another", values | {"more": more, "less": less}
    single = sum(more) == 1
    minor = "piece" if single and (more[1] or more[2]) else None
    extra = TYPES[more.index(1)] if single else None
    far = abs(ahead) >= _MUCH and sum(more[1:]) > 1
    slots = {"units": more, "minor": minor, "extra": extra}
    return ("far ahead" if far else "material ahead"), values | slots


def _lead_weight(board: chess.Board, values: Values) -> float:
    return 4.5 + min(3, lead(board, values["side"])) * 0.5


def _of_balance(name: str, weight: Weight = _lead_weight, favours: str = "side") -> Concept:
    """Declares one of the concepts that `balance` names."""

    def detect(board: chess.Board) -> Iterator[Values]:
        concept_name, values = balance(board)
        if concept_name == name:
            yield values

    return concept(name, detect=detect, weight=weight, favours=favours)


def _lead(context: Context, side: chess.Color) -> int:
    """How much more a side has, in pawns."""
    return total(context.board, side) - total(context.board, not side)


def more(board: chess.Board, side: chess.Color, name: str) -> int:
    """How many more of a kind a side has."""
    return count(board, side, name) - count(board, not side, name)


def surplus(board: chess.Board, side: chess.Color) -> Counter[str]:
    """What a side has more of than the other, by name."""
    return Counter({name: n for name in KINDS if (n := more(board, side, name)) > 0})


def minors_alike(ours: Counter[str], theirs: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """Both surpluses with knights and bishops cancelled against each other."""
    ours, theirs = Counter(ours), Counter(theirs)
    for minor, counterpart in (("knight", "bishop"), ("bishop", "knight")):
        traded = min(ours[minor], theirs[counterpart])
        ours[minor] -= traded
        theirs[counterpart] -= traded
    return +ours, +theirs


def fits(units: Counter[str], actual: Counter[str]) -> bool:
    """Whether words such as `a piece and a pawn` describe exactly these."""
    exact = Counter({name: n for name, n in units.items() if name != "piece"})
    if any(actual[name] != n for name, n in exact.items()):
        return False
    rest = actual - exact
    return sum(rest.values()) == units["piece"] and all(name in ("knight", "bishop") for name in rest)


def describes(more: Counter[str], less: Counter[str], ours: Counter[str], theirs: Counter[str]) -> bool:
    """Whether words such as "a rook for a bishop" describe what one side has more, and what the other. A
    knight may count as a bishop. Where no pawns are named there may be some, but not enough to make up for
    what is named alone, as in "a rook up"."""
    readings = [(ours, theirs), minors_alike(ours, theirs)]
    if _names_no_pawns(more, less) and (less or _worth(ours) > _worth(theirs)):
        readings += [(_pieces(extra), _pieces(missing)) for extra, missing in readings]
    return any(fits(more, extra) and fits(less, missing) for extra, missing in readings)


def _names_no_pawns(more: Counter[str], less: Counter[str]) -> bool:
    return not (more["pawn"] or less["pawn"])


def _worth(units: Counter[str]) -> int:
    return sum(WORTH[name] * n for name, n in units.items())


def _pieces(units: Counter[str]) -> Counter[str]:
    return Counter({name: n for name, n in units.items() if name != "pawn"})


@_of_balance("level material", weight=2.2, favours="").says(
    "(material|the material) ~be (level|even|equal||balanced)( on both sides)?",
    "the material count ~be (level|even||equal)",
    "there is nothing between the sides in material",
    "material ~be (equal|even) on both sides",
    "both sides are equal in material",
    "(nobody|neither side) ~be ahead in material",
    "||(the )?material (count |balance |situation )?(~be )?(level|even|equal|balanced)( (for|on) both sides)?",
    "||both sides ~have (equal|even|the same amount of) material",
)
def _is_level(context: Context) -> bool:
    return _lead(context, chess.WHITE) == 0


concept("same pieces", holds=lambda c: not any(surplus(c.board, side) for side in chess.COLORS)).says(
    "||(both sides|each side) ~have (exactly )?the same (pieces|material|forces)( left)?",
    "||the (pieces|forces) ~be the same on both sides",
)
concept("nearly level material", holds=lambda c: abs(_lead(c, chess.WHITE)) <= 1, weight=0.2).says(
    "||(the )?material (count |balance |situation )?~be (roughly|relatively|about|approximately|nearly|almost|fairly) (equal|even|level|balanced)( (for|on) both sides)?"
)
concept("more material", holds=lambda c, side: _lead(c, side) > 0, weight=0.2).says(
    "||{side} ~be (slightly |clearly )?(ahead|up) (in|on) material",
    "||{other:side} ~be (slightly |clearly )?(behind|down) (in|on) material",
    "||{side} ~have (a |the )?(slight |small |clear |significant )?(material advantage|material edge|advantage in material|more material)",
)


@concept("more of a kind", weight=0.2).says(
    "||{side} ~have ({n:count} |slightly )?more {kind}(s)?( than {other:object})?",
    "||{other:side} ~have ({n:count} |slightly )?fewer {kind}(s)?( than {side:object})?",
    "||{side} ~have more pieces( than {other:object})?( left| on the board)?",
    "||{other:side} ~have fewer pieces( than {side:object})?( left| on the board)?",
)
def _has_more(context: Context, side: bool, kind: int = 0, n: int | None = None) -> bool:
    """Whether a side has more of a kind, or of all pieces. Raises `Unknown` if "no more" is claimed, or of
    all pieces it depends on whether pawns count."""
    board = context.board
    if n == 0:
        raise Unknown("no more may mean none")
    if kind:
        difference = surplus(board, side)[chess.piece_name(kind)]
        return difference == n if n else difference > 0
    pieces, men = (
        count(board, side, *kinds) > count(board, not side, *kinds) for kinds in (KINDS[1:], KINDS)
    )
    if pieces != men:
        raise Unknown("pieces with or without pawns")
    return pieces


concept("unbalanced material", holds=lambda c: all(surplus(c.board, side) for side in chess.COLORS)).says(
    "||the material ~be (unbalanced|lopsided|imbalanced)"
)


def _has_for(context: Context, side: bool, more: Counter[str], less: Counter[str]) -> bool:
    return describes(more, less, surplus(context.board, side), surplus(context.board, not side))


@_of_balance("one for another").says(
    "{side} ~have {more:units} (for|against) {less:units}",
    "the material is unbalanced: {even:side} ~have {more:units} for {less:units}",
)
def _has_against(context: Context, more: Counter[str], less: Counter[str], **sides: bool) -> bool:
    """What one side has more of than the other, or with all pawns: "a rook and two against a bishop and
    four", or without any: "a rook against a bishop". Raises `Unknown` if pawns are counted, and pieces are there of which nothing is said."""
    (side,) = sides.values()
    armies = list(_with_all_pawns(context.board, side))
    if _names_no_pawns(more, less):
        armies = [[_pieces(army) for army in pair] for pair in armies]
    right = _has_for(context, side, more, less) or any(fits(more, o) and fits(less, t) for o, t in armies)
    if right and {*more, *less} == {"pawn"} and set(+armies[0][0]) != {"pawn"}:
        raise Unknown("pawns alone")
    return right


def _with_all_pawns(board: chess.Board, side: bool) -> Iterator[list[Counter[str]]]:
    """All pawns of both sides, with all pieces, with those that the other has not, and alone."""
    sides = (side, not side)
    whole = [Counter({name: count(board, colour, name) for name in KINDS}) for colour in sides]
    ours, theirs = surplus(board, side), surplus(board, not side)
    nothing: Counter[str] = Counter()
    for pieces in (whole, (ours, theirs), minors_alike(ours, theirs), (nothing, nothing)):
        yield [
            Counter({**army, "pawn": full_army["pawn"]})
            for army, full_army in zip(pieces, whole, strict=True)
        ]


@_of_balance("material ahead").says(
    "{side} ~be ((just|already|still|now|simply|effectively) )?{units} (up|ahead|to the good)",
    "{other:side} ~be ((just|already|still|now) )?{units} (down|behind||short)",
    "{side} ~have an extra {extra:kind}",
    "||{side} ~be ((already|still|now) )?(up|up by|ahead by|leading by) {units}",
    "||{other:side} ~be ((already|still|now) )?(down|down by|behind by) {units}",
    "{side} ~be a {minor:word} (up|ahead)",
    "{other:side} ~be a {minor:word} (down|behind)",
)
def _is_ahead(
    context: Context, side: bool, units: Counter[str] | None = None, minor: str = "", extra: int = 0
) -> bool:
    if not units and minor not in (*KINDS, "piece", ""):
        return False
    claimed_units = units or Counter({minor or chess.piece_name(extra): 1})
    return _has_for(context, side, claimed_units, Counter())


@_of_balance("far ahead").says(
    "{side} ~be (far|well||miles|a long way) ahead (in||on) material",
    "{other:side} ~be (far|well||a long way) behind (in||on) material",
)
def _far_ahead(context: Context, side: bool) -> bool:
    return _lead(context, side) >= _MUCH


@_of_balance("exchange up").says(
    "{side} ~be ((just|already|still|now) )?the exchange (up|ahead||to the good)",
    "{other:side} ~be ((just|already|still|now) )?the exchange (down||behind)",
    "||{side} ~be ((already|still|now) )?(an exchange (up|ahead)|up (the|an) exchange)",
    "||{other:side} ~be ((already|still|now) )?(an exchange (down|behind)|down (the|an) exchange)",
)
def _exchange_up(context: Context, side: bool) -> bool:
    return _has_for(context, side, Counter(["rook"]), Counter(["piece"]))

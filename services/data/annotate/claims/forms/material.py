"""Claims about who has which pieces."""

from collections import Counter

import chess

from services.data.annotate.claims.forms.registry import says
from services.data.annotate.claims.grammar import units_of
from services.data.annotate.claims.scene import Scene
from services.data.annotate.claims.sight import all_of, count, total
from services.data.annotate.claims.token import Token

_KINDS = ("pawn", "knight", "bishop", "rook", "queen")


@says(
    "(the )?material (~be )?(level|even|equal|balanced)( on both sides)?",
    "(the )?material count ~be (level|even|equal)",
    "(nobody|neither side) ~be ahead in material",
)
def material_is_level(scene: Scene) -> bool:
    return total(scene.board, chess.WHITE) == total(scene.board, chess.BLACK)


@says(
    "(both sides|each side) ~have (exactly )?the same (pieces|material|forces)( left)?",
    "the (pieces|forces) ~be the same on both sides",
)
def forces_are_the_same(scene: Scene) -> bool:
    board = scene.board
    return all(count(board, chess.WHITE, name) == count(board, chess.BLACK, name) for name in _KINDS)


def surplus(board: chess.Board, side: chess.Color) -> Counter[str]:
    """What a side has more of than the other, by name."""
    return Counter(
        {
            name: more
            for name in _KINDS
            if (more := count(board, side, name) - count(board, not side, name)) > 0
        }
    )


def minors_alike(ours: Counter[str], theirs: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """Both surpluses with knights and bishops cancelled against each other."""
    ours, theirs = Counter(ours), Counter(theirs)
    for one, other in (("knight", "bishop"), ("bishop", "knight")):
        traded = min(ours[one], theirs[other])
        ours[one] -= traded
        theirs[other] -= traded
    return +ours, +theirs


def fits(units: Counter[str], actual: Counter[str]) -> bool:
    """Whether words such as `a piece and a pawn` describe exactly these."""
    exact = Counter({name: n for name, n in units.items() if name != "piece"})
    if any(actual[name] != n for name, n in exact.items()):
        return False
    rest = actual - exact
    return sum(rest.values()) == units["piece"] and all(name in ("knight", "bishop") for name in rest)


@says(
    "~be ((just|already|still|now|simply|effectively) )?{u} (up|ahead|to the good)",
    "~have an extra {w}",
    subject="side",
)
def is_up(scene: Scene, side: Token, u: str = "", w: str = "") -> bool:
    return _leads(scene, scene.side(side), units_of(u) if u else Counter({w: 1}))


def _leads(scene: Scene, side: chess.Color, units: Counter[str]) -> bool:
    """Whether a side has just this more; a knight against a bishop may be passed over."""
    ours, theirs = surplus(scene.board, side), surplus(scene.board, not side)
    return any(fits(units, more) and not less for more, less in ((ours, theirs), minors_alike(ours, theirs)))


@says(
    "~be ((just|already|still|now|simply|effectively) )?{u} (down|behind|short)",
    subject="side",
)
def is_down(scene: Scene, side: Token, u: str) -> bool:
    return _leads(scene, not scene.side(side), units_of(u))


@says(
    "~be ((just|already|still|now) )?the exchange (up|ahead|to the good)( for {u})?",
    subject="side",
)
def is_exchange_up(scene: Scene, side: Token, u: str = "") -> bool:
    colour = scene.side(side)
    ours, theirs = surplus(scene.board, colour), surplus(scene.board, not colour)
    paid = theirs - Counter({"knight": 1}) if theirs["knight"] else theirs - Counter({"bishop": 1})
    minors = theirs["knight"] + theirs["bishop"]
    return ours == Counter({"rook": 1}) and minors == 1 and paid == units_of(u)


@says("~be ((just|already|still|now) )?the exchange (down|behind)", subject="side")
def is_exchange_down(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    theirs, ours = surplus(scene.board, not colour), surplus(scene.board, colour)
    return theirs == Counter({"rook": 1}) and ours in (Counter({"knight": 1}), Counter({"bishop": 1}))


@says(
    "~have {u} (against|for) {v:u}",
    subject="side",
)
def has_for(scene: Scene, side: Token, u: str, v: str) -> bool:
    colour, board = scene.side(side), scene.board
    ours, theirs = surplus(board, colour), surplus(board, not colour)
    readings = ((ours, theirs), minors_alike(ours, theirs))
    return any(fits(units_of(u), more) and fits(units_of(v), less) for more, less in readings)


@says("the material ~be (unbalanced|lopsided|imbalanced)")
def is_unbalanced(scene: Scene) -> bool:
    return bool(surplus(scene.board, chess.WHITE)) and bool(surplus(scene.board, chess.BLACK))


@says(
    "~be (far|well|miles|a long way) ahead (in|on) material",
    subject="side",
)
def is_far_ahead(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    return total(scene.board, colour) - total(scene.board, not colour) >= 5


@says("~be (far|well|a long way) behind (in|on) material", subject="side")
def is_far_behind(scene: Scene, side: Token) -> bool:
    colour = scene.side(side)
    return total(scene.board, not colour) - total(scene.board, colour) >= 5


def _has_both_shades(board: chess.Board, side: chess.Color) -> bool:
    light = {bool(chess.BB_LIGHT_SQUARES & chess.BB_SQUARES[s]) for s in all_of(board, side, "bishop")}
    return len(light) == 2


@says(
    "~have the (bishop pair|two bishops|pair of bishops)",
    "~own the (bishop pair|two bishops|pair of bishops)",
    subject="side",
)
def has_bishop_pair(scene: Scene, side: Token) -> bool:
    colour, board = scene.side(side), scene.board
    return _has_both_shades(board, colour) and not _has_both_shades(board, not colour)


@says(
    "the (bishop pair|two bishops|pair of bishops) (~belong to|~favour) {s}",
)
def bishop_pair_belongs(scene: Scene, s: Token | None = None, o: Token | None = None) -> bool:
    owner = s or o
    return owner is not None and has_bishop_pair(scene, owner)


@says(
    "there ~be (bishops of opposite colours|opposite-coloured bishops)( on the board)?",
    "the bishops (~be of|run on|travel on) opposite colours",
    "(bishops of opposite colours|opposite-coloured bishops) ~be on the board",
)
def bishops_are_opposite(scene: Scene) -> bool:
    bishops = [all_of(scene.board, side, "bishop") for side in (chess.WHITE, chess.BLACK)]
    if any(len(squares) != 1 for squares in bishops):
        return False
    light = [bool(chess.BB_LIGHT_SQUARES & chess.BB_SQUARES[squares[0]]) for squares in bishops]
    return light[0] != light[1]


@says(
    "(it|this) ~be a (pure )?{kind:w} (ending|endgame)( now)?",
    "only {kind:w}s and pawns ~be left( besides the kings)?",
)
def is_ending(scene: Scene, kind: str) -> bool:
    kind = kind.removesuffix("s")
    board = scene.board
    names = {chess.piece_name(piece.piece_type) for piece in board.piece_map().values()} - {"king", "pawn"}
    if kind in ("pawn", "king"):
        return not names and count(board, chess.WHITE, "pawn") + count(board, chess.BLACK, "pawn") > 0
    return names == {kind} and all(count(board, side, kind) for side in (chess.WHITE, chess.BLACK))


@says("~have a (pure )?{kind:w} (ending|endgame)", subject="side")
def side_has_ending(scene: Scene, side: Token, kind: str) -> bool:
    return is_ending(scene, kind)


@says(
    "(the )?queens ((~be|have come|come|are already) off|have gone)( the board)?",
    "(the )?queens (have been|are) (exchanged|traded|swapped)( off)?",
    "there ~be no queens( left)?( on the board)?",
)
def queens_are_off(scene: Scene) -> bool:
    return not any(all_of(scene.board, side, "queen") for side in (chess.WHITE, chess.BLACK))

"""From the text of an answer to one legal move: UCI first, then SAN, both as people and models write them.

Strict where leniency would pay luck: an ambiguous move, a promotion without its piece, two moves in
one box and the null move are refused, each with an outcome of its own. Case decides between a pawn
of the b-file (`bxc3`) and a bishop (`Bxc3`). Check signs never matter, nor does a piece's "x".
"""

import re
from dataclasses import dataclass

import chess

from rookery.trace import Outcome

_NULL_MOVES = frozenset({"--", "Z0", "z0", "0000", "@@@@"})  # python-chess reads most of them as moves

_COORDINATES = re.compile(r"([a-h][1-8])[-x]?([a-h][1-8])=?\(?([qrbnQRBN]?)\)?")
_CASTLING = re.compile(r"[0Oo]-[0Oo](-[0Oo])?")
_PROMOTION = re.compile(r"(.*[a-h][18])[=/]?\(?([qrbnQRBN])\)?")
_PAWN_TO_LAST_RANK = re.compile(r"P?(?:[a-h][1-8]?[x-]?)?[a-h][18]")

# "+", "#", "!", "?" and their doublings, "$1", "e.p.", a full stop: none of them says which move it is.
_SUFFIX = re.compile(r"(?:[+#!?.,;:]|\$\d{0,3}|\(?e\.?p\.?\)?)\Z")

_GLYPHS = str.maketrans(
    dict(zip("\u2654\u2655\u2656\u2657\u2658\u2659", "KQRBNP", strict=True))
    | dict(zip("\u265a\u265b\u265c\u265d\u265e\u265f", "KQRBNP", strict=True))
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-")
    | {"\u00d7": "x", "\ufe0e": None, "\ufe0f": None}
)

_SPACED_PROMOTION = re.compile(r"([a-h][18])\s*([=/])\s*|([a-h][18])\s+(?=\(?[QRBN]\)?(?:\W|\Z))")
_SPACED_EN_PASSANT = re.compile(r"\s+(?=\(?e\.?p\b)")
_SPACED_ARROW = re.compile(r"(?<=[a-h][1-8])\s*(?:->|[\u2192\u21d2\u27f6])\s*(?=[a-h][1-8])")
_SEPARATORS = re.compile(r"[\s,;|()/]+|\bor\b|\band\b")
_LEADING_NUMBER = re.compile(r"\d{0,3}\.+")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says on a board: a legal `move`, or the `outcome` that says why it is none."""

    outcome: Outcome
    move: chess.Move | None = None


def read_move(text: str, board: chess.Board) -> Reading:
    """Reads `text`, stripped of wrappers, as one move on `board`.

    >>> board = chess.Board()
    >>> read_move("g1f3", board) == read_move("Nf3!?", board)
    True
    >>> read_move("Nf3 or e4", board).outcome
    <Outcome.AMBIGUOUS: 'ambiguous'>
    """
    text = _SPACED_ARROW.sub("-", text.translate(_GLYPHS))
    text = _SPACED_EN_PASSANT.sub("", _SPACED_PROMOTION.sub(r"\1\2\3", text))
    readings = [_read_one(text, board)]
    if readings[0].outcome is Outcome.UNPARSABLE:
        readings = [_read_one(part, board) for part in _parts(text)] or readings
    return _agree(readings)


def _parts(text: str) -> list[str]:
    parts = (_LEADING_NUMBER.sub("", part) for part in _SEPARATORS.split(text))
    return [part for part in parts if part and _SUFFIX.sub("", part)]


def _agree(readings: list[Reading]) -> Reading:
    """One reading of all parts: words beside a move spoil it, a second move makes it ambiguous."""
    said = [reading for reading in readings if reading.outcome is not Outcome.UNPARSABLE]
    if len(said) > 1 and any(other != said[0] or other.move is None for other in said[1:]):
        return Reading(Outcome.AMBIGUOUS)
    if len(said) < len(readings):
        return Reading(Outcome.UNPARSABLE)
    return said[0]


def _read_one(text: str, board: chess.Board) -> Reading:
    text = _without_suffixes(text)
    if text in _NULL_MOVES:
        return Reading(Outcome.NULL_MOVE)
    if match := _COORDINATES.fullmatch(text):
        return _read_coordinates("".join(match.groups()).lower(), board)
    return _read_san(_canonical_san(text), board)


def _without_suffixes(text: str) -> str:
    while match := _SUFFIX.search(text):
        text = text[: match.start()].rstrip()
    return text


def _read_coordinates(uci: str, board: chess.Board) -> Reading:
    if uci[:2] == uci[2:4]:
        return Reading(Outcome.ILLEGAL)
    move = chess.Move.from_uci(uci)
    if board.is_castling(move):
        return _read_castling(uci, board)
    if board.is_legal(move):
        return Reading(Outcome.LEGAL, move)
    lacks_piece = len(uci) == 4 and board.is_legal(chess.Move.from_uci(f"{uci}q"))
    return Reading(Outcome.AMBIGUOUS if lacks_piece else Outcome.ILLEGAL)


def _read_castling(uci: str, board: chess.Board) -> Reading:
    try:
        return Reading(Outcome.LEGAL, board.parse_uci(uci))  # e1g1 and e1h1 are one move
    except chess.IllegalMoveError:
        return Reading(Outcome.ILLEGAL)


def _canonical_san(text: str) -> str:
    """SAN as python-chess wants it: O-O, =Q, capital piece letters, x for takes."""
    if match := _CASTLING.fullmatch(text):
        return "O-O-O" if match[1] else "O-O"
    if match := _PROMOTION.fullmatch(text):
        text = f"{match[1]}={match[2].upper()}"
    text = text.replace(":", "x")
    return text[:1].upper() + text[1:] if text[:1] in set("knqr") else text


def _read_san(san: str, board: chess.Board) -> Reading:
    try:
        move = board.parse_san(san.removeprefix("P"))
    except chess.AmbiguousMoveError:
        return Reading(Outcome.AMBIGUOUS)
    except chess.IllegalMoveError:
        lacks_piece = _PAWN_TO_LAST_RANK.fullmatch(san) and _read_san(f"{san}=Q", board).move
        return Reading(Outcome.AMBIGUOUS if lacks_piece else Outcome.ILLEGAL)
    except ValueError:
        return Reading(Outcome.UNPARSABLE)
    return Reading(Outcome.ILLEGAL) if _contradicts(san, move, board) else Reading(Outcome.LEGAL, move)


def _contradicts(san: str, move: chess.Move, board: chess.Board) -> bool:
    """Whether `san` calls a piece a pawn, or lets a pawn take nothing; python-chess overlooks both."""
    if board.piece_type_at(move.from_square) != chess.PAWN:
        return san.startswith("P")
    return "x" in san and not board.is_capture(move)

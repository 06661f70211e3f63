"""Reads the text of an answer as one legal move: first as UCI, then as SAN, as people and models write them.

Answers that could earn a reward by luck are refused: an ambiguous move, a promotion without its piece and two
moves in one box are `ambiguous`, the null move is `null_move`. A lower-case `b` is a pawn of the b-file
(`bxc3`), a capital one a bishop (`Bxc3`). Check signs are ignored, and so is the "x" of a piece's move. A
text that is UCI with one character wrong or missing is not read as SAN, even if python-chess would accept it.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import chess

from rookery.pgn.rawgame import GLYPHS
from rookery.trace import Outcome

VERSION = 4
"""Increased whenever this module or `parse` reads a text differently. It is a part of `reward_version`."""

_NULL_MOVES = frozenset({"--", "Z0", "z0", "0000", "@@@@"})  # python-chess reads most of them as moves

_COORDINATES = re.compile(r"([a-h][1-8])[-x]?([a-h][1-8])=?\(?([qrbnQRBN]?)\)?")
_KING_MOVE = re.compile(r"[Kk]([a-h][1-8])-?([a-h][1-8])")

# UCI with one character wrong or missing, which python-chess would read as SAN: "q3a4" as a queen on the
# third rank; "2e4", "ee4" and "e-e4" as pawn moves, though SAN never names a pawn's rank, and its file only
# in captures.
_MISTYPED_UCI = re.compile(r"(?:[knqr][1-8]|P?(?:[1-8]|[a-h]-|([a-h])(?=\1)))[-x:]?[a-h][1-8].*")

_CASTLING = re.compile(r"[0Oo]-[0Oo](-[0Oo])?")
_PROMOTION = re.compile(r"(.*[a-h][18])[=/]?\(?([qrbnQRBN])\)?")
_DESTINATION = re.compile(r"[a-h][1-8](?:=[QRBN])?\Z")
_PAWN_TO_LAST_RANK = re.compile(r"P?(?:[a-h][1-8]?[x-]?)?[a-h][18]")

# "+", "#", "!", "?" and their doublings, "$1", "e.p.", a full stop: none of them changes which move is meant.
_SUFFIX = re.compile(r"(?:[+#!?.,;:]|\$\d{0,3}|\(?e\.?p\.?\)?)\Z")

_SPACED_PROMOTION = re.compile(r"([a-h][18])\s*([=/])\s*|([a-h][18])\s+(?=\(?[QRBN]\)?(?:\W|\Z))")
_SPACED_EN_PASSANT = re.compile(r"(?<!\s)\s+(?=\(?e\.?p\b)")
_SPACED_ARROW = re.compile(r"(?<=[a-h][1-8])\s*(?:->|[\u2192\u21d2\u27f6])\s*(?=[a-h][1-8])")
_SEPARATORS = re.compile(r"[\s,;|()/]+|\bor\b|\band\b")
_LEADING_NUMBER = re.compile(r"\A\d{0,3}\.+")

_UCI = r"[a-h][1-8][a-h][1-8][qrbn]?"
_NAMED_MOVE = re.compile(
    rf"(?<![A-Za-z0-9-])(?:({_UCI})(?:(?: {_UCI}){{0,9}} \d{{1,3}}%)?"
    r"|((?:O-O(?:-O)?|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|(?:[a-h]x)?[a-h][1-8](?:=[QRBN])?)[+#]?))(?![A-Za-z0-9-])"
)


@dataclass(frozen=True, slots=True)
class MoveReading:
    """What an answer says on a board: a legal `move`, or no move and the `outcome` that says why."""

    outcome: Outcome
    move: chess.Move | None = None


def read_move(text: str, board: chess.Board) -> MoveReading:
    """Reads `text` as one move on `board`. `parse.peel` has taken off its wrappers.

    >>> board = chess.Board()
    >>> read_move("g1f3", board) == read_move("Nf3!?", board)
    True
    >>> read_move("Nf3 or e4", board).outcome
    <Outcome.AMBIGUOUS: 'ambiguous'>
    """
    if not (text.isascii() and text.isalnum()):
        text = _SPACED_ARROW.sub("-", text.translate(GLYPHS))
        text = _SPACED_EN_PASSANT.sub("", _SPACED_PROMOTION.sub(r"\1\2\3", text))
    reading = _read_part(text, board)
    if reading.outcome is not Outcome.UNPARSABLE:
        return reading
    parts = (_LEADING_NUMBER.sub("", part) for part in _SEPARATORS.split(text))
    return _combine({part: _read_part(part, board) for part in parts if _SUFFIX.sub("", part)}, board)


@dataclass(frozen=True, slots=True)
class NamedMove:
    """A move that prose names at `text[start:end]`, in UCI. `move` is None if it is illegal. A line with a
    value, such as `e2e4 e7e5 53%`, is one name of its first move."""

    uci: str
    start: int
    end: int
    move: chess.Move | None


def named_moves(text: str, board: chess.Board) -> Iterator[NamedMove]:
    """The moves that prose names, in the order of the text and with repetitions.

    Moves in UCI always count. Moves in SAN count only if they are legal on `board`, because a text also names
    replies and squares. What follows the first move of a line with a value is no name.

    >>> [named.uci for named in named_moves("e4 or Nf3, not Nf6 or e2e5: e4!", chess.Board())]
    ['e2e4', 'g1f3', 'e2e5', 'e2e4']
    >>> [named.uci for named in named_moves("e2e4 e7e5 53% g1f3 d7d5 52%", chess.Board())]
    ['e2e4', 'g1f3']
    """
    read: dict[str, chess.Move | None] = {}
    for match in _NAMED_MOVE.finditer(text):
        named = match[1] or match[2]
        if named not in read:
            read[named] = read_move(named, board).move
        move = read[named]
        if uci := match[1] or (move.uci() if move else ""):
            yield NamedMove(uci, match.start(), match.end(), move)


def _combine(readings: dict[str, MoveReading], board: chess.Board) -> MoveReading:
    """The reading of all parts together: UNPARSABLE with other words, AMBIGUOUS with a second move."""
    moves = {part: reading for part, reading in readings.items() if reading.outcome is not Outcome.UNPARSABLE}
    first, *rest = moves.values() or [MoveReading(Outcome.UNPARSABLE)]
    if any(reading != first for reading in rest) or (
        first.outcome is Outcome.ILLEGAL and _are_different(moves, board)
    ):
        return MoveReading(Outcome.AMBIGUOUS)
    return first if len(moves) == len(readings) else MoveReading(Outcome.UNPARSABLE)


def _are_different(illegal: Iterable[str], board: chess.Board) -> bool:
    """Whether the illegal moves are different moves: they name different pieces, origins or destinations."""
    fields = zip(*(_move_fields(text, board) for text in illegal), strict=True)
    return any(len({*field} - {None}) > 1 for field in fields)


def _move_fields(text: str, board: chess.Board) -> tuple[str | None, str | None, str]:
    """The piece, origin and destination that `text` names. What it does not name is None.

    >>> _move_fields("d5d6", chess.Board()), _move_fields("Nbd6", chess.Board())
    ((None, 'd5', 'd6'), ('N', None, 'd6'))
    """
    text = _without_suffixes(text)
    if match := _COORDINATES.fullmatch(text):
        piece = board.piece_at(chess.parse_square(match[1]))
        promotion = match[3] and f"={match[3].upper()}"
        return piece.symbol().upper() if piece else None, match[1], match[2] + promotion
    san = _canonical_san(text)
    if _CASTLING.fullmatch(san):
        return "K", None, ("g" if san == "O-O" else "c") + ("1" if board.turn else "8")
    destination = _DESTINATION.search(san)
    return san[0] if san[0] in "KQRBN" else "P", None, destination[0] if destination else san


def _read_part(text: str, board: chess.Board) -> MoveReading:
    text = _without_suffixes(text)
    if text in _NULL_MOVES:
        return MoveReading(Outcome.NULL_MOVE)
    if match := _COORDINATES.fullmatch(text):
        return _read_coordinates("".join(match.groups()).lower(), board)
    if (match := _KING_MOVE.fullmatch(text)) and match[1] != match[2]:
        move = chess.Move.from_uci("".join(match.groups()))
        if board.is_castling(move):  # which python-chess does not read in long algebraic notation
            return _read_coordinates(move.uci(), board)
    if _MISTYPED_UCI.fullmatch(text):
        return MoveReading(Outcome.UNPARSABLE)
    return _read_san(_canonical_san(text), board)


def _without_suffixes(text: str) -> str:
    while match := _SUFFIX.search(text):
        text = text[: match.start()].rstrip()
    return text


def _read_coordinates(uci: str, board: chess.Board) -> MoveReading:
    if uci[:2] == uci[2:4]:
        return MoveReading(Outcome.ILLEGAL)
    move = chess.Move.from_uci(uci)
    if board.is_castling(move):
        try:
            return MoveReading(Outcome.LEGAL, board.parse_uci(uci))  # e1g1 and e1h1 are one move
        except chess.IllegalMoveError:
            return MoveReading(Outcome.ILLEGAL)
    if board.is_legal(move):
        return MoveReading(Outcome.LEGAL, move)
    lacks_piece = len(uci) == 4 and board.is_legal(chess.Move.from_uci(f"{uci}q"))
    return MoveReading(Outcome.AMBIGUOUS if lacks_piece else Outcome.ILLEGAL)


def _canonical_san(text: str) -> str:
    """SAN in python-chess's form: O-O, =Q, capital piece letters, x for captures."""
    if match := _CASTLING.fullmatch(text):
        return "O-O-O" if match[1] else "O-O"
    if match := _PROMOTION.fullmatch(text):
        text = f"{match[1]}={match[2].upper()}"
    text = text.replace(":", "x")
    return text[:1].upper() + text[1:] if text[:1] in set("knqr") else text


def _read_san(san: str, board: chess.Board) -> MoveReading:
    try:
        move = board.parse_san(san.removeprefix("P"))
    except chess.AmbiguousMoveError:
        return MoveReading(Outcome.AMBIGUOUS)
    except chess.IllegalMoveError:
        lacks_piece = _PAWN_TO_LAST_RANK.fullmatch(san) and _read_san(f"{san}=Q", board).move
        return MoveReading(Outcome.AMBIGUOUS if lacks_piece else Outcome.ILLEGAL)
    except ValueError:
        return MoveReading(Outcome.UNPARSABLE)
    return (
        MoveReading(Outcome.ILLEGAL) if _contradicts(san, move, board) else MoveReading(Outcome.LEGAL, move)
    )


def _contradicts(san: str, move: chess.Move, board: chess.Board) -> bool:
    """Whether `san` calls a piece a pawn, or has a pawn capture nothing. python-chess accepts both."""
    if board.piece_type_at(move.from_square) != chess.PAWN:
        return san.startswith("P")
    return "x" in san and not board.is_capture(move)

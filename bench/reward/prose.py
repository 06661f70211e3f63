"""What a text names that the rules of chess can check, and whether it is so: without the reader's code.

`checkable` counts sentences that name a square, a piece with its square, a move or a count, and assert it.
`label` decides, with python-chess alone, the words of a claim in the forms that it knows, and no others.
The reader is measured against both.
"""

import contextlib
import re
from collections.abc import Iterator

import chess

_BREAK = re.compile(r"(?<=[.!?:])\s+|\n+")
_NAMES = re.compile(
    r"\b[a-h][1-8](?:[a-h][1-8][qrbn]?)?\b|\b[KQRBN][a-h]?[1-8]?x?[a-h][1-8]\b|\bO-O(?:-O)?\b|"
    r"\b(?:one|two|three|four|five|six|seven|eight|\d) (?:\w+ )?(?:pawn|knight|bishop|rook|queen)s?\b"
)
_OPEN = re.compile(
    r"\b(?:if|unless|whether|suppose|assuming|would|could|might|may|should|can|cannot|will|potentially|possibly|"
    r"perhaps|likely)\b|\?",
    re.IGNORECASE,
)
_PLACED = re.compile(
    r"(?P<owner>\b(?:white|black)(?:'s)?(?: (?:also )?has an?)? )?(?:[a-z-]+ )??"
    r"(?P<name>king|queen|rook|bishop|knight|pawn) "
    r"(?:(?:is |currently |located )*(?:on|at) (?:square )?|\()['`*]*(?P<square>[a-h][1-8])\b",
    re.IGNORECASE,
)
_ACTS = re.compile(
    r"(?:king|queen|rook|bishop|knight|pawn) (?:on|at|\() ?['`*]*(?P<origin>[a-h][1-8])[)'`*]* (?:\w+ )?"
    r"(?P<verb>attack|hit|target|control|cover|guard|defend|protect|support|eye|influence)s? [^.]*?"
    r"(?P<square>[a-h][1-8])\b"
)
_AMBIGUOUS = re.compile(
    r".*\b(?:captur|tak|plac|trad)\w+ |(?:our|my|his|her|their)\b|.{0,30}(?:-squared|\bno|\bnot) ",
    re.IGNORECASE,
)
_EMPTY = re.compile(
    r"^['`*]*(?P<square>[a-h][1-8])['`*]* is (?:\w+ )?(?P<not>not )?"
    r"(?P<what>empty|vacant|unoccupied|occupied)$"
)
_MOVE = re.compile(
    r"^['`*]*(?P<move>[a-h][1-8][a-h][1-8][qrbn]?|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|O-O(?:-O)?)[+#]?['`*]*$"
)
_WALK = re.compile(
    r"^(?:from )?['`*]*(?P<origin>[a-h][1-8])['`*]* (?:to|->) ['`*]*(?P<goal>[a-h][1-8])['`*]*$",
    re.IGNORECASE,
)


def checkable(text: str) -> Iterator[tuple[int, int, bool]]:
    """Places of sentences that name something on the board, and whether they assert it: no condition, no
    question, no possibility."""
    start = 0
    for stop in [match.span() for match in _BREAK.finditer(text)] + [(len(text), len(text))]:
        words = text[start : stop[0]]
        if _NAMES.search(words) and re.search(r"[A-Za-z]{2}|->|^\W*\w{4,5}\W*$", words):
            yield start, stop[0], not _OPEN.search(words)
        start = stop[1]


def label(fen: str, words: str) -> bool | None:
    """Whether the words of a claim are so; None if they have another form."""
    board, words = chess.Board(fen), words.strip(" .,:;")
    if match := _MOVE.match(words):
        return _is_legal(board, match["move"]) or None  # else it may name a piece, or another position
    if match := _WALK.match(words):
        return _is_legal(board, match["origin"] + match["goal"])
    if match := _EMPTY.match(words):
        empty = board.piece_at(chess.parse_square(match["square"])) is None
        return empty == ((match["what"] != "occupied") != bool(match["not"]))
    return _placed(board, words)


def _placed(board: chess.Board, words: str) -> bool | None:
    """Whether the pieces named stand where the words say, and the first one does what they say."""
    places = list(_PLACED.finditer(words))
    if not places or _AMBIGUOUS.match(words) or (len(places) > 1 and places[0]["owner"]):
        return None
    placed = all(_stands(board, place) for place in places)
    if match := _ACTS.search(words):
        origin, square = (chess.parse_square(match[name]) for name in ("origin", "square"))
        return placed and square in board.attacks(origin)
    return placed if len(words) <= places[-1].end() + 2 and places[0].start() <= 24 else None


def _stands(board: chess.Board, place: re.Match[str]) -> bool:
    piece = board.piece_at(chess.parse_square(place["square"]))
    owner = (place["owner"] or "").lower().split(" ")[0].removesuffix("'s")
    right_side = not owner or (piece is not None and piece.color == (owner == "white"))
    return piece is not None and chess.piece_name(piece.piece_type) == place["name"].lower() and right_side


def _is_legal(board: chess.Board, move: str) -> bool:
    """Whether either side can play it at its turn."""
    for turn in chess.COLORS:
        board.turn = turn
        with contextlib.suppress(ValueError):
            (board.parse_uci if re.fullmatch(r"[a-h][1-8][a-h][1-8][qrbn]?", move) else board.parse_san)(move)
            return True
    return False

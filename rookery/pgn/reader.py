"""Reads the moves of a game: everything in Rookery that reads PGN reads it here.

python-chess decides which moves are legal. Its own reader ignores words that it does not know, and so takes
`Sf3` or `♘f3` for the pawn move `f3`. Here, whatever is not understood is a `Defect` that is named. Figurines
are read as pieces, but not the piece letters of other languages: `D` or `T` would have to be guessed.

Of side lines, only the comments are read, and only if somebody asks for them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import chess
import chess.pgn

from rookery.encoding import UTF16_MARKS, decode
from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.pgn.rawgame import GLYPHS, Defect
from rookery.pgn.splitter import split

STANDARD_NAMES = frozenset(("", "?", "standard", "chess", "normal", "from position"))
CHESS960_NAMES = frozenset(("chess960", "chess 960", "fischerandom", "fischerrandom", "fischer random"))
"""Values of the `Variant` tag in lower case; the same ones that python-chess recognises."""

_DETAIL_CHARS = 300
_WORD_CHARS = 40
_END = r"[\s(){}]"

# Tags, comments and blank lines before the moves.
_HEAD = re.compile(r"(?:[\[;%][^\n]*(?:\n|\Z)|[^\S\n]*\n)*")
# A comment, or what is between two.
_PART = re.compile(r"(\{[^}]*\}?|;[^\n]*)|[^{;]+")
# The words that python-chess reads. Between them are move numbers, dots and check signs.
_WORD = re.compile(
    r"""
    (?P<move>
        [NBKRQP]?[a-h]?[1-8]?[-x]?[a-h][1-8](?:=?[nbrqkNBRQK])?
        |[PNBRQK]?@[a-h][1-8]
        |--|Z0|0000|@@@@
        |O-O(?:-O)?|0-0(?:-0)?
    )
    |(?P<comment>\{[^}]*\}?|;[^\n]*)
    |(?P<lost>(?<![^\s.])[^\w\s.(){}\[\]$*%;\u2026\uff0e](?=[a-hx]))  # what is left of a piece: ?f3
    |(?P<mark>\$[0-9]+|[?!]+|e\.?p\b\.?|^%[^\n]*)
    |(?P<opening>\()
    |(?P<closing>\))
    |(?P<result>\*|1-0|0-1|1/2-1/2|½-½)
    |(?P<unread>[^\W\d_]|[^\x00-\x7f\s\u2026\uff0e](?=[a-hx\d-]))  # a letter, or a symbol before a square
    """,
    re.VERBOSE | re.MULTILINE,
)


class Unreadable(ValueError):
    """Why a game, or one of its side lines, is read no further."""

    def __init__(self, defect: Defect, detail: str) -> None:
        self.defect = defect
        self.detail = detail[:_DETAIL_CHARS]
        super().__init__(f"{defect}: {self.detail}")


@dataclass(frozen=True, slots=True)
class PgnGame:
    """The tags of a game, and the board after the last move of the main line that could be read."""

    tags: Mapping[str, str]
    board: chess.Board
    faults: tuple[Unreadable, ...]
    """Empty if all of the game was read."""

    @property
    def moves(self) -> list[chess.Move]:
        return self.board.move_stack


OnMove = Callable[[chess.Board, chess.Move], None]
OnComment = Callable[[chess.Board, str], None]


def read_games(data: bytes, *, on_comment: OnComment | None = None) -> Iterator[PgnGame]:
    """The games of a file, in order. See `read_game`."""
    for raw in split(decode(data).encode() if data.startswith(UTF16_MARKS) else data):
        if raw.defect is Defect.TOO_LONG:
            yield PgnGame({}, chess.Board(), (Unreadable(raw.defect, raw.detail),))
        else:
            yield read_game(decode(raw.data), on_comment=on_comment)


def read_game(
    text: str,
    *,
    chess960: bool = False,
    max_plies: int | None = None,
    on_move: OnMove | None = None,
    on_comment: OnComment | None = None,
) -> PgnGame:
    """Reads the text of one game, up to the first fault in its main line.

    `on_move` is called with the board before each move of the main line, `on_comment` with the board that a
    comment is about; the boards change afterwards. Side lines are read if `on_comment` is given. A fault ends
    the reading of its side line only.

    Chess960 is a defect unless `chess960` is true, all other variants are one always.

    >>> [move.uci() for move in read_game("1. e4 e5 2. ♘f3 (2. f4) 2... ♞c6 *").moves]
    ['e2e4', 'e7e5', 'g1f3', 'b8c6']
    >>> str(*read_game("1. e4 e5 2. Sf3 Sc6 *").faults)
    "bad_move: no move: 'Sf3'"
    """
    text = text.removeprefix("\ufeff")
    head = _HEAD.match(text)
    start = head.end() if head else 0
    lines = map(chess.pgn.TAG_REGEX.match, text[:start].splitlines())
    tags = {tag[1]: tag[2] for tag in lines if tag}
    try:
        for name, defect in (("FEN", Defect.BAD_START), ("Variant", Defect.VARIANT)):
            if name not in tags and f"[{name}" in text[:start]:
                raise Unreadable(defect, f"a tag {name} that is not closed, or not on a line of its own")
        board = _start_board(tags, chess960=chess960)
    except Unreadable as fault:
        return PgnGame(tags, chess.Board(), (fault,))
    moves = text[start:]
    if not moves.isascii():
        moves = _PART.sub(lambda part: part[0] if part[1] else part[0].translate(GLYPHS), moves)
    return PgnGame(
        tags,
        board,
        tuple(_MovesReader(board, max_plies=max_plies, on_move=on_move, on_comment=on_comment).read(moves)),
    )


def _start_board(tags: Mapping[str, str], *, chess960: bool) -> chess.Board:
    variant = tags.get("Variant", "").lower()
    is_chess960 = variant in CHESS960_NAMES
    if variant not in STANDARD_NAMES and not (is_chess960 and chess960):
        raise Unreadable(Defect.VARIANT, f"variant {tags['Variant']!r}")
    fen = tags.get("FEN", chess.STARTING_FEN)
    try:
        board = read_fen(fen, chess960=True)
    except InvalidInput as error:
        raise Unreadable(Defect.BAD_START, str(error)) from error
    board.chess960 |= is_chess960
    if board.chess960 and not chess960:
        raise Unreadable(Defect.VARIANT, f"Chess960 castling rights in {fen!r}")
    return board


class _MovesReader:
    """Plays the moves of a text on `board`, and on a copy of it those of side lines."""

    def __init__(
        self,
        board: chess.Board,
        *,
        max_plies: int | None,
        on_move: OnMove | None,
        on_comment: OnComment | None,
    ) -> None:
        # The boards of the main line and of each open side line; None where nothing is read.
        self._boards: list[chess.Board | None] = [board]
        self._max_plies = max_plies
        self._on_move = on_move
        self._on_comment = on_comment
        self._ended = False

    def read(self, text: str) -> Iterator[Unreadable]:
        """Yields the faults."""
        for word in _WORD.finditer(text):
            try:
                self._read_word(word)
            except Unreadable as fault:
                yield fault
                if len(self._boards) == 1 or not self._on_comment:
                    return
                self._boards[-1] = None
        if len(self._boards) > 1:
            yield Unreadable(Defect.OPEN_VARIATION, "a side line is never closed")

    def _read_word(self, word: re.Match[str]) -> None:
        board = self._boards[-1]
        match word.lastgroup:
            case "move" if board is not None:
                self._play(word[0], board)
            case "comment":
                self._read_comment(word[0], board)
            case "opening":
                self._boards.append(_before_last_move(board) if self._on_comment else None)
            case "closing":
                if len(self._boards) == 1:
                    raise Unreadable(Defect.OPEN_VARIATION, "a side line is closed that was never opened")
                self._boards.pop()
            case "result":
                self._ended = self._ended or len(self._boards) == 1
            case "unread" | "lost" if board is not None or not self._on_comment:
                text = word.string[word.start() : word.start() + _WORD_CHARS]
                raise Unreadable(Defect.BAD_MOVE, f"no move: {re.split(_END, text)[0]!r}")

    def _play(self, san: str, board: chess.Board) -> None:
        try:
            move = board.parse_san(san.removeprefix("P"))
        except ValueError as error:
            raise Unreadable(Defect.BAD_MOVE, str(error)) from error
        if not move:
            raise Unreadable(Defect.NULL_MOVE, f"null move in {board.fen()!r}")
        if san[0] in "x-" or (san[0] == "P" and board.piece_type_at(move.from_square) != chess.PAWN):
            raise Unreadable(Defect.BAD_MOVE, f"no pawn move: {san!r} in {board.fen()!r}")
        if len(self._boards) == 1:
            if self._ended:
                raise Unreadable(Defect.BAD_MOVE, f"{move.uci()!r} after the result")
            if len(board.move_stack) == self._max_plies:
                raise Unreadable(Defect.TOO_LONG, f"more than {self._max_plies} half-moves")
            if self._on_move:
                self._on_move(board, move)
        board.push(move)

    def _read_comment(self, comment: str, board: chess.Board | None) -> None:
        if comment.startswith(";"):
            return
        if not comment.endswith("}"):
            raise Unreadable(Defect.OPEN_COMMENT, "a comment is never closed")
        if board is not None and self._on_comment:
            self._on_comment(board, comment[1:-1])


def _before_last_move(board: chess.Board | None) -> chess.Board | None:
    """A copy of the board before its last move, without the moves before the previous one."""
    if board is None or not board.move_stack:
        return None
    copy = board.copy(stack=2)
    copy.pop()
    return copy

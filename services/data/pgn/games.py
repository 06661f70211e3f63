"""Parses the text of a game to a record that can be replayed in microseconds.

python-chess reads the moves. A game with any error is skipped as a whole, with the reason, because what
remains of it may belong to another game. Games take two bytes per move, so that all games of a sample-sized
file fit in memory.
"""

import io
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Literal

import chess
import chess.pgn

from rookery.trace import Phase, Position
from services.data.pgn.facts import read_facts
from services.data.pgn.files import Source
from services.data.pgn.rawgame import Defect, RawGame, without_en_passant

Split = Literal["train", "heldout", "all"]

_DETAIL_CHARS = 300

LAST_MOVES = 10
"""The most moves of the game that a `Position` carries."""

OPENING_PLIES = 24
"""A position belongs to the opening only if fewer half-moves than this come before it."""

ENDGAME_PIECES = 6
"""The endgame begins with this many pieces of both sides, not counting kings and pawns.

Source: `majorsAndMinors <= 6` of Lichess's game divider (scalachess, `Divider.scala`).
"""

FIRST_HELDOUT = -(-(19 << 64) // 20)
"""The smallest held-out game id, as a number."""

PHASES = (Phase.OPENING, Phase.MIDDLEGAME, Phase.ENDGAME)
OVER = 255
"""Stands in place of a phase for positions after the rules had ended the game."""

STANDARD_NAMES = frozenset(("", "?", "standard", "chess", "normal", "from position"))
CHESS960_NAMES = frozenset(("chess960", "chess 960", "fischerandom", "fischerrandom", "fischer random"))
"""Values of the `Variant` tag in lower case; the same ones that python-chess recognises."""

# Whatever has letters and remains once comments, tags and the words that python-chess reads are removed.
_UNREAD = re.compile(r"\S*[A-Za-z]\S*")
_NOT_MOVETEXT = re.compile(r"\{[^}]*\}|;[^\n]*|^\[[^\n]*$|\be\.p\.", re.MULTILINE)
# Numeric annotation glyphs end at 255. python-chess fails on numbers too long for Python to convert.
_ENDLESS_NAG = re.compile(r"^(\[.*)|\$\d{4,}", re.MULTILINE)
FIVEFOLD_PLIES = 16
"""A position cannot have occurred five times after fewer half-moves without a capture or pawn move."""


@dataclass(frozen=True, slots=True)
class SkippedGame:
    """A game that was skipped, and why. `offset` counts uncompressed bytes of the file."""

    path: str
    number: int
    defect: Defect
    detail: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.path} game {self.number} at byte {self.offset}: {self.defect}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Game:
    """A game without errors: `moves` has 16 bits per move, `phases` one byte per ply.

    Ply i is the position before move i, so the position after the last move has no ply. In Chess960,
    castling is encoded as the king taking its own rook.
    """

    source: str
    number: int
    id: str
    start_fen: str
    moves: "array[int]"
    phases: bytes
    white_elo: int | None = None
    black_elo: int | None = None
    chess960: bool = False

    def plies(self, phase: Phase) -> list[int]:
        """The plies of a phase, without terminal positions."""
        code = PHASES.index(phase)
        return [ply for ply, value in enumerate(self.phases) if value == code]

    def replay(self) -> Iterator[tuple[int, chess.Board, chess.Move]]:
        """Yields each ply, its board and the move played. The board changes in place: copy it to keep it."""
        board = self._start()
        for ply, code in enumerate(self.moves):
            move = _unpack(code)
            yield ply, board, move
            board.push(move)

    def board(self, ply: int) -> chess.Board:
        """The board before move `ply`, with the moves so far on its stack."""
        board = self._start()
        for code in self.moves[:ply]:
            board.push(_unpack(code))
        return board

    def position(self, ply: int) -> Position:
        """The position before move `ply`, which must be one of `plies`."""
        return self.position_on(self.board(ply), ply)

    def position_on(self, board: chess.Board, ply: int) -> Position:
        """Like `position`, if its board is already known."""
        return self.position_with(board.fen(), ply)

    def position_with(self, fen: str, ply: int) -> Position:
        """Like `position`, if its FEN is already known."""
        return Position(
            id=f"{self.source}:{self.number}:{ply}",
            fen=fen,
            ply=ply,
            phase=PHASES[self.phases[ply]],
            game_id=self.id,
            last_moves=tuple(map(_uci, self.moves[max(0, ply - LAST_MOVES) : ply])),
            white_elo=self.white_elo,
            black_elo=self.black_elo,
        )

    def _start(self) -> chess.Board:
        return chess.Board(self.start_fen, chess960=self.chess960)


def in_split(game_id: str, split: Split) -> bool:
    """Whether a game belongs to a split. Games whose id is in the last twentieth of all ids are held out.

    The id is a hash of the moves, so copies of a game in different files belong to the same split.

    >>> in_split("f333333333333334", "heldout"), in_split("f333333333333333", "heldout")
    (True, False)
    """
    heldout = int(game_id, 16) >= FIRST_HELDOUT
    return split == "all" or heldout == (split == "heldout")


def parse(raw: RawGame, source: Source, *, chess960: bool = False) -> Game | SkippedGame:
    """Parses a game, or returns why it is skipped. Chess960 games are skipped unless `chess960` is true."""
    raw = raw.judged()
    if raw.defect:
        return skip(raw, source, raw.defect, raw.detail)
    raw = raw._replace(data=without_en_passant(raw.data))
    text = _ENDLESS_NAG.sub(lambda found: found[1] or " ", raw.text)
    visitor = chess.pgn.read_game(io.StringIO(text), Visitor=partial(_Recorder, chess960))
    if visitor is None:
        return skip(raw, source, Defect.NO_MOVES, "no text of a game")
    defect = visitor.defect
    if defect is None or defect[0] is Defect.BAD_MOVE:
        defect = _unread(text) or defect
    if defect:
        return skip(raw, source, *defect)
    facts = read_facts(raw)
    return Game(
        source=source.sha256[:8],
        number=raw.number,
        id=raw.id,
        start_fen=visitor.start_fen,
        moves=visitor.moves,
        phases=bytes(visitor.phases),
        white_elo=facts.white_elo,
        black_elo=facts.black_elo,
        chess960=visitor.chess960,
    )


def skip(raw: RawGame, source: Source, defect: Defect, detail: str) -> SkippedGame:
    """The record of a skipped game."""
    return SkippedGame(source.path, raw.number, defect, detail[:_DETAIL_CHARS], raw.offset)


def phase_of(board: chess.Board) -> Phase:
    """The phase of a position, by the pieces left and the move number.

    >>> phase_of(chess.Board()).value, phase_of(chess.Board("4k3/8/8/8/8/8/4P3/R3K3 w Q - 0 9")).value
    ('opening', 'endgame')
    """
    pieces = (board.knights | board.bishops | board.rooks | board.queens).bit_count()
    if pieces <= ENDGAME_PIECES:
        return Phase.ENDGAME
    return Phase.OPENING if board.ply() < OPENING_PLIES else Phase.MIDDLEGAME


def _unread(text: str) -> tuple[Defect, str] | None:
    """Finds words that python-chess silently ignores; without `Qa9`, later moves go to the wrong side."""
    rest = chess.pgn.MOVETEXT_REGEX.sub(" ", _NOT_MOVETEXT.sub("", text))
    word = _UNREAD.search(rest)
    return (Defect.BAD_MOVE, f"no move: {word[0][:40]!r}") if word else None


class _Recorder(chess.pgn.BaseVisitor["_Recorder"]):
    """Records the main line and its first error."""

    def __init__(self, allow_chess960: bool) -> None:
        self.tags: dict[str, str] = {}
        self.chess960 = False
        self.start_fen = ""
        self.moves = array("H")
        self.phases = bytearray()
        self.defect: tuple[Defect, str] | None = None
        self._allow_chess960 = allow_chess960
        self._ended = False

    def visit_header(self, tagname: str, tagvalue: str) -> None:
        self.tags[tagname] = tagvalue

    def end_headers(self) -> chess.pgn.SkipType | None:
        variant = self.tags.get("Variant", "")
        if variant.lower() in (CHESS960_NAMES if self._allow_chess960 else ()):
            return None
        if variant.lower() in STANDARD_NAMES:
            return None
        return self._give_up(Defect.VARIANT, f"variant {variant!r}")

    def visit_board(self, board: chess.Board) -> None:
        if self.start_fen:
            return
        self.start_fen = board.fen()
        self.chess960 = board.chess960
        if board.chess960 and not self._allow_chess960:
            self._give_up(Defect.VARIANT, f"Chess960 castling rights in {self.start_fen!r}")
        elif not board.is_valid():
            self._give_up(Defect.BAD_START, f"{self.start_fen!r}: {board.status()!r}")

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def begin_parse_san(self, board: chess.Board, san: str) -> chess.pgn.SkipType | None:
        return chess.pgn.SKIP if self.defect else None

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        if not move:
            self._give_up(Defect.NULL_MOVE, f"null move in {board.fen()!r}")
        elif self._ended:
            self._give_up(Defect.BAD_MOVE, f"{move.uci()!r} after the result")
        else:
            self.phases.append(OVER if is_over(board) else PHASES.index(phase_of(board)))
            self.moves.append(_pack(move))

    def visit_result(self, result: str) -> None:
        self._ended = True

    def handle_error(self, error: Exception) -> None:
        self._give_up(Defect.BAD_MOVE if self.start_fen else Defect.BAD_START, str(error))

    def end_game(self) -> None:
        if not self.moves:
            self._give_up(Defect.NO_MOVES, "no moves")

    def result(self) -> "_Recorder":
        return self

    def _give_up(self, defect: Defect, detail: str) -> chess.pgn.SkipType:
        self.defect = self.defect or (defect, detail)
        return chess.pgn.SKIP


def is_over(board: chess.Board) -> bool:
    """Whether the rules had ended a game that went on. A next move exists, so it is no mate or stalemate."""
    if board.is_insufficient_material():
        return True
    if board.halfmove_clock < FIVEFOLD_PLIES:
        return False
    return board.is_seventyfive_moves() or board.is_fivefold_repetition()


def _pack(move: chess.Move) -> int:
    return move.from_square | move.to_square << 6 | (move.promotion or 0) << 12


def _unpack(code: int) -> chess.Move:
    return chess.Move(code & 63, code >> 6 & 63, code >> 12 or None)


@cache
def _uci(code: int) -> str:
    """The UCI move of a code. The cache stays small: there are a few thousand moves in chess."""
    return _unpack(code).uci()

"""Parses the text of a game with python-chess.

A game with any error is skipped as a whole, with the reason, because what remains of it may belong to another
game.
"""

import io
import re
from array import array
from functools import partial

import chess
import chess.pgn

from services.data.pgn.games import OVER, PHASES, EndDetector, Game, SkippedGame, _pack, phase_of
from services.data.pgn.rawgame import Defect, RawGame, without_en_passant
from services.data.pgn.tags import CHESS960_NAMES, STANDARD_NAMES, read_facts
from services.data.store.files import Source

_DETAIL_CHARS = 300

# Whatever has letters and remains once comments, tags and the words that python-chess reads are removed.
_UNREAD = re.compile(r"\S*[A-Za-z]\S*")
_NOT_MOVETEXT = re.compile(r"\{[^}]*\}|;[^\n]*|^\[[^\n]*$|\be\.p\.", re.MULTILINE)
# Numeric annotation glyphs end at 255. python-chess fails on numbers too long for Python to convert.
_ENDLESS_NAG = re.compile(r"^(\[.*)|\$\d{4,}", re.MULTILINE)


def parse(raw: RawGame, source: Source, *, chess960: bool = False) -> Game | SkippedGame:
    """Parses a game, or returns why it is skipped. Chess960 games are skipped unless `chess960` is true."""
    raw = raw.checked()
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
        self._end = EndDetector()

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
            self.phases.append(OVER if self._end.is_over(board) else PHASES.index(phase_of(board)))
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

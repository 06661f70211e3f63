"""Where a reader stands in a text: which board is spoken of, which line was last played, what `it` is.

Names are resolved here to squares, sides and moves, with python-chess alone. A name that fits nothing
on the board, or several things, resolves to nothing, and the claim that uses it is false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import chess

from rookery.uci import Line
from services.data.annotate.claims import sight
from services.data.annotate.claims.token import NAMES, Token
from services.data.annotate.study import Study

_OURS = ("my", "our", "i", "we", "me", "us")
_THEIRS = ("my opponent", "the opponent", "the other side")
_PIECE_IS: dict[str, Callable[[chess.Board, chess.Square], bool]] = {
    "": lambda board, square: True,
    "pinned": sight.is_pinned,
    "undefended": lambda board, square: not sight.defenders(board, square),
    "loose": lambda board, square: not sight.defenders(board, square),
    "hanging": sight.hangs,
    "isolated": sight.is_isolated,
    "backward": sight.is_backward,
    "passed": sight.is_passed,
    "doubled": sight.is_doubled,
}
_FILE_IS: dict[str, Callable[[chess.Board, int], bool]] = {
    "": lambda board, file: True,
    "open": sight.is_open,
    "half-open": lambda board, file: any(sight.is_half_open(board, file, side) for side in chess.COLORS),
}


class Unresolved(LookupError):
    """A name that fits nothing on the board, or several things: what is said with it is false."""


@dataclass(slots=True)
class Scene:
    """`board` is the position spoken of; `start` and `moves` say how the text came to it."""

    study: Study
    chosen: str
    root: chess.Board
    board: chess.Board = field(init=False)
    start: chess.Board = field(init=False)
    moves: list[chess.Move] = field(init=False, default_factory=list)
    sentence: int = field(init=False, default=0)
    named: list[tuple[int, int, chess.Square]] = field(init=False, default_factory=list)
    named_files: list[int] = field(init=False, default_factory=list)
    subject: Token | None = field(init=False, default=None)
    antecedent: Token | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.go(self.root)

    def go(self, start: chess.Board) -> None:
        """Stands on another board; nothing has been played from it."""
        self.start = self.board = start
        self.moves = []

    def meet(self, topic: Token | None) -> None:
        """A clause begins; an `it` in it that is not its subject means what the text was about before."""
        self.antecedent = self.subject
        self.subject = topic or self.subject

    @property
    def mover(self) -> chess.Color:
        """Who is to move in the position that the text is about."""
        return self.root.turn

    @property
    def passed(self) -> chess.Board:
        """The position with the other side to move."""
        board = sight.other_turn(self.root)
        if board is None:
            raise Unresolved("a threat while in check")
        return board

    @property
    def is_threat(self) -> bool:
        """Whether the text follows what happens if the mover passes."""
        return self.start.turn != self.mover

    # -- sides and files -----------------------------------------------------------------------

    def side(self, token: Token) -> chess.Color:
        """The colour of a side or owner."""
        name = token.owner
        if name in ("white", "black"):
            return name == "white"
        if name in _OURS:
            return self.mover
        if name in _THEIRS:
            return not self.mover
        raise Unresolved(token.words)

    def files(self, token: Token) -> list[int]:
        """The files of a name, its adjective being right."""
        if token.kind == "i":
            return self.named_files
        found = [chess.FILE_NAMES.index(name) for name in token.files]
        if not all(_FILE_IS[token.adjective](self.board, file) for file in found):
            raise Unresolved(token.words)
        self.named_files = found
        return found

    # -- pieces --------------------------------------------------------------------------------

    def piece(self, token: Token, board: chess.Board | None = None) -> chess.Square:
        """The square of the one piece that a name fits, on `board` or the one spoken of."""
        board = board or self.board
        if token.kind == "i":
            return self._it(token, board)
        fitting = self._fitting(token, board)
        if len(fitting) > 1:
            fitting = [square for square in self.mentioned(before=token) if square in fitting][:1]
        if not fitting:
            raise Unresolved(token.words)
        self._mention(token, fitting[0])
        return fitting[0]

    def mentioned(self, *, before: Token | None = None) -> list[chess.Square]:
        """Pieces named so far, the latest first: in the order of the text, not of the checks."""
        here = (self.sentence, before.place) if before else (self.sentence + 1, 0)
        earlier = sorted((entry for entry in self.named if entry[:2] < here), reverse=True)
        return [square for _, _, square in earlier]

    def _mention(self, token: Token, square: chess.Square) -> None:
        self.named.append((self.sentence, token.place, square))

    def group(self, token: Token, board: chess.Board | None = None) -> list[chess.Square]:
        """The squares of a group: every square named holds such a piece; without squares all that fit."""
        board = board or self.board
        fitting = self._fitting(token, board)
        found = [chess.parse_square(name) for name in token.squares] or fitting
        sides = {board.color_at(square) for square in found}
        if set(found) - set(fitting) or len(sides) != 1 or len(found) < 2 or len(set(found)) < len(found):
            raise Unresolved(token.words)
        for square in found:
            self._mention(token, square)
        return found

    def pieces(self, tokens: Token | list[Token], board: chess.Board | None = None) -> list[chess.Square]:
        """The squares of several pieces or groups, each named once."""
        found: list[chess.Square] = []
        for token in tokens if isinstance(tokens, list) else [tokens]:
            found += self.group(token, board) if token.kind == "g" else [self.piece(token, board)]
        if len(set(found)) < len(found):
            raise Unresolved("the same piece twice")
        return found

    def squares(self, token: Token) -> list[chess.Square]:
        """The squares of a list of squares."""
        return [chess.parse_square(name) for name in token.squares]

    def owner(self, squares: Iterable[chess.Square]) -> chess.Color:
        """The side that everything on the squares belongs to."""
        sides = {self.board.color_at(square) for square in squares}
        if len(sides) != 1 or (side := sides.pop()) is None:
            raise Unresolved("pieces of one side")
        return side

    def _it(self, token: Token, board: chess.Board) -> chess.Square:
        if self.antecedent is not None and self.antecedent.kind == "p":
            return self.piece(self.antecedent, board)
        if self.antecedent is not None and self.antecedent.kind in "mlq" and self.moves:
            return self.moves[-1].to_square
        named = self.mentioned(before=token)
        if not named:
            raise Unresolved("it")
        return named[0]

    def _fitting(self, token: Token, board: chess.Board) -> list[chess.Square]:
        owner = self.side(token) if token.owner else None
        if token.shade in ("white", "black"):
            owner = token.shade == "white"
        mask = sum(board.pieces_mask(NAMES[token.name], side) for side in _sides(owner))
        if token.shade == "light-squared":
            mask &= chess.BB_LIGHT_SQUARES
        elif token.shade == "dark-squared":
            mask &= chess.BB_DARK_SQUARES
        for file in token.files:
            mask &= chess.BB_FILES[chess.FILE_NAMES.index(file)]
        if token.kind == "p" and token.squares:
            mask &= chess.BB_SQUARES[chess.parse_square(token.squares[0])]
        return [square for square in chess.scan_forward(mask) if _PIECE_IS[token.adjective](board, square)]

    # -- moves ---------------------------------------------------------------------------------

    def candidate(self, token: Token) -> chess.Move:
        """The legal move of the root position that a name stands for, its number and dots being right."""
        if token.kind == "q" and len(token.squares) == 1:
            token = replace(token, kind="m", moves=token.squares)
        return self.move_on(self.root, token)

    def move_on(self, board: chess.Board, token: Token) -> chess.Move:
        """The move that a name stands for on some board, its number and dots being right there."""
        wrong_number = token.kind == "l" and (token.number, token.black) != _number(board)
        wrong_dots = token.kind == "m" and token.black and board.turn == chess.WHITE
        move = parse(board, token.moves[0]) if len(token.moves) == 1 else None
        if move is None or wrong_number or wrong_dots:
            raise Unresolved(token.words)
        return move

    def play(self, token: Token) -> list[chess.Move]:
        """Plays a numbered line; its number says where it joins what was played before."""
        ply = 2 * token.number - 1 + token.black
        for start, moves in ((self.start, self.moves), (self.root, [])):
            joins = ply - _ply(start)
            if 0 <= joins <= len(moves):
                played = _playable(start, moves[:joins], token.moves)
                if played is not None:
                    self.start, self.moves, self.board = start, played[0], played[1]
                    return played[0]
        raise Unresolved(token.words)

    def step(self, token: Token) -> tuple[chess.Board, chess.Move, chess.Board]:
        """Plays the move that a clause is about; the boards before and after it."""
        if token.kind == "l" and len(token.moves) == 1:
            move = self.play(token)[-1]
        else:
            move = self.candidate(token)
            self.go(self.root)
            after = self.root.copy(stack=False)
            after.push(move)
            self.moves, self.board = [move], after
        before = self.start.copy(stack=False)
        for earlier in self.moves[:-1]:
            before.push(earlier)
        # The piece that moves is what is meant by its name, unless another is named nearer by.
        self.named += [(self.sentence, -2, move.from_square), (self.sentence, -1, move.to_square)]
        return before, move, self.board

    def evidence(self) -> Line:
        """The engine's line that the moves played so far are the beginning of."""
        ucis = tuple(move.uci() for move in self.moves)
        if self.is_threat:
            line = self.study.threat
        else:
            line = self.study.line_of(ucis[0]) if ucis else self.study.best
        if line is None or line.pv[: len(ucis)] != ucis:
            raise Unresolved(" ".join(ucis))
        return line


def parse(board: chess.Board, san: str) -> chess.Move | None:
    """The legal move that is written exactly so, checks and mates included."""
    try:
        move = board.parse_san(san)
    except ValueError:
        return None
    return move if board.san(move) == san else None


def _sides(owner: chess.Color | None) -> tuple[chess.Color, ...]:
    return (chess.WHITE, chess.BLACK) if owner is None else (owner,)


def _number(board: chess.Board) -> tuple[int, bool]:
    return board.fullmove_number, board.turn == chess.BLACK


def _ply(board: chess.Board) -> int:
    return 2 * board.fullmove_number - 1 + (board.turn == chess.BLACK)


def _playable(
    start: chess.Board, moves: list[chess.Move], sans: tuple[str, ...]
) -> tuple[list[chess.Move], chess.Board] | None:
    board = start.copy(stack=False)
    played = list(moves)
    for move in moves:
        board.push(move)
    for san in sans:
        move_ = parse(board, san)
        if move_ is None:
            return None
        board.push(move_)
        played.append(move_)
    return played, board

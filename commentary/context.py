"""Where a reader stands in a text: which board is spoken of, which line was last played, what `it` is.

Names become squares, sides and moves here, with python-chess alone. A name that fits nothing on the board
means nothing, and the claim that uses it is false; of one that fits several things nobody can tell.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import chess

from commentary import predicates
from commentary.study import Score, Study, StudyLine
from commentary.token import NAMES, Token, parse_move

_OURS = ("my", "our", "i", "we", "me", "us")
_THEIRS = ("my opponent", "our opponent", "the opponent", "the other side")
_PIECE_THERE = re.compile(r"[KQRBNP][a-h][1-8]")
_SQUARE = re.compile(r"[a-h][1-8]")
_PIECE_OF = {chess.piece_symbol(kind).upper(): name for name, kind in NAMES.items()}
_FILE_IS: dict[str, Callable[[chess.Board, int], bool]] = {
    "": lambda board, file: True,
    "open": predicates.is_open,
    "half-open": lambda board, file: any(predicates.is_half_open(board, file, side) for side in chess.COLORS),
}


class Unresolved(LookupError):
    """A name that fits nothing on the board: what is said with it is false."""


class Unknown(LookupError):
    """Nobody can tell whether it is so: a line or score is not known, or a name fits several things."""


@dataclass(slots=True)
class Context:
    """`board` is the position spoken of; `start` and `moves` say how the text came to it. While a claim about
    a move is decided, `before` is the board before it and `move` the move itself."""

    study: Study
    root: chess.Board
    chosen: chess.Move | None = None
    goals: set[str] = field(default_factory=set)
    """Squares named by themselves or as the end of a move: the text may mean pieces that come there."""
    arrivals: set[tuple[str, str]] = field(init=False, default_factory=set)
    """Pieces, by name, with squares that a move of them, or a sentence with them, names."""
    board: chess.Board = field(init=False)
    start: chess.Board = field(init=False)
    moves: list[chess.Move] = field(init=False, default_factory=list)
    before: chess.Board = field(init=False)
    move: chess.Move = field(init=False, default_factory=chess.Move.null)
    named_squares: list[chess.Square] = field(init=False, default_factory=list)
    meant: dict[Token, chess.Square] = field(init=False, default_factory=dict)
    moved: list[chess.Square] = field(init=False, default_factory=list)
    named_files: list[int] = field(init=False, default_factory=list)
    subject: Token | None = field(init=False, default=None)
    antecedent: Token | None = field(init=False, default=None)
    actor: chess.Color | None = field(init=False, default=None)
    """The side of the move, or of the first piece, that a clause names."""
    _named_before: int = field(init=False, default=0)
    _had_subject: bool = field(init=False, default=False)
    _named_last: list[chess.Square] = field(init=False, default_factory=list)
    """What the clause before named, beside its subject or as that."""

    def __post_init__(self) -> None:
        self.go(self.root)
        self.before = self.root

    def go(self, start: chess.Board) -> None:
        """Stands on another board; nothing has been played from it."""
        self.start = self.board = start
        self.moves = []

    def meet(self, topic: Token | None, subject: Token | None) -> None:
        """A clause begins; an `it` in it that is not its subject means what the text was about before."""
        self.antecedent = self.subject
        self.actor = None
        self._named_last = self.named_squares[self._named_before :] if self._had_subject else []
        self._named_before, self._had_subject = len(self.named_squares), subject is not None
        self.subject = topic or self.subject

    def see(self, tokens: Sequence[Token]) -> None:
        """A sentence begins that names all these."""
        pieces = {token.name for token in tokens if token.kind == "p" and token.squares}
        for token in tokens:
            if token.kind == "q":
                self.goals.update(token.squares)
                self.arrivals.update(product(pieces, token.squares))
            for move in token.moves:
                squares = _SQUARE.findall(move)
                self.goals.update(squares[-1:])
                self.arrivals.update((_PIECE_OF.get(move[0], "pawn"), square) for square in squares[-1:])
                if len(squares) == 2 and (moved := self.root.piece_type_at(chess.parse_square(squares[0]))):
                    self.arrivals.add((chess.piece_name(moved), squares[1]))
                if move.startswith("O-O"):
                    self.goals.update(
                        file + rank for file in ("cd" if "O-O-O" in move else "fg") for rank in "18"
                    )

    def is_elsewhere(self, slots: Iterable[tuple[str, Any]]) -> bool:
        """Whether a piece that a clause names may stand there only after a move of which the text speaks; the
        square in "the pawn (f6)" may also be another."""
        tokens = [token for _, content in slots if not isinstance(content, str) for token in content]
        return any(
            self.goals.intersection(token.squares) or ("(" in token.words and token.words.islower())
            for token in tokens
            if token.kind in "pg"
        )

    @property
    def mover(self) -> chess.Color:
        """Who is to move in the position that the text is about."""
        return self.root.turn

    @property
    def is_threat(self) -> bool:
        """Whether the text follows what happens if the mover passes."""
        return self.start.turn != self.mover

    @staticmethod
    def passed(board: chess.Board) -> chess.Board:
        """The board with the other side to move, where what it threatens can be played."""
        after = predicates.other_turn(board)
        if after is None:
            raise Unresolved("a threat while in check")
        return after

    # -- sides, files, squares -------------------------------------------------------------------

    def side(self, token: Token) -> chess.Color:
        name = token.owner
        if name in ("white", "black"):
            return name == "white"
        if name in _OURS:
            return self.mover
        if name in _THEIRS:
            return not self.mover
        raise Unresolved(token.words)

    def files(self, token: Token) -> list[int]:
        """The files that a name stands for; its adjective must be right of each."""
        if token.kind == "i":
            return self.named_files
        files = [chess.FILE_NAMES.index(name) for name in token.files]
        twice = len(set(files)) < len(files)
        if twice or not all(_FILE_IS[token.adjective](self.board, file) for file in files):
            raise Unresolved(token.words)
        self.named_files = files
        return files

    # -- pieces ----------------------------------------------------------------------------------

    def piece(
        self, token: Token, board: chess.Board | None = None, side: chess.Color | None = None
    ) -> chess.Square:
        """The square of the one piece that a name fits: of several the one named last, or that of `side`.

        A name handed on to another clause, or to an `it`, keeps its piece and names nothing anew. Raises
        `Unresolved` if it fits none, or on the board before a move neither what moves nor what is taken;
        `Unknown` if it fits several, and nothing says which is meant.
        """
        ambiguous = Unknown if board is None else Unresolved
        board = board or self.board
        if token.kind == "i":
            return self._pronoun(token, board)
        fitting = self.fitting(token, board)
        if ambiguous is Unknown and token.squares and token.words.lower().startswith("a "):
            raise Unknown(token.words)  # even if one stands there: a guess must not pay
        if not fitting:
            raise ambiguous(token.words) if self.is_imagined(token) else Unresolved(token.words)
        if self.meant.get(token) not in fitting:
            if len(fitting) > 1:
                theirs = [square for square in fitting if side is not None and board.color_at(square) == side]
                recent = [square for square in reversed(self.named_squares) if square in fitting]
                fitting = recent[:1] or theirs
            if len(fitting) != 1:
                raise ambiguous(token.words)
            self.meant[token] = fitting[0]
            self.named_squares.append(fitting[0])
        if self.actor is None:
            self.actor = board.color_at(self.meant[token])
        return self.meant[token]

    def is_imagined(self, token: Token) -> bool:
        """Whether what stands nowhere may be there in another position: "a knight on d5", what has just left,
        its square and is named by it, and what can go to a square that a move of it, or a sentence with it,
        names."""
        if not token.squares:
            return False
        touched = {square for move in self.moves for square in (move.from_square, move.to_square)}
        vacated = touched.intersection(self.fitting(token, self.start))
        castled = bool(self.moves) and token.name == "rook" and self.before.is_castling(self.move)
        if vacated or castled or token.words.lower().startswith("a "):
            return True
        goal = chess.BB_SQUARES[chess.parse_square(token.squares[0])]
        boards = [board for board in (self.root, predicates.other_turn(self.root)) if board is not None]
        return (token.name, token.squares[0]) in self.arrivals and any(
            board.piece_type_at(move.from_square) == NAMES[token.name]
            for board in boards
            for move in board.generate_legal_moves(to_mask=goal)
        )

    def pieces(self, tokens: Iterable[Token], side: chess.Color | None = None) -> list[chess.Square]:
        """The squares of several pieces or groups, each named once; `side` as in `piece`."""
        squares: list[chess.Square] = []
        for token in tokens:
            squares += self._group(token) if token.kind == "g" else [self.piece(token, side=side)]
        if len(set(squares)) < len(squares):
            raise Unresolved("the same piece twice")
        return squares

    def _group(self, token: Token) -> list[chess.Square]:
        """Every square named holds such a piece; without squares all that fit."""
        fitting = self.fitting(token, self.board)
        squares = [chess.parse_square(name) for name in token.squares] or fitting
        sides = {self.board.color_at(square) for square in squares}
        if set(squares) - set(fitting) or len(squares) < 2:
            raise Unresolved(token.words)
        if len(sides) != 1:
            raise Unknown(token.words)  # "the knights on f3 and c6"
        self.named_squares += squares
        return squares

    def owner(self, *squares: chess.Square) -> chess.Color:
        """The side that everything on the squares belongs to."""
        sides = {self.board.color_at(square) for square in squares}
        if len(sides) != 1 or (side := sides.pop()) is None:
            raise Unresolved("pieces of one side")
        return side

    def _pronoun(self, token: Token, board: chess.Board) -> chess.Square:
        """What an "it" names that is not the subject. Raises `Unknown` if the clause before named more than
        its subject."""
        subject: set[chess.Square] = set()
        if self.antecedent is not None and self.antecedent.kind == "p":
            subject = {self.piece(self.antecedent, board)}
        elif self.antecedent is not None and self.antecedent.kind in "mlq" and self.moves:
            subject = {self.moves[-1].to_square}
        if subject:
            others = set(self._named_last) - subject - {move.from_square for move in self.moves}
            if others or (self.moves and predicates.captured(self.before, self.move) in subject):
                raise Unknown(token.words)
            return subject.pop()
        if len(set(self._named_last)) > 1 or not self._named_before:
            raise Unknown(token.words)
        return self.named_squares[self._named_before - 1]

    def fitting(self, token: Token, board: chess.Board | None = None) -> list[chess.Square]:
        """Every piece on the board spoken of, or on another, that a name fits."""
        board = board or self.board
        owner = self.side(token) if token.owner else None
        if token.shade in ("white", "black"):
            owner = token.shade == "white"
        sides = chess.COLORS if owner is None else (owner,)
        mask = sum(board.pieces_mask(NAMES[token.name], side) for side in sides)
        if token.shade.endswith("-squared"):
            mask &= chess.BB_LIGHT_SQUARES if token.shade.startswith("light") else chess.BB_DARK_SQUARES
        for file in token.files:
            mask &= chess.BB_FILES[chess.FILE_NAMES.index(file)]
        if token.kind == "p" and token.squares:
            mask &= chess.BB_SQUARES[chess.parse_square(token.squares[0])]
        return [
            square for square in chess.scan_forward(mask) if predicates.IS[token.adjective](board, square)
        ]

    # -- moves -----------------------------------------------------------------------------------

    def move_on(self, board: chess.Board, token: Token) -> chess.Move:
        """The move that a name stands for on some board, its number and dots being right there."""
        if token.kind == "q" and len(token.squares) == 1:
            token = replace(token, kind="m", moves=token.squares)
        number = board.fullmove_number, board.turn == chess.BLACK
        wrong_number = token.kind == "l" and (token.number, token.black) != number
        wrong_dots = token.kind == "m" and token.black and board.turn == chess.WHITE
        if len(token.moves) > 1:
            raise Unknown("which of these moves")
        move = parse_move(board, token.moves[0]) if token.moves else None
        if move is None and token.kind == "m":
            reply = (
                board is self.root
                and (other := predicates.other_turn(board))
                and parse_move(other, token.moves[0])
            )
            if reply or self.is_piece(board, token.moves[0]):
                # "Nd6" may be the knight that stands there, or the other side's move.
                raise Unknown(token.words)
        if move is None or wrong_number or wrong_dots:
            raise Unresolved(token.words)
        return move

    @staticmethod
    def is_piece(board: chess.Board, words: str) -> bool:
        """Whether a name such as "Nd6", which may be a move, is that of a piece on the board."""
        if not _PIECE_THERE.fullmatch(words):
            return False
        piece = board.piece_at(chess.parse_square(words[1:]))
        return piece is not None and piece.symbol().upper() == words[0]

    def play(self, token: Token) -> list[chess.Move]:
        """Plays a numbered line; its number says where it joins what was played before."""
        ply = 2 * token.number - 1 + token.black
        for start, moves in ((self.start, self.moves), (self.root, [])):
            joins = ply - (2 * start.fullmove_number - 1 + (start.turn == chess.BLACK))
            if 0 <= joins <= len(moves):
                board, played = _replayed(start, moves[:joins], token)
                if len(played) == joins + len(token.moves):
                    self.start, self.moves, self.board = start, played, board
                    return played
        if len(token.moves) == 1 and _SQUARE.fullmatch(token.moves[0]):
            raise Unknown("a move, or a square as an item of a list: 1. e5")
        if joins > len(moves):
            raise Unknown("a line from a position that nobody has reached")
        raise Unresolved(token.words)

    def step(self, token: Token) -> chess.Move:
        """Plays the move that a clause is about; `before`, `move` and `board` say what it did."""
        if token.kind == "l" and len(token.moves) == 1:
            self.move = self.play(token)[-1]
        else:
            self.move = self.move_on(self.root, token)
            self.go(self.root)
            self.board = self.root.copy(stack=False)
            self.board.push(self.move)
            self.moves = [self.move]
        self.before = self.start.copy(stack=False)
        for earlier in self.moves[:-1]:
            self.before.push(earlier)
        self.actor = self.before.turn
        # The piece that moves is what is meant by its name, unless another is named nearer by.
        ends = [self.move.from_square, self.move.to_square]
        self.named_squares += [] if ends == self.moved else ends
        self.moved = ends
        return self.move

    @property
    def origin(self) -> chess.Square:
        return self.move.from_square

    @property
    def to(self) -> chess.Square:
        return self.move.to_square

    @property
    def roles(self) -> dict[str, int]:
        """What slots of these names must hold: the side to move, the other one, where the moved piece is."""
        return {"us": self.mover, "them": not self.mover, "moved": self.to, "here": self.to}

    @property
    def victim(self) -> chess.Square | None:
        """Where the piece stood that the move of the clause takes."""
        return predicates.captured(self.before, self.move)

    # -- evidence --------------------------------------------------------------------------------

    def evidence(self) -> StudyLine:
        """The engine's line that the moves played so far are the beginning of. Raises `Unknown` if there is
        none."""
        ucis = tuple(move.uci() for move in self.moves)
        if self.is_threat:
            line = self.study.threat
        else:
            line = self.study.line_of(ucis[0]) if ucis else self.study.best
        if line is None or line.moves[: len(ucis)] != ucis:
            raise Unknown(" ".join(ucis))
        return line

    def score_for(self, side: chess.Color) -> int:
        """The engine's score of what is spoken of in centipawns, as `side` sees it."""
        value = self.evidence().score.value
        return value if side == self.start.turn else -value

    def score(self, move: chess.Move) -> Score:
        """The score of a move of the root position, for its mover."""
        line = self.study.line_of(move.uci())
        if line is None:
            raise Unknown(move.uci())
        return line.score

    @property
    def best_score(self) -> Score:
        """The score of the best move, for its mover."""
        if self.study.best is None:
            raise Unknown("no best move")
        return self.study.best.score


def _replayed(
    start: chess.Board, moves: list[chess.Move], token: Token
) -> tuple[chess.Board, list[chess.Move]]:
    """Plays moves and then a line, as far as it can be played."""
    board, played = start.copy(stack=False), [*moves]
    for move in moves:
        board.push(move)
    for san in token.moves:
        if (following := parse_move(board, san)) is None:
            break
        board.push(following)
        played.append(following)
    return board, played

"""The writer's hand: picks wordings without repeating itself, names sides, pieces, squares and moves.

One pen writes one text. It remembers which wordings it has used and which pieces it has just named.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import chess

from services.data.annotate.voice.party import Party, gerund, name_party, third
from services.data.annotate.voice.style import Length, Voice

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_MARKED = re.compile(r"~([a-z]+)")
_SINGLE_FORMS = (chess.KING, chess.QUEEN)


@dataclass(frozen=True, slots=True)
class Named:
    """A piece that is named when the template is filled, so that names come in the order of the text."""

    pen: Pen
    board: chess.Board
    square: chess.Square

    def __format__(self, spec: str) -> str:
        return self.pen.name_piece(self.board, self.square, spec)

    def __str__(self) -> str:
        return self.pen.name_piece(self.board, self.square, "")


@dataclass(frozen=True, slots=True)
class Row:
    """Several pieces, likewise: the queen on d8 and the rook on f8."""

    pen: Pen
    board: chess.Board
    squares: tuple[chess.Square, ...]

    def __format__(self, spec: str) -> str:
        return self.pen.join([self.pen.name_piece(self.board, square, spec) for square in self.squares])


@dataclass(slots=True)
class Pen:
    """Writes for one voice, one position, one seed."""

    root: chess.Board
    voice: Voice
    length: Length
    rng: random.Random
    topic: str = ""
    """The move that `it` would be taken for."""
    numbers: bool = False
    """Whether candidates are written with their move number."""
    used: dict[str, int] = field(default_factory=dict)
    _recent: list[tuple[chess.Square, chess.PieceType]] = field(default_factory=list)
    _before_last: int = 0
    _board: chess.Board | None = None

    # -- choosing ------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Whether it happens this time."""
        return self.rng.random() < probability

    def pick(self, options: Sequence[str]) -> str:
        """One of the wordings, those used least so far first. `coach|...` is for one voice only."""
        mine = [option for option in options if self._is_mine(option)]
        least = min(self.used.get(option, 0) for option in mine)
        option = self.rng.choice([option for option in mine if self.used.get(option, 0) == least])
        self.used[option] = self.used.get(option, 0) + 1
        return option.split("|", 1)[1] if "|" in option else option

    def say(self, options: Sequence[str], **slots: object) -> str:
        """One of the wordings with its slots filled."""
        return self.pick(options).format(**slots)

    def _is_mine(self, option: str) -> bool:
        return "|" not in option or self.voice.name in option.split("|", 1)[0].split(",")

    # -- sides ---------------------------------------------------------------------------------

    def side(self, colour: chess.Color) -> Party:
        """How the voice calls a side."""
        return name_party(
            "White" if colour else "Black", self.voice.person, is_mover=colour == self.root.turn
        )

    @property
    def us(self) -> Party:
        """The side to move."""
        return self.side(self.root.turn)

    @property
    def them(self) -> Party:
        """The other side."""
        return self.side(not self.root.turn)

    # -- pieces --------------------------------------------------------------------------------

    def next_remark(self) -> None:
        """Another remark begins: what was named before the last one is too far off for a short name."""
        self._recent = self._recent[self._before_last :]
        self._before_last = len(self._recent)

    def forget(self) -> None:
        """A new paragraph or another board: nothing was just mentioned."""
        self._recent.clear()

    def mentions(self) -> list[tuple[chess.Square, chess.PieceType]]:
        """What was mentioned so far, to be recalled if the words are thrown away."""
        return list(self._recent)

    def recall(self, mentions: list[tuple[chess.Square, chess.PieceType]]) -> None:
        """Takes back what was mentioned since."""
        self._recent = mentions

    def moved(self, board: chess.Board, square: chess.Square) -> None:
        """The clause is about a move: the piece that stands on `square` now is what was last spoken of."""
        kind = board.piece_type_at(square)
        self._board = board
        self._recent = [(square, kind)] if kind else []

    def at(self, board: chess.Board, square: chess.Square) -> Named:
        """The piece on a square, to be named in a template."""
        return Named(self, board, square)

    def name_piece(self, board: chess.Board, square: chess.Square, spec: str) -> str:
        """The name of a piece; `own` insists on its owner, `the` on leaving it out."""
        if board is not self._board:
            self._recent.clear()
            self._board = board
        piece = board.piece_at(square)
        if piece is None:
            raise ValueError(f"no piece on {chess.square_name(square)} in {board.fen()!r}")
        name = chess.piece_name(piece.piece_type)
        again = self._name_again(board, square, piece, name)
        self._recent.append((square, piece.piece_type))
        return again or self._name_first(board, square, piece, spec)

    def _name_again(
        self, board: chess.Board, square: chess.Square, piece: chess.Piece, name: str
    ) -> str | None:
        """A short name for what was the last piece of its kind to be named."""
        latest = next((s for s, kind in reversed(self._recent) if kind == piece.piece_type), None)
        if latest != square:
            return None
        many = (
            board.pieces_mask(piece.piece_type, True) | board.pieces_mask(piece.piece_type, False)
        ).bit_count()
        if piece.piece_type in _SINGLE_FORMS or many == 1:
            return f"the {name}" if self.chance(0.6) else f"{self.side(piece.color).owner} {name}"
        if piece.piece_type == chess.PAWN:
            return self.rng.choice([f"that {name}", f"the {chess.square_name(square)}-pawn"])
        return self.rng.choice([f"that {name}", f"the {name}", f"the {name}"])

    def _name_first(self, board: chess.Board, square: chess.Square, piece: chess.Piece, spec: str) -> str:
        name, place = chess.piece_name(piece.piece_type), chess.square_name(square)
        owner = self.side(piece.color).owner
        own = spec == "own" or (spec != "the" and self.chance(self.voice.owns))
        single = piece.piece_type in _SINGLE_FORMS and len(board.pieces(piece.piece_type, piece.color)) == 1
        if single and (own or piece.piece_type == chess.KING):
            return f"{owner} {name}" + (f" on {place}" if self.chance(0.3) else "")
        pawn = piece.piece_type == chess.PAWN and self._alone_on_file(board, square, piece.color)
        if pawn and own and self.chance(0.4):
            return f"{owner} {place[0]}-pawn"
        if self.chance(0.12):
            return f"the {place}-{name}" if not own else f"{owner} {name} on {place}"
        return f"{owner} {name} on {place}" if own else f"the {name} on {place}"

    @staticmethod
    def _alone_on_file(board: chess.Board, square: chess.Square, side: chess.Color) -> bool:
        pawns = board.pieces_mask(chess.PAWN, side) & chess.BB_FILES[chess.square_file(square)]
        return pawns.bit_count() == 1

    def row(self, board: chess.Board, squares: Iterable[chess.Square]) -> Row:
        """Several pieces, to be named in a template."""
        return Row(self, board, tuple(squares))

    # -- squares, files, numbers ---------------------------------------------------------------

    def squares(self, squares: Iterable[chess.Square]) -> str:
        """A list of squares. Pawns named by their squares are many: none of them is `that pawn` any more."""
        self._recent = [(square, kind) for square, kind in self._recent if kind != chess.PAWN]
        return self.join([chess.square_name(square) for square in squares])

    @staticmethod
    def file(file: int) -> str:
        """A file by its letter."""
        return f"the {chess.FILE_NAMES[file]}-file"

    @staticmethod
    def files(files: Sequence[int]) -> str:
        """One or more files."""
        names = [chess.FILE_NAMES[file] for file in files]
        if len(names) == 1:
            return f"the {names[0]}-file"
        return f"the {'-, '.join(names[:-1])}- and {names[-1]}-files"

    @staticmethod
    def number(count: int) -> str:
        """A small number in words."""
        return _NUMBERS[count] if count < len(_NUMBERS) else str(count)

    @staticmethod
    def times(count: int) -> str:
        """How often."""
        return {1: "once", 2: "twice"}.get(count, f"{Pen.number(count)} times")

    @staticmethod
    def join(parts: Sequence[str], word: str = "and") -> str:
        """A list in words.

        >>> Pen.join(["a", "b", "c"])
        'a, b and c'
        """
        if len(parts) < 2:
            return "".join(parts)
        return f"{', '.join(parts[:-1])} {word} {parts[-1]}"

    # -- moves ---------------------------------------------------------------------------------

    def move(self, board: chess.Board, move: chess.Move) -> str:
        """A single move of the position: with its number, with dots for Black, or bare for White.

        A bare pawn move of White's would look like a square: it always has its number.
        """
        san = board.san(move)
        if self.numbers or (board.turn and is_pawn_move(san)):
            return numbered(board, [move])
        return san if board.turn else f"...{san}"

    @staticmethod
    def other_move(board: chess.Board, move: chess.Move) -> str:
        """A move of another board than the position, such as what would be mate."""
        san = board.san(move)
        if not board.turn:
            return f"...{san}"
        return numbered(board, [move]) if is_pawn_move(san) else san

    @staticmethod
    def line(board: chess.Board, moves: Sequence[chess.Move]) -> str:
        """A line with move numbers."""
        return numbered(board, moves)


def is_pawn_move(san: str) -> bool:
    """Whether the name of a move is that of a pawn's."""
    return san[0] in "abcdefgh"


def numbered(board: chess.Board, moves: Sequence[chess.Move]) -> str:
    """Moves in SAN, every one of White's with its number, Black's only at the beginning.

    >>> numbered(chess.Board(), [chess.Move.from_uci(uci) for uci in ("e2e4", "e7e5", "g1f3")])
    '1.e4 e5 2.Nf3'
    """
    board = board.copy(stack=False)
    words = []
    for ply, move in enumerate(moves):
        number = (
            f"{board.fullmove_number}." if board.turn else f"{board.fullmove_number}..." if ply == 0 else ""
        )
        words.append(number + board.san_and_push(move))
    return " ".join(words)


def finite(verb_phrase: str, party: Party | None = None) -> str:
    """A verb phrase with its marked verbs in the present: `~take the pawn` becomes `takes the pawn`."""
    return _conjugated(verb_phrase, party.verb if party else third)


def infinitive(verb_phrase: str) -> str:
    """The same with bare verbs."""
    return _conjugated(verb_phrase, str)


def participle(verb_phrase: str) -> str:
    """The same in -ing.

    >>> participle("~queen, ~take the pawn and ~give check")
    'queening, taking the pawn and giving check'
    """
    return _conjugated(verb_phrase, gerund)


def _conjugated(verb_phrase: str, form: Callable[[str], str]) -> str:
    return _MARKED.sub(lambda match: form(match[1]), verb_phrase)

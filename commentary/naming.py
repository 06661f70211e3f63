"""How the writer names things: sides with verbs that agree, pieces with long and short names, moves, lists.

A short name ("the knight", "that knight") is used only for the piece of its kind that was named last, so
that it can be read in one way; `commentary.context` reads by the same rule.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import chess

Person = Literal["third", "i", "we"]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_THIRD = {"have": "has", "be": "is", "do": "does", "go": "goes"}
_DOUBLES = "pin unpin hit step put get let shut set run cut win sit stop drop grab chip"


@dataclass(frozen=True, slots=True)
class Party:
    """A side: `word` as the subject, `owner` its possessive, `object_` after a verb."""

    word: str
    owner: str
    object_: str

    def verb(self, infinitive: str) -> str:
        """The verb as it agrees with the subject."""
        if self.word == "I":
            return "am" if infinitive == "be" else infinitive
        if self.word == "we":
            return plural(infinitive)
        return third(infinitive)


def third(infinitive: str) -> str:
    """The third person singular of a verb.

    >>> [third(verb) for verb in ("take", "push", "parry", "go", "have", "be")]
    ['takes', 'pushes', 'parries', 'goes', 'has', 'is']
    """
    if infinitive in _THIRD:
        return _THIRD[infinitive]
    if infinitive.endswith("y") and infinitive[-2] not in "aeou":
        return infinitive[:-1] + "ies"
    return infinitive + ("es" if infinitive.endswith(("s", "sh", "ch", "x", "o")) else "s")


def plural(infinitive: str) -> str:
    """The form after several subjects."""
    return "are" if infinitive == "be" else infinitive


def gerund(infinitive: str) -> str:
    """The form in -ing.

    >>> [gerund(verb) for verb in ("take", "unpin", "parry", "be", "tie", "free")]
    ['taking', 'unpinning', 'parrying', 'being', 'tying', 'freeing']
    """
    if infinitive in _DOUBLES.split():
        return infinitive + infinitive[-1] + "ing"
    if infinitive.endswith("ie"):
        return infinitive[:-2] + "ying"
    if infinitive.endswith("e") and not infinitive.endswith(("ee", "be")):
        return infinitive[:-1] + "ing"
    return infinitive + "ing"


def joined(parts: Sequence[str]) -> str:
    """A list in words.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def number_in_words(count: int) -> str:
    """A small number in words."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def numbered(board: chess.Board, moves: Sequence[chess.Move]) -> str:
    """Moves in SAN, every one of White's with its number, Black's only at the beginning.

    >>> numbered(chess.Board(), [chess.Move.from_uci(uci) for uci in ("e2e4", "e7e5", "g1f3")])
    '1.e4 e5 2.Nf3'
    """
    board = board.copy(stack=False)
    words = []
    for ply, move in enumerate(moves):
        dots = "." if board.turn else "..." if ply == 0 else ""
        words.append((f"{board.fullmove_number}{dots}" if dots else "") + board.san_and_push(move))
    return " ".join(words)


def bare(board: chess.Board, move: chess.Move) -> str:
    """A single move: with dots for Black; a pawn's move of White's has its number, or it were a square."""
    san = board.san(move)
    if not board.turn:
        return f"...{san}"
    return numbered(board, [move]) if san[0] in "abcdefgh" else san


@dataclass(slots=True)
class Naming:
    """The names in one text by one voice. It remembers which words it has used and what it has just named."""

    root: chess.Board
    voice: str
    person: Person
    rng: random.Random
    owns: float = 0.4
    """The chance that a piece is named with its owner."""
    used: dict[str, int] = field(default_factory=dict)
    board: chess.Board = field(init=False)
    before: chess.Board = field(init=False)
    _recent: list[tuple[chess.Square, chess.PieceType]] = field(default_factory=list)
    _remark: int = 0

    def __post_init__(self) -> None:
        self.board = self.before = self.root

    # -- choosing --------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[str]) -> str:
        """One of the wordings, those used least so far first; `coach|...` is for one voice only."""
        wordings = self.allowed(options)
        return wordings[self.least_used(wordings)].split("|", 1)[-1]

    def allowed(self, options: Sequence[str]) -> list[str]:
        return [text for text in options if "|" not in text or self.voice in text.split("|")[0].split(",")]

    def least_used(self, keys: Sequence[str]) -> int:
        """The place of one of the keys that were drawn least so far."""
        least = min(self.used.get(key, 0) for key in keys)
        place = self.rng.choice([n for n, key in enumerate(keys) if self.used.get(key, 0) == least])
        self.used[keys[place]] = least + 1
        return place

    # -- sides -----------------------------------------------------------------------------------

    def side(self, colour: chess.Color) -> Party:
        """How the voice calls a side: the mover is I, we or its colour, the other side its colour."""
        if colour == self.root.turn and self.person != "third":
            return Party("I", "my", "me") if self.person == "i" else Party("we", "our", "us")
        name = "White" if colour else "Black"
        return Party(name, f"{name}'s", name)

    @property
    def us(self) -> Party:
        return self.side(self.root.turn)

    @property
    def them(self) -> Party:
        return self.side(not self.root.turn)

    # -- pieces ----------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forgets what was named, as at a new paragraph."""
        self._recent, self._remark = [], 0

    def next_remark(self) -> None:
        """Forgets what was named before the last remark: it is too far off for a short name."""
        self._recent = self._recent[self._remark :]
        self._remark = len(self._recent)

    def look(self, board: chess.Board) -> None:
        """Turns to another board, of which nothing was named."""
        if board is not self.board:
            self.board = self.before = board
            self.forget()

    def look_at_move(self, before: chess.Board, after: chess.Board, square: chess.Square) -> None:
        """A move is spoken of: the piece on `square` now is what was named last."""
        self.before, self.board = before, after
        kind = after.piece_type_at(square)
        self._recent, self._remark = [(square, kind)] if kind else [], 0

    def several(self) -> None:
        """Pawns were named by their squares: none of them is `that pawn` any more."""
        self._recent = [(square, kind) for square, kind in self._recent if kind != chess.PAWN]

    def restore_point(self) -> Callable[[], None]:
        """A function that goes back to what has been named until now."""
        recent = list(self._recent)

        def restore() -> None:
            self._recent = list(recent)

        return restore

    def piece(self, square: chess.Square, board: chess.Board | None = None) -> str:
        """The name of a piece on the board spoken of, or on another."""
        board = board or self.board
        piece = board.piece_at(square)
        if piece is None:
            raise ValueError(f"no piece on {chess.square_name(square)} in {board.fen()!r}")
        short = self._short_name(board, square, piece) if piece == self.board.piece_at(square) else None
        self._recent.append((square, piece.piece_type))
        return short or self._full_name(board, square, piece)

    def pieces(self, squares: Iterable[chess.Square]) -> str:
        """Several pieces; those of a kind and a side together."""
        groups: dict[tuple[int, bool], list[int]] = {}
        for square in squares:
            piece = self.board.piece_at(square)
            if piece is not None:
                groups.setdefault((piece.piece_type, piece.color), []).append(square)
        return joined([self._group(*key, group) for key, group in groups.items()])

    def _group(self, kind: chess.PieceType, colour: chess.Color, squares: list[chess.Square]) -> str:
        if len(squares) == 1:
            return self.piece(squares[0])
        self._recent = [mention for mention in self._recent if mention[1] != kind]
        owner = self.side(colour).owner if self.chance(self.owns) else "the"
        return f"{owner} {chess.piece_name(kind)}s on {joined([chess.square_name(s) for s in squares])}"

    def _short_name(self, board: chess.Board, square: chess.Square, piece: chess.Piece) -> str | None:
        """A short name for what was the last piece of its kind to be named."""
        latest = next((s for s, kind in reversed(self._recent) if kind == piece.piece_type), None)
        if latest != square:
            return None
        name = chess.piece_name(piece.piece_type)
        single = len(board.pieces(piece.piece_type, True)) + len(board.pieces(piece.piece_type, False)) == 1
        if piece.piece_type in (chess.KING, chess.QUEEN) or single:
            return f"the {name}" if self.chance(0.6) else f"{self.side(piece.color).owner} {name}"
        if piece.piece_type == chess.PAWN:
            return self.rng.choice([f"that {name}", f"the {chess.square_name(square)}-pawn"])
        return self.rng.choice([f"that {name}", f"the {name}", f"the {name}"])

    def _full_name(self, board: chess.Board, square: chess.Square, piece: chess.Piece) -> str:
        name, place = chess.piece_name(piece.piece_type), chess.square_name(square)
        owner, with_owner = self.side(piece.color).owner, self.chance(self.owns)
        royal = piece.piece_type in (chess.KING, chess.QUEEN)
        if royal and len(board.pieces(piece.piece_type, piece.color)) == 1 and (with_owner or name == "king"):
            return f"{owner} {name}" + (f" on {place}" if self.chance(0.3) else "")
        pawns = board.pieces_mask(chess.PAWN, piece.color) & chess.BB_FILES[chess.square_file(square)]
        if name == "pawn" and with_owner and pawns.bit_count() == 1 and self.chance(0.4):
            return f"{owner} {place[0]}-pawn"
        if not with_owner and self.chance(0.15):
            return f"the {place}-{name}"
        return f"{owner} {name} on {place}" if with_owner else f"the {name} on {place}"

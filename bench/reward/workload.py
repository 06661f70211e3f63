"""What is asked: positions of real games and answers to them, as GRPO sends them, the same for every side.

Nothing here touches an engine or a service. A position is asked once in a measurement, so that no
cache helps; the FENs are kept in the temporary folder, because finding them takes a millisecond each.
"""

import hashlib
import random
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import chess

Kind = Literal["distinct", "group"]
KINDS: tuple[Kind, ...] = ("distinct", "group")

GROUP_LEGAL = 6
"""Legal moves among the eight answers of a group; one is illegal and one has no box."""

_THOUGHT = "The rook on the open file looks strong, but the king is loose and the knight may hop in. "


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion, and the legal move in it as UCI, or None."""

    completion: str
    move: str | None


@dataclass(frozen=True, slots=True)
class Question:
    """A position and the answers that are to be judged."""

    fen: str
    answers: tuple[Answer, ...]


def count_verdicts(questions: Sequence[Question]) -> int:
    """How many verdicts they ask for."""
    return sum(len(question.answers) for question in questions)


@dataclass(frozen=True)
class Workload:
    """Questions about the positions `fens`, of one kind; number `i` is always the same."""

    fens: Sequence[str]
    kind: Kind
    reasoning_chars: int

    def questions(self, first: int, count: int) -> list[Question]:
        """`count` questions from number `first` on, or as many as there are."""
        return [self._question(fen) for fen in self.fens[first : first + count]]

    def _question(self, fen: str) -> Question:
        rng = random.Random(fen)
        board = chess.Board(fen)
        legal = list(board.legal_moves)
        if self.kind == "distinct":
            return Question(fen, (self._legal(board, rng.choice(legal), rng),))
        # Fewer legal moves than that: some are answered twice, as a policy would.
        moves = rng.sample(legal, GROUP_LEGAL) if len(legal) >= GROUP_LEGAL else rng.choices(legal, k=6)
        answers = [self._legal(board, move, rng) for move in moves]
        answers += [self._boxed(_illegal(board, rng), None), Answer(self._thought() + "I resign.", None)]
        rng.shuffle(answers)
        return Question(fen, tuple(answers))

    def _legal(self, board: chess.Board, move: chess.Move, rng: random.Random) -> Answer:
        return self._boxed(board.san(move) if rng.random() < 0.5 else move.uci(), move.uci())

    def _boxed(self, text: str, move: str | None) -> Answer:
        return Answer(rf"{self._thought()}\boxed{{{text}}}", move)

    def _thought(self) -> str:
        repeats = self.reasoning_chars // len(_THOUGHT) + 1
        return f"<think>{(_THOUGHT * repeats)[: self.reasoning_chars]}</think>\n\n"


def positions(source: Path, count: int) -> list[str]:
    """FENs of `count` distinct positions of the games in `source`, in the order of the feed."""
    name = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / "rookery-bench" / f"positions-{name}.txt"
    known = path.read_text().splitlines() if path.exists() else []
    if len(known) < count:
        known = _find(source, count)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(known))
    return known[:count]


def _find(source: Path, count: int) -> list[str]:
    from chess_datasets.pgn.collection import GameCollection
    from chess_datasets.positions.numbered import PositionOrder
    from chess_datasets.positions.recipe import Shares

    with closing(GameCollection([source])) as games:
        order = PositionOrder(games, shares=Shares(), split="all")
        return [position.fen for position in islice(order.distinct(seed=0), count)]


def _illegal(board: chess.Board, rng: random.Random) -> str:
    legal = {(move.from_square, move.to_square) for move in board.legal_moves}
    while True:
        squares = rng.sample(chess.SQUARES, 2)
        if (squares[0], squares[1]) not in legal:
            return chess.Move(*squares).uci()

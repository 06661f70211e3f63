"""What an engine says about one position: the input of `write`, and the evidence for claims about scores."""

import math
from dataclasses import dataclass

import chess

MATE_CP = 50_000
CEILING_CP = 1000
"""Scores beyond it, mates too, are as good as each other when moves are compared (scalachess, Cp.CEILING)."""

_LICHESS_K = 0.00368208
"""Per centipawn (lichess-org/lila, PR 11148)."""


@dataclass(frozen=True, slots=True)
class Score:
    """An engine's score for the side to move: centipawns, or moves to mate (negative: it is mated)."""

    cp: int | None = None
    mate: int | None = None

    @property
    def value(self) -> int:
        """Centipawns, a mate beyond every other score and the nearer the further beyond.

        >>> [Score(cp=35).value, Score(mate=2).value, Score(mate=-1).value]
        [35, 49998, -49999]
        """
        if self.mate is not None:
            return MATE_CP - self.mate if self.mate > 0 else -MATE_CP - self.mate
        return self.cp or 0

    @property
    def capped(self) -> int:
        """The value within +-`CEILING_CP`."""
        return max(-CEILING_CP, min(CEILING_CP, self.value))

    @property
    def rank(self) -> tuple[int, int]:
        """What orders moves: the capped value, then how near a mate is.

        >>> Score(mate=1).rank > Score(mate=4).rank > Score(cp=1500).rank == Score(cp=1200).rank
        True
        """
        return self.capped, self.value if self.mate is not None else 0

    @property
    def win(self) -> float:
        """The win probability of the side to move, by Lichess's formula, in [0, 1].

        >>> round(Score(cp=300).win, 3)
        0.751
        """
        return 1 / (1 + math.exp(-_LICHESS_K * self.capped))


@dataclass(frozen=True, slots=True)
class StudyLine:
    """Moves in UCI, and the score for the side that begins them."""

    score: Score
    moves: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Study:
    """A position and what an engine found there.

    `lines` are the best moves, best first. `refuted` are natural moves that are not among them, each with
    the line against it. `threat` is what the other side plays if the mover passes, scored for that side.
    `last` is the other side's last move, if it is known: so that taking back is not told as a gain.
    """

    fen: str
    lines: tuple[StudyLine, ...] = ()
    refuted: tuple[StudyLine, ...] = ()
    threat: StudyLine | None = None
    last: str | None = None

    @property
    def best(self) -> StudyLine | None:
        return self.lines[0] if self.lines else None

    def line_of(self, uci: str) -> StudyLine | None:
        return next((line for line in (*self.lines, *self.refuted) if line.moves[0] == uci), None)


def sound_board(fen: str) -> chess.Board:
    """The board of a FEN. Raises `ValueError` if the FEN is broken, or the position cannot come about in a
    game."""
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise ValueError(f"no position: {fen!r}: {error}") from error
    if not board.is_valid():
        raise ValueError(f"impossible position: {fen!r}: {board.status()!r}")
    return board

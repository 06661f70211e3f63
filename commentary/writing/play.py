"""A line of play, replayed once: boards, and what it changes in material.

`Play.rest` finds where a line may be cut without misleading: where the side to move is not in check, no
capture pays, and no piece of its own hangs. What is said of a line's end is said there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import chess

from commentary.concepts.material import counts, lead, points
from commentary.exchange import best_gain, passed_turn

_MORE_PLIES = 5
"""How far beyond its length a line may go to come to rest."""

_PIECE = 2
"""In pawns, at least: a pawn that hangs is no unrest."""

_MUCH_BETTER = 3
"""From this degree on a line is to show what decides."""


@dataclass(frozen=True, slots=True)
class Swing:
    """What a line brings a side: pieces `won` and `lost`, like cancelled against like."""

    won: tuple[int, ...]
    lost: tuple[int, ...]

    @property
    def points(self) -> int:
        return points(self.won) - points(self.lost)


_NOTHING = Swing((0,) * 5, (0,) * 5)


@dataclass(frozen=True, slots=True)
class Play:
    """Moves from a board: `boards[0]` is the start, `boards[i]` the position after `moves[i - 1]`."""

    moves: tuple[chess.Move, ...]
    boards: tuple[chess.Board, ...]

    @classmethod
    def of(cls, board: chess.Board, line: Sequence[str], *, longest: int) -> Self:
        """Replays at most `longest` moves of a line. Raises `ValueError` if a move cannot be played."""
        boards, moves = [board], []
        for uci in line[:longest]:
            following = boards[-1].copy(stack=False)
            move = following.parse_uci(uci)
            following.push(move)
            moves.append(move)
            boards.append(following)
        return cls(tuple(moves), tuple(boards))

    @property
    def end(self) -> chess.Board:
        return self.boards[-1]

    def cut(self, plies: int) -> "Play":
        return Play(self.moves[:plies], self.boards[: plies + 1])

    def swing(self, side: chess.Color) -> Swing:
        """What the whole line brings `side`; nothing, as far as one can tell, while captures are going on."""
        if not self.end.is_checkmate() and not at_rest(self.end):
            return _NOTHING
        before, after = (counts(board, side) for board in (self.boards[0], self.end))
        theirs = [counts(board, not side) for board in (self.boards[0], self.end)]
        change = [(b - a) - (d - c) for a, b, c, d in zip(before, after, *theirs, strict=True)]
        return Swing(tuple(max(0, n) for n in change), tuple(max(0, -n) for n in change))

    def rest(self, *, least: int, most: int) -> "Play":
        """The shortest beginning that says what the line comes to.

        At least `least` moves where there are so many, ending at rest, with the material of the longest
        beginning of at most `most` moves that ends at rest. Mate ends a line. Where there is no rest so
        soon, the first one a few moves later, or all `most`.
        """
        if self.end.is_checkmate() and len(self.moves) <= most + 4:
            return self
        rests = [ply for ply in range(1, min(most, len(self.moves)) + 1) if at_rest(self.boards[ply])]
        if not rests:
            later = range(most + 1, min(most + _MORE_PLIES, len(self.moves)) + 1)
            return self.cut(next((ply for ply in later if at_rest(self.boards[ply])), self._taken_back(most)))
        final = _all_counts(self.boards[rests[-1]])
        for ply in rests:
            if ply >= least and _all_counts(self.boards[ply]) == final:
                return self.cut(ply)
        return self.cut(rests[-1])

    def _taken_back(self, ply: int) -> int:
        """`ply`, or later if what was taken there is taken back at once."""
        squares = [move.to_square for move in self.moves]
        while 0 < ply < len(squares) and squares[ply] == squares[ply - 1]:
            ply += 1
        return ply

    def to_the_point(self, beginning: "Play", side: chess.Color, degree: int) -> "Play":
        """`beginning`, or a longer one if it does not show why `side` stands as it does, from -4 to 4.

        A piece that was given up comes back, and who stands much better wins one or mates. A line that never
        shows it stays as it is.
        """
        leader = side if degree > 0 or (degree == 0 and beginning.swing(side).points < 0) else not side
        much = abs(degree) >= _MUCH_BETTER
        longer = (self.cut(ply) for ply in range(len(beginning.moves), len(self.moves) + 1))
        return next((play for play in longer if play.shows(leader, much=much)), beginning)

    def shows(self, leader: chess.Color, *, much: bool) -> bool:
        """Whether its end shows that `leader` stands no worse, or `much` better."""
        if self.end.is_checkmate():
            return True
        won = lead(self.end, leader) >= _PIECE if much else self.swing(leader).points > -_PIECE
        return won and at_rest(self.end)


def at_rest(board: chess.Board) -> bool:
    """Whether the side to move is not in check, has no capture that pays, and no piece that hangs."""
    passed = passed_turn(board)
    return passed is not None and best_gain(board) <= 0 and best_gain(passed) < _PIECE


def _all_counts(board: chess.Board) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return counts(board, chess.WHITE), counts(board, chess.BLACK)

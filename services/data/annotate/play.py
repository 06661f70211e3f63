"""A line of play, replayed once: boards, SAN, and what it changes in material.

`Play.rest` finds where a line may be cut without misleading: where the side to move is not in check,
no capture pays, and no piece of its own hangs. What is said of a line's end is said there; of
the material at the end of a line that finds no rest nothing is said.
"""

from __future__ import annotations

from dataclasses import dataclass

import chess

from services.data.annotate.exchange import VALUES, best_gain, passed_turn
from services.data.annotate.facts.material import KINDS, counts

_MORE_PLIES = 5
"""How far beyond its length a line may go to come to rest."""

_KNIGHT, _BISHOP = KINDS.index(chess.KNIGHT), KINDS.index(chess.BISHOP)


@dataclass(frozen=True, slots=True)
class Swing:
    """What a line brings `side`: pieces `won` and `lost`, like cancelled against like.

    Both count pawns, knights, bishops, rooks, queens.
    """

    won: tuple[int, ...]
    lost: tuple[int, ...]

    @property
    def points(self) -> int:
        """What was won minus what was lost."""
        change = (won - lost for won, lost in zip(self.won, self.lost, strict=True))
        return sum(more * VALUES[kind] for more, kind in zip(change, KINDS, strict=True))

    @property
    def plain(self) -> Swing:
        """The same with knights and bishops cancelled against each other."""
        knights, bishops = _KNIGHT, _BISHOP
        won, lost = list(self.won), list(self.lost)
        for one, other in ((knights, bishops), (bishops, knights)):
            traded = min(won[one], lost[other])
            won[one] -= traded
            lost[other] -= traded
        return Swing(tuple(won), tuple(lost))

    @property
    def level(self) -> bool:
        """Whether nothing was won or lost."""
        return not any(self.won) and not any(self.lost)


_NOTHING = Swing((0,) * len(KINDS), (0,) * len(KINDS))
_PIECE = 2
"""In pawns, at least: a pawn that hangs is no unrest."""


@dataclass(frozen=True, slots=True)
class Play:
    """Moves from a board: `boards[0]` is the start, `boards[i]` the position after `moves[i - 1]`."""

    moves: tuple[chess.Move, ...]
    boards: tuple[chess.Board, ...]

    @classmethod
    def of(cls, board: chess.Board, pv: tuple[str, ...], *, longest: int) -> Play:
        """Replays at most `longest` moves of a line."""
        moves = tuple(chess.Move.from_uci(uci) for uci in pv[:longest])
        boards = [board]
        for move in moves:
            following = boards[-1].copy(stack=False)
            following.push(move)
            boards.append(following)
        return cls(moves, tuple(boards))

    @property
    def end(self) -> chess.Board:
        """The last position."""
        return self.boards[-1]

    def cut(self, plies: int) -> Play:
        """The first `plies` moves."""
        return Play(self.moves[:plies], self.boards[: plies + 1])

    def swing(self, side: chess.Color) -> Swing:
        """What the whole line brings `side`; nothing, as far as one can tell, while captures are going on."""
        if not self.end.is_checkmate() and not at_rest(self.end):
            return _NOTHING
        return swing(self.boards[0], self.end, side)

    def rest(self, *, least: int, most: int) -> Play:
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
            return self.cut(next((ply for ply in later if at_rest(self.boards[ply])), most))
        final = counts_of(self.boards[rests[-1]])
        for ply in rests:
            if ply >= least and counts_of(self.boards[ply]) == final:
                return self.cut(ply)
        return self.cut(rests[-1])


def swing(start: chess.Board, end: chess.Board, side: chess.Color) -> Swing:
    """The change in material between two positions, as `side` sees it."""
    own = _change(start, end, side)
    enemy = _change(start, end, not side)
    net = [o - e for o, e in zip(own, enemy, strict=True)]
    return Swing(tuple(max(0, n) for n in net), tuple(max(0, -n) for n in net))


def at_rest(board: chess.Board) -> bool:
    """Whether the side to move is not in check, has no capture that pays, and no piece that hangs."""
    passed = passed_turn(board)
    return passed is not None and best_gain(board) <= 0 and best_gain(passed) < _PIECE


def counts_of(board: chess.Board) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pieces of both sides."""
    return counts(board, chess.WHITE), counts(board, chess.BLACK)


def _change(start: chess.Board, end: chess.Board, side: chess.Color) -> tuple[int, ...]:
    return tuple(e - s for s, e in zip(counts(start, side), counts(end, side), strict=True))

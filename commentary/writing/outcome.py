"""What a line comes to, in words: mate, material, what has become of the pawns, who stands better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import chess

from commentary.concept import CONCEPTS, Finding
from commentary.concepts.material import balance, is_exchange, plain, points, surpluses
from commentary.concepts.standings import degree
from commentary.study import Score
from commentary.writing.play import Play, Swing
from commentary.writing.writer import Writer

_SPEAKING = ("passed pawn", "connected passed pawns", "rook on the seventh", "isolated pawn", "doubled pawns")
"""Concepts that may be worth a word when a line has brought them about."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a line whose score is given for the side that begins it; `mover` plays the candidate."""

    writer: Writer
    play: Play
    score: Score
    mover: chess.Color
    feature: Finding | None = None
    back: bool = False
    """Whether the line begins by taking back."""

    @classmethod
    def of(cls, writer: Writer, play: Play, score: Score, *, good_for: chess.Color, back: bool) -> Self:
        """With something about pawns or files that the line has brought and that a side is happy about."""
        return cls(writer, play, score, writer.case.mover, _feature(play, good_for), back)

    @property
    def mates(self) -> bool:
        """Whether the line ends in mate."""
        return self.play.end.is_checkmate()

    @property
    def tells(self) -> bool:
        """Whether there is more to say than who stands better."""
        return self.mates or bool(self._swing.points) or self.feature is not None

    @property
    def _swing(self) -> Swing:
        return self.play.swing(self.mover)

    def gain(self) -> str:
        """The one thing to say of it."""
        return self._mate() if self.mates else self._material() or self.verdict()

    def verdict(self) -> str:
        """Who stands better."""
        return self.writer.verdict(self.score, self.play.boards[0].turn)

    def clauses(self, *, brief: bool) -> str:
        """The clauses worth saying, joined."""
        if self.mates:
            return self._mate()
        material, feature = self._material(), self._feature(brief)
        parts = [part for part in (material, feature) if part]
        if material is not None and ", but " in material:
            return material
        if not parts or (len(parts) < 2 and (not brief or self.writer.chance(0.35))):
            parts.append(self.verdict())
        return self.writer.together(parts)

    def of_line(self, line: tuple[chess.Board, Sequence[chess.Move]]) -> str | None:
        """A clause with the line as its subject, where that can be said."""
        if self.mates:
            return self.writer.say("line mates", line=line)
        change = self._swing
        winner = self.mover if change.points > 0 else not self.mover
        won, lost = plain(*_sorted(change))
        if not change.points or winner != self._leader or any(lost) or self._restores:
            return None
        return self.writer.say("line wins", line=line, won=won, side=winner, other=not winner)

    def _mate(self) -> str:
        return self.writer.say("it is mate", mated=self.play.end.turn)

    @property
    def _leader(self) -> chess.Color | None:
        """The side that stands better."""
        found, starter = degree(self.score), self.play.boards[0].turn
        return None if not found else (starter if found > 0 else not starter)

    @property
    def _restores(self) -> bool:
        """Whether the line only brings back what was lost before it: that is no gain worth the word."""
        if self.back:
            return True
        before, after = (_lead(board, self.mover) for board in (self.play.boards[0], self.play.end))
        return abs(after) < abs(before) and before * after >= 0

    def _material(self) -> str | None:
        """What was won, unless that would sound as if it told who is better when it does not."""
        change, end = self._swing, self.play.end
        if not any(change.won) and not any(change.lost):
            return None
        winner = (self.mover if change.points > 0 else not self.mover) if change.points else None
        lead = _lead(end, True)
        ahead = None if not lead else lead > 0
        if self._restores:
            return self._balance() if ahead in (None, self._leader) else None
        if winner is None or winner == self._leader:
            return self._balance() if winner is not None and self.writer.chance(0.3) else self._change(change)
        if ahead is not None and ahead == self._leader:
            return self._balance()
        return f"{self._change(change)}, but {self.verdict()}" if self.writer.chance(0.5) else None

    def _balance(self) -> str:
        concept, values = balance(self.play.end)
        return CONCEPTS[concept].write(self.writer.naming, values)

    def _change(self, change: Swing) -> str:
        """What was won by whom; a gain of the side to move is told as its gain."""
        side = self.mover if change.points >= 0 else not self.mover
        won, lost = _sorted(change)
        values = {"side": side, "other": None if side == self.mover else not side}
        if is_exchange(won, lost):
            return self.writer.say("wins the exchange", **values)
        if not change.points:
            return self.writer.say("gives one for another", side=side, won=won, lost=lost)
        won, lost = plain(won, lost)
        if any(lost):
            return self.writer.say("wins one for another", won=won, lost=lost, **values)
        return self.writer.say("wins material", won=won, **values)

    def _feature(self, brief: bool) -> str | None:
        if brief and self._swing.points:
            return None
        start, end = self.play.boards[0], self.play.end
        both = all(start.pieces_mask(chess.QUEEN, side) for side in chess.COLORS)
        if both and not end.queens and self.writer.chance(0.6):
            return self.writer.say("queens come off")
        return self.writer.state(end, self.feature) if self.feature else None


def _sorted(change: Swing) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the winner won, and what it gave for it."""
    return (change.won, change.lost) if change.points >= 0 else (change.lost, change.won)


def _lead(board: chess.Board, side: chess.Color) -> int:
    more, less = surpluses(board, side)
    return points(more) - points(less)


def _feature(play: Play, side: chess.Color) -> Finding | None:
    before = {_key(finding) for finding in _speaking(play.boards[0])}
    fresh = [f for f in _speaking(play.end) if f.favours == side and _key(f) not in before]
    return fresh[0] if fresh else None


def _speaking(board: chess.Board) -> Iterator[Finding]:
    for name in _SPEAKING:
        concept = CONCEPTS[name]
        for values in concept.detect(board) if concept.detect else ():
            yield Finding(concept, values, 0.0)


def _key(finding: Finding) -> tuple[object, ...]:
    """The same weakness on the same file is not news, wherever its pawn stands now."""
    return finding.concept.name, finding.favours, tuple(chess.square_file(s) for s in finding.squares)

"""Words for what a line comes to: mate, material, who stands better, what has become of the pawns."""

from __future__ import annotations

from dataclasses import dataclass

import chess

from rookery.trace import Evaluation
from services.data.annotate.facts import Fact
from services.data.annotate.facts import files as file_facts
from services.data.annotate.facts import pawns as pawn_facts
from services.data.annotate.facts.material import balance
from services.data.annotate.play import Play, Swing
from services.data.annotate.standing import Standing, standing
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.prose import together
from services.data.annotate.voice.wordings import FACTS
from services.data.annotate.voice.wordings.ends import (
    BETTER,
    EQUAL,
    LINE_MATES,
    LINE_WINS,
    LINE_WINS_FOR,
    QUEENS_OFF,
    WITH,
)
from services.data.annotate.voice.wordings.material import ahead, is_exchange, units

_SPEAKING = (
    pawn_facts.Passed,
    pawn_facts.Isolated,
    pawn_facts.Doubled,
    file_facts.Seventh,
    pawn_facts.Connected,
)
"""Facts that may be worth a word when a line has brought them about."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a line whose score is given for the side that begins it.

    Words are made when they are asked for, so that only pieces that are mentioned count as mentioned.
    """

    pen: Pen
    play: Play
    evaluation: Evaluation
    feature: Fact | None = None

    @classmethod
    def of(cls, pen: Pen, play: Play, evaluation: Evaluation, *, good_for: chess.Color) -> Outcome:
        """With something about pawns or files that the line has brought and that a side is happy about."""
        return cls(pen, play, evaluation, _feature(play, good_for))

    @property
    def mates(self) -> bool:
        """Whether the line ends in mate."""
        return self.play.end.is_checkmate()

    @property
    def swings(self) -> bool:
        """Whether it changes the material."""
        return not self.play.swing(self.pen.root.turn).level

    @property
    def tells(self) -> bool:
        """Whether there is more to say than who stands better."""
        return self.mates or self.swings or self.feature is not None

    def gain(self) -> str:
        """The one thing to say of it."""
        if self.mates:
            return _mate(self.pen, self.play)
        return self._material() or self.verdict()

    def verdict(self) -> str:
        """Who stands better."""
        return verdict(self.pen, self.evaluation, self.play.boards[0].turn)

    def clauses(self, *, brief: bool) -> str:
        """The clauses worth saying, joined."""
        if self.mates:
            return _mate(self.pen, self.play)
        parts = [part for part in (self._material(), self._feature(brief)) if part]
        if parts and "but " in parts[0]:
            return parts[0]
        if not parts or (len(parts) < 2 and (not brief or self.pen.chance(0.35))):
            parts.append(self.verdict())
        return together(self.pen, parts)

    @property
    def _leader(self) -> chess.Color | None:
        """The side that stands better."""
        degree = standing(self.evaluation)
        starter = self.play.boards[0].turn
        return None if degree == Standing.EQUAL else (starter if degree > 0 else not starter)

    def _material(self) -> str | None:
        """What was won, unless that would sound as if it told who is better when it does not."""
        side = self.pen.root.turn
        change = self.play.swing(side)
        if change.level:
            return None
        winner = (side if change.points > 0 else not side) if change.points else None
        ahead_ = balance(self.play.end).favours
        if winner == self._leader or winner is None:
            return material(self.pen, self.play)
        if ahead_ == self._leader and ahead_ is not None:
            return _balance(self.pen, self.play)
        return f"{material(self.pen, self.play)}, but {self.verdict()}" if self.pen.chance(0.5) else None

    def _feature(self, brief: bool) -> str | None:
        if brief and self.swings:
            return None
        if self._trades_queens() and self.pen.chance(0.6):
            return self.pen.pick(QUEENS_OFF)
        return FACTS[type(self.feature)](self.pen, self.play.end, self.feature) if self.feature else None

    def _trades_queens(self) -> bool:
        start, end = self.play.boards[0], self.play.end
        both = all(start.pieces_mask(chess.QUEEN, side) for side in chess.COLORS)
        return both and not end.queens

    def with_subject(self, line: str) -> str | None:
        """A clause with the line as its subject, where that can be said."""
        slots: dict[str, object] = {"line": line}
        if self.mates:
            return self.pen.say(LINE_MATES, **slots)
        change = self.play.swing(self.pen.root.turn)
        side = self.pen.root.turn if change.points > 0 else not self.pen.root.turn
        won = change.plain.won if change.points > 0 else change.plain.lost
        lost = change.plain.lost if change.points > 0 else change.plain.won
        if not change.points or side != self._leader or is_exchange(won, lost):
            return None
        options = LINE_WINS if not any(lost) else LINE_WINS_FOR
        slots |= {"side": self.pen.side(side), "other": self.pen.side(not side)}
        return self.pen.say(options, won=units(won), lost=units(lost), **slots)


def _mate(pen: Pen, play: Play) -> str:
    return pen.say(
        ("it is mate", "that is mate", "it is checkmate", "{side.is_} mated", "the game is over"),
        side=pen.side(play.end.turn),
    )


def verdict(pen: Pen, evaluation: Evaluation, starter: chess.Color) -> str:
    """Who stands better by the score, as a clause."""
    degree = standing(evaluation)
    if degree == Standing.EQUAL:
        return pen.say(EQUAL)
    side = starter if degree > 0 else not starter
    return pen.say(BETTER[Standing(abs(degree))], side=pen.side(side), other=pen.side(not side))


def with_verdict(pen: Pen, evaluation: Evaluation, starter: chess.Color) -> str:
    """The same as a phrase to end a sentence with."""
    degree = standing(evaluation)
    side = starter if degree > 0 else not starter
    return pen.say(WITH[Standing(abs(degree))], side=pen.side(side))


def material(pen: Pen, play: Play) -> str:
    """What the line has won, or who is ahead at its end."""
    side = pen.root.turn
    change = play.swing(side)
    if change.points < 0 or (change.points == 0 and play.boards[0].turn != side):
        side, change = not side, Swing(change.lost, change.won)
    if change.points and pen.chance(0.4):
        return _balance(pen, play) or _swing(pen, change, side)
    return _swing(pen, change, side)


def _balance(pen: Pen, play: Play) -> str | None:
    fact = balance(play.end)
    if fact.points == 0:
        return "material is level" if not any(fact.white) and not any(fact.black) else None
    side = fact.points > 0
    return ahead(pen, Swing(fact.surplus(side), fact.surplus(not side)), side)


_WON_EXCHANGE = (
    "{side.has} won the exchange",
    "{other.has} lost the exchange",
    "{side.do[win]} the exchange",
)
_TRADED = ("{side.has} given {lost} for {won}", "{other.has} given {won} for {lost}")
_WON_FOR = (
    "{side.has} won {won} for {lost}",
    "{side.do[get]} {won} for {lost}",
    "{side.do[win]} {won} for {lost}",
)
_WON = (
    "{side.has} won {won}",
    "{other.has} lost {won}",
    "{side.do[win]} {won}",
    "{other.do[lose]} {won}",
    "{side.do[pick]} up {won}",
    "{other.do[drop]} {won}",
)


def _swing(pen: Pen, change: Swing, side: chess.Color) -> str:
    slots = {"side": pen.side(side), "other": pen.side(not side)}
    if is_exchange(change.won, change.lost):
        return pen.say(_WON_EXCHANGE, **slots)
    if change.plain.level:
        return pen.say(_TRADED, won=units(change.won), lost=units(change.lost), **slots)
    won, lost = units(change.plain.won), units(change.plain.lost)
    return pen.say(_WON_FOR if lost else _WON, won=won, lost=lost, **slots)


def _feature(play: Play, side: chess.Color) -> Fact | None:
    before = {_key(fact) for fact in _speaking(play.boards[0])}
    fresh = [fact for fact in _speaking(play.end) if fact.favours == side and _key(fact) not in before]
    return fresh[0] if fresh else None


def _speaking(board: chess.Board) -> list[Fact]:
    found = [*pawn_facts.structure(board), *file_facts.files(board)]
    return [fact for fact in found if isinstance(fact, _SPEAKING)]


def _key(fact: Fact) -> tuple[object, ...]:
    """The same weakness on the same file is not news, wherever its pawn stands now."""
    return type(fact), fact.favours, tuple(chess.square_file(square) for square in fact.squares)

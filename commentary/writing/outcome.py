"""How the game goes on after a candidate, and what it comes to: mate, material, pawns, who stands better."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import chess

from commentary.concept import CONCEPTS, Finding, move_findings
from commentary.concepts.material import balance, is_exchange, lead, plain
from commentary.concepts.standings import degree
from commentary.naming import numbered
from commentary.step import Step
from commentary.study import Score
from commentary.template import finite
from commentary.writing.case import Loss, telling
from commentary.writing.play import Play, Swing
from commentary.writing.writer import Topic, Writer, sentence

_WORTH_A_WORD = 3.2
"""The weight of an effect from which on a reply is explained by it."""

_PROBLEMS = (
    "the problem is {line}: {outcome}",
    "the snag is {line}, and {outcome}",
    "the trouble is {line}, when {outcome}",
)
_REFUTED = (
    "{m} runs into {line}, and {outcome}",
    "it is met by {line}, and {outcome}",
    "it fails to {line}: {outcome}",
    "it allows {line}, and {outcome}",
)
_BUT = ("but {them} {have} {line}, and {outcome}", "it runs into {line}, and {outcome}")

_AFTER = ("after ", "following ")
"""How lines begin that are no sentences by themselves."""

_NOTABLE = ("passed pawn", "connected passed pawns", "rook on the seventh", "isolated pawn", "doubled pawns")
"""Concepts that may be worth a word when a line has brought them about."""


@dataclass(frozen=True, slots=True)
class LineOutcome:
    """The end of a line whose score is given for the side that begins it; `mover` plays the candidate."""

    writer: Writer
    play: Play
    score: Score
    mover: chess.Color
    feature: Finding | None = None
    """Something about pawns or files that the line has brought."""
    back: bool = False
    """Whether the line begins by taking back."""

    @property
    def mates(self) -> bool:
        return self.play.end.is_checkmate()

    @property
    def tells(self) -> bool:
        """Whether there is more to say than who stands better."""
        return self.mates or bool(self._swing.points) or self.feature is not None

    @property
    def _swing(self) -> Swing:
        return self.play.swing(self.mover)

    def gain(self) -> str:
        """The most important thing to say of it: mate, else material, else who stands better."""
        return self._mate() if self.mates else self._material() or self.verdict()

    def verdict(self) -> str:
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
            if feature and self.feature and self.feature.favours not in (None, self._leader):
                return f"{self.writer.together(parts)}, but {self.verdict()}"
            parts.append(self.verdict())
        return self.writer.together(parts)

    def of_line(self, line: tuple[chess.Board, Sequence[chess.Move]]) -> str | None:
        """A clause with the line as its subject, where that can be said."""
        if self.mates:
            return self.writer.say("line mates", line=line)
        change = self._swing
        winner = self.mover if change.points > 0 else not self.mover
        won, lost = plain(*_gain_and_cost(change))
        if not change.points or winner != self._leader or any(lost) or self._restores:
            return None
        return self.writer.say("line wins", line=line, won=won, side=winner, other=not winner)

    def _mate(self) -> str:
        return self.writer.say("it is mate", mated=self.play.end.turn)

    @property
    def _leader(self) -> chess.Color | None:
        advantage, starter = degree(self.score), self.play.boards[0].turn
        return None if not advantage else (starter if advantage > 0 else not starter)

    @property
    def _restores(self) -> bool:
        """Whether the line only wins back what was lost before it, which is no gain."""
        if self.back:
            return True
        before, after = (lead(board, self.mover) for board in (self.play.boards[0], self.play.end))
        return abs(after) < abs(before)

    def _material(self) -> str | None:
        """What was won, unless that would suggest that the wrong side is better."""
        change, end = self._swing, self.play.end
        if not any(change.won) and not any(change.lost):
            return None
        winner = (self.mover if change.points > 0 else not self.mover) if change.points else None
        more = lead(end, chess.WHITE)
        ahead = None if not more else more > 0
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
        """What was won by whom; what the side to move gained is told as its gain."""
        side = self.mover if change.points >= 0 else not self.mover
        won, lost = _gain_and_cost(change)
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


def _gain_and_cost(change: Swing) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the winner won, and what it gave for it."""
    return (change.won, change.lost) if change.points >= 0 else (change.lost, change.won)


def _feature(play: Play, side: chess.Color) -> Finding | None:
    before = {_key(finding) for finding in _notable_findings(play.boards[0])}
    fresh = [f for f in _notable_findings(play.end) if f.favours == side and _key(f) not in before]
    return fresh[0] if fresh else None


def _notable_findings(board: chess.Board) -> Iterator[Finding]:
    for name in _NOTABLE:
        concept = CONCEPTS[name]
        for values in concept.detections(board):
            yield Finding(concept, values, 0.0)


def _key(finding: Finding) -> tuple[object, ...]:
    """What a finding is known again by: a weakness on the same file is not news, wherever its pawn stands."""
    return finding.concept.name, finding.favours, tuple(chess.square_file(s) for s in finding.squares)


def follow_line(writer: Writer, topic: Topic, *, warned: bool) -> list[str]:
    """The line after the move and what it comes to; `warned` when what is wrong with it was just said."""
    play, candidate = topic.play, topic.candidate
    if len(play.moves) < 2:
        return []
    good_for = writer.case.mover if candidate.is_best else (not writer.case.mover)
    feature = _feature(play, good_for)
    end = LineOutcome(
        writer, play, candidate.score, mover=writer.case.mover, feature=feature, back=candidate.retakes
    )
    if explained := _explained(writer, topic, end, warned=warned):
        return explained
    line = (play.boards[1], play.moves[1:])
    if writer.chance(0.25) and (clause := end.of_line(line)):
        writer.topic = clause
        return [sentence(clause)]
    if not end.tells and writer.chance(0.35):
        opening = _line(writer, line)
        verdict = writer.verdict if opening.startswith(_AFTER) else writer.ending
        return [sentence(f"{opening}, {verdict(candidate.score, writer.case.mover)}")]
    outcome = end.clauses(brief=writer.length.remarks <= 3)
    if candidate.loss >= Loss.MUCH and writer.chance(0.7):
        options = (*_REFUTED, *(() if warned else (*_PROBLEMS, *_BUT)))
        slots = {"m": topic.name, "line": numbered(*line), "outcome": outcome}
        have = writer.naming.them.verb("have")
        return [sentence(writer.pick(options, them=writer.naming.them.word, have=have, **slots))]
    if len(play.moves) > 3 and writer.chance(0.3):
        return [sentence(_line_in_two(writer, play, outcome))]
    return [sentence(_outcome_after(writer, line, outcome))]


def _line(writer: Writer, line: tuple[chess.Board, Sequence[chess.Move]]) -> str:
    """A clause that plays the line."""
    kind = writer.naming.least_used(["line", "bare", "side", "expected"])
    if kind == 1:
        return numbered(*line)
    if kind == 2:
        return writer.say("line of a side", side=line[0].turn, line=line)
    if kind == 3 and writer.voice.person != "third":
        return writer.say("expected line", us=writer.case.mover, line=line)
    return writer.say("line", line=line)


def _outcome_after(writer: Writer, line: tuple[chess.Board, Sequence[chess.Move]], outcome: str) -> str:
    clause = _line(writer, line)
    if clause.startswith(_AFTER):
        return f"{clause}, {outcome}"
    joints = ("{line}, and {outcome}", "notebook|{line}; {outcome}", "{line}, when {outcome}")
    return writer.pick(joints, line=clause, outcome=outcome)


def _line_in_two(writer: Writer, play: Play, outcome: str) -> str:
    first = writer.say("best reply", line=(play.boards[1], play.moves[1:2]))
    rest = numbered(play.boards[2], play.moves[2:])
    options = (
        "{first}, and after {rest}, {outcome}",
        "{first}; after {rest}, {outcome}",
        "{first}; then {rest}, and {outcome}",
    )
    return writer.pick(options, first=first, rest=rest, outcome=outcome)


def _explained(writer: Writer, topic: Topic, end: LineOutcome, *, warned: bool) -> list[str]:
    """The line with a word on what the reply does, if it does something worth it."""
    play, candidate = topic.play, topic.candidate
    reply = Step.of(play.boards[1], play.moves[1])
    effects = telling(reply, move_findings(reply), _WORTH_A_WORD)
    if candidate.step.victim is not None and reply.victim == candidate.step.target:
        # That it takes back is plain.
        effects = [effect for effect in effects if effect.concept.name != "captures"]
    if not effects or end.mates or not writer.chance(0.5 if candidate.is_best else 0.7):
        return []
    first = numbered(play.boards[1], play.moves[1:2])
    writer.topic = first
    count = 2 if writer.length.effects > 1 and writer.chance(0.4) else 1
    does = finite(writer.phrase(reply, effects[:count]))
    rest = numbered(play.boards[2], play.moves[2:]) if len(play.moves) > 2 else ""
    outcome = end.clauses(brief=True)
    outcome = f"after {rest}, {outcome}" if rest else outcome
    have, answer = (
        f"{writer.naming.them.word} {writer.naming.them.verb(verb)}" for verb in ("have", "answer")
    )
    which = f"{first}, which {does}"
    options = [f"{answer} {which}", f"the reply is {which}", f"{first} {does}", f"{have} {which}"]
    if candidate.loss >= Loss.SOME and writer.chance(0.7):
        options = [f"it allows {which}"]
        options += [] if warned else [f"it runs into {which}", f"but {have} {which}"]
    kind = writer.naming.least_used([f"explained {len(options)} {n}" for n in range(len(options))])
    return [sentence(f"{options[kind]}, and {outcome}")]

"""What the position is about: the facts worth saying, in an order that leads from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from services.data.annotate.case import Case
from services.data.annotate.facts import Fact
from services.data.annotate.facts import files as file_facts
from services.data.annotate.facts import kings as king_facts
from services.data.annotate.facts import mates as mate_facts
from services.data.annotate.facts import pawns as pawn_facts
from services.data.annotate.facts import pieces as piece_facts
from services.data.annotate.facts import tactics as tactic_facts
from services.data.annotate.voice.maxims import MAXIMS
from services.data.annotate.voice.outcome import verdict
from services.data.annotate.voice.pen import Pen
from services.data.annotate.voice.prose import join_clauses, linked, sentence
from services.data.annotate.voice.salience import topic, weigh
from services.data.annotate.voice.wordings import FACTS
from services.data.annotate.voice.wordings.files import several_open
from services.data.annotate.voice.wordings.pawns import several_isolated

_LEAST_WEIGHT = 1.0
_MOST_OF_A_TYPE = 2
_SAYS = 0.12
"""How often a coach comes up with a saying."""

_TOLD_MATES = 0.3
"""How often a mate in one is announced before it is found among the candidates."""

_MANY = 3
"""Open files or weak pawns beyond which a list of them says nothing."""

_SAME_TOPIC = 1.2
_SAME_PIECES = 1.0
_PREAMBLE_FACTS = 3
_LONG_CLAUSE = 70
"""Characters beyond which two clauses do not share a sentence."""

_NOTICE = (
    "coach|the first thing to notice is that",
    "coach|note that",
    "calculator|I see that",
    "calculator|I notice that",
    "annotator|it matters that",
    "coach|it helps to see that",
    "calculator|what strikes me is that",
    "annotator|what stands out is that",
)


@dataclass(frozen=True, slots=True)
class Remark:
    """One or more facts of a kind, to be said in one clause."""

    facts: tuple[Fact, ...]
    weight: float

    @property
    def first(self) -> Fact:
        """The fact that stands for all."""
        return self.facts[0]

    @property
    def favours(self) -> chess.Color | None:
        """The side that is happier about it."""
        return self.first.favours

    @property
    def squares(self) -> set[chess.Square]:
        """Squares of the pieces involved."""
        return {square for fact in self.facts for square in fact.squares}


def orientation(pen: Pen, case: Case) -> list[str]:
    """Sentences about the position as it stands."""
    chosen = _ordered(_chosen(pen, case))
    clauses = [(_words(pen, case.board, remark), remark) for remark in chosen]
    return [*_preamble(pen, case), *_flow(pen, clauses)]


def _preamble(pen: Pen, case: Case) -> list[str]:
    """Now and then the verdict or the side to move comes before all else."""
    if pen.length.facts < _PREAMBLE_FACTS or not pen.chance(0.22):
        return []
    if pen.chance(0.4) and pen.voice.person == "third":
        return [sentence(f"{pen.us} to move")]
    return [sentence(verdict(pen, case.best.evaluation, case.mover))]


# -- what to say -----------------------------------------------------------------------------------


def _chosen(pen: Pen, case: Case) -> list[Remark]:
    remarks = sorted(_remarks(pen, case), key=lambda remark: -remark.weight)
    count = pen.length.facts
    chosen: list[Remark] = []
    for remark in remarks:
        same = sum(type(other.first) is type(remark.first) for other in chosen)
        repeats = any(_repeats(remark.first, other.first) for other in chosen)
        if remark.weight >= _LEAST_WEIGHT and same < _MOST_OF_A_TYPE and not repeats:
            chosen.append(remark)
        if len(chosen) == count:
            break
    return _with_staples(chosen, remarks, count)


def _with_staples(chosen: list[Remark], remarks: list[Remark], count: int) -> list[Remark]:
    """An analysis of some length speaks of the material, a king and the pawns, whatever else there is."""
    for wanted, least in (("material", 2), ("kings", 4), ("pawns", 5)):
        missing = not any(topic(remark.first) == wanted for remark in chosen)
        spare = next((remark for remark in remarks if topic(remark.first) == wanted), None)
        if missing and spare and count >= least:
            if len(chosen) >= count:
                chosen.pop(-1)
            chosen.insert(min(2, len(chosen)), spare)
    return chosen


def _remarks(pen: Pen, case: Case) -> list[Remark]:
    """Facts with their weights, a little shaken; several weaknesses of a kind taken together."""
    remarks: list[Remark] = []
    isolated: dict[chess.Color, list[Fact]] = {chess.WHITE: [], chess.BLACK: []}
    opened: list[Fact] = []
    for fact in case.facts:
        if isinstance(fact, pawn_facts.Isolated):
            isolated[fact.side].append(fact)
        elif isinstance(fact, file_facts.OpenFile) and not fact.white and not fact.black:
            opened += [fact] if case.board.rooks | case.board.queens else []
        elif not isinstance(fact, mate_facts.MateNow) or pen.chance(_TOLD_MATES):
            remarks.append(Remark((fact,), weigh(fact, case) * pen.rng.uniform(0.8, 1.2)))
    for group in (*isolated.values(), opened):
        if 0 < len(group) <= _MANY:
            weight = max(weigh(fact, case) for fact in group) + 0.4 * (len(group) - 1)
            remarks.append(Remark(tuple(group), weight * pen.rng.uniform(0.8, 1.2)))
    return remarks


_SUBSUMED = (
    (tactic_facts.Pressed, tactic_facts.Pin),
    (tactic_facts.Pressed, tactic_facts.Fork),
    (tactic_facts.Loose, tactic_facts.Fork),
    (tactic_facts.Loose, tactic_facts.Loose),
    (tactic_facts.Pressed, tactic_facts.Overloaded),
    (king_facts.Bare, king_facts.Central),
    (king_facts.Sheltered, king_facts.BackRank),
    (king_facts.Line, king_facts.Bare),
    (pawn_facts.Passed, pawn_facts.Connected),
    (pawn_facts.Doubled, pawn_facts.Isolated),
    (tactic_facts.Fork, tactic_facts.Skewer),
    (tactic_facts.Pressed, tactic_facts.Pressed),
    (pawn_facts.Isolated, pawn_facts.Passed),
)


def _repeats(fact: Fact, other: Fact) -> bool:
    """Whether one of two facts about the same pieces says most of what the other does."""
    if isinstance(fact, file_facts.OpenFile) and isinstance(other, king_facts.Line):
        return fact.file == other.file
    if isinstance(fact, king_facts.Line) and isinstance(other, file_facts.OpenFile):
        return fact.file == other.file
    if isinstance(fact, piece_facts.AtHome) and isinstance(other, piece_facts.AtHome):
        return fact.favours is None and other.favours is None
    pair = type(fact), type(other)
    related = pair in _SUBSUMED or pair[::-1] in _SUBSUMED
    return related and bool(
        set(fact.squares[:1]) & set(other.squares) or set(other.squares[:1]) & set(fact.squares)
    )


# -- in which order --------------------------------------------------------------------------------


def _ordered(remarks: Sequence[Remark]) -> list[Remark]:
    """Begins with what matters most, then goes to what is near: the same subject, the same pieces."""
    left = list(remarks)
    ordered = [max(left, key=lambda remark: remark.weight)] if left else []
    while len(ordered) < len(remarks):
        left = [remark for remark in left if remark is not ordered[-1]]
        ordered.append(max(left, key=lambda remark: _pull(ordered[-1], remark)))
    return ordered


def _pull(last: Remark, remark: Remark) -> float:
    same_topic = topic(last.first) == topic(remark.first)
    return remark.weight + _SAME_TOPIC * same_topic + _SAME_PIECES * bool(last.squares & remark.squares)


# -- in which words --------------------------------------------------------------------------------


def _words(pen: Pen, board: chess.Board, remark: Remark) -> str:
    pen.next_remark()
    fact = remark.first
    if isinstance(fact, pawn_facts.Isolated) and len(remark.facts) > 1:
        return several_isolated(pen, fact.side, [f.squares[0] for f in remark.facts])
    if isinstance(fact, file_facts.OpenFile) and len(remark.facts) > 1:
        return several_open(pen, [f.file for f in remark.facts if isinstance(f, file_facts.OpenFile)])
    return FACTS[type(fact)](pen, board, fact)


def _flow(pen: Pen, clauses: list[tuple[str, Remark]]) -> list[str]:
    """Clauses into sentences: neighbours that go together share one, contrasts are marked."""
    sentences: list[str] = []
    index, last = 0, None
    while index < len(clauses):
        text, remark = clauses[index]
        following = clauses[index + 1] if index + 1 < len(clauses) else None
        if following and _may_share(text, following[0]) and pen.chance(pen.voice.joins):
            against = _opposed(remark, following[1])
            text = join_clauses(pen, text, following[0], against=against)
            index += 1
        elif last is not None and pen.chance(pen.voice.links) and _related(last, remark):
            text = linked(pen, text, against=_opposed(last, remark))
        elif not sentences and pen.chance(0.2):
            text = _noticed(pen, text)
        last = clauses[index][1]
        sentences.append(sentence(text))
        sentences += _maxim(pen, last)
        index += 1
    return sentences


def _maxim(pen: Pen, remark: Remark) -> list[str]:
    sayings = MAXIMS.get(type(remark.first))
    if not sayings or pen.voice.name != "coach" or not pen.chance(_SAYS):
        return []
    said = pen.pick(sayings)
    return [said] if pen.used[said] == 1 else []


def _noticed(pen: Pen, text: str) -> str:
    if pen.voice.name == "notebook":
        return text
    return f"{pen.pick(_NOTICE)} {text}"


def _may_share(first: str, second: str) -> bool:
    return len(first) < _LONG_CLAUSE and len(second) < _LONG_CLAUSE and not {":", ";"} & set(first + second)


def _related(last: Remark, remark: Remark) -> bool:
    return last.favours is not None and remark.favours is not None


def _opposed(one: Remark, other: Remark) -> bool:
    return one.favours is not None and other.favours is not None and one.favours != other.favours

"""The threat, the list of candidates, the choice, and the short answer after the thinking."""

from __future__ import annotations

from collections.abc import Sequence

from commentary.concept import deeds_of
from commentary.concepts.material import is_exchange, plain
from commentary.names import numbered
from commentary.step import Step
from commentary.study import Score
from commentary.template import finite
from commentary.writing.candidates import prepared
from commentary.writing.case import WINNING, Loss
from commentary.writing.deeds import STRONG, Topic, selected, telling
from commentary.writing.outcome import Outcome
from commentary.writing.pen import Pen, sentence

_WORTH_A_WORD = 4.0
"""The weight of a deed from which on a threat is explained by it."""

_COUNTED_MATES = 8
_MUCH_WORSE = -3

# -- before the candidates -----------------------------------------------------------------------


def threat(pen: Pen) -> list[str]:
    """The threat, if there is one that gains something and that has not been named as a mate in one."""
    play, study = pen.case.threat, pen.case.study.threat
    named = any(finding.concept.name == "threat of mate" for finding in pen.case.findings)
    if play is None or study is None or (named and len(play.moves) == 1):
        return []
    asked = pen.talk("threat?") if pen.chance(pen.voice.asks + 0.2) else []
    pen.hand.forget()
    slots = {"them": not pen.case.mover, "us": pen.case.mover}
    outcome = Outcome(pen, play, study.score, pen.case.mover)
    first = Step.of(play.boards[0], play.moves[0])
    deeds = telling(first, deeds_of(first), _WORTH_A_WORD)
    if deeds and not outcome.mates and pen.chance(0.45):
        said = pen.say("threat", line=(play.boards[0], play.moves[:1]), **slots | {"us": None})
        does = finite(pen.phrase(first, deeds[:1]))
        rest = numbered(play.boards[1], play.moves[1:])
        more = [sentence(f"after {rest}, {outcome.gain()}")] if rest and pen.chance(0.6) else []
        return [*asked, sentence(f"{said}, which {does}"), *more]
    said = pen.say("threat", line=(play.boards[0], play.moves), **slots)
    joint = pen.hand.pick((", and {}", ", when {}")) if not said.startswith("if ") else " comes, and {}"
    return [*asked, sentence(said + joint.format(outcome.gain()))]


def listing(pen: Pen, names: Sequence[str]) -> list[str]:
    """A sentence that names the candidates, or one that only turns to them."""
    if len(names) >= 2 and pen.chance(0.6):
        return [sentence(pen.say("candidates", moves=names, side=pen.case.mover))]
    return pen.talk("moves") if pen.chance(0.5) else []


# -- the choice ----------------------------------------------------------------------------------


def decide(pen: Pen, best: Topic, told: Sequence[Topic]) -> list[str]:
    """The paragraph that ends the thinking."""
    pen.hand.forget()
    if pen.case.only_move:
        return [sentence(f"{best.name} {pen.does('only move')}")]
    choice = sentence(_choice(pen, best))
    rivals = [topic for topic in told if not topic.candidate.is_best]
    faults = [fault for topic in rivals if (fault := _fault(pen, topic))][:2]
    if faults and pen.chance(0.5):
        return [sentence(_summed(pen, faults)), choice]
    if best.candidate.step.after.is_checkmate():
        return [choice]
    if rivals and pen.chance(0.4):
        return [choice, sentence(_comparison(pen, best, rivals[0]))]
    return [choice, sentence(f"it {_keeps(pen, best)}")] if pen.chance(0.7) else [choice]


def _summed(pen: Pen, faults: Sequence[str]) -> str:
    return pen.hand.pick(("{}", "so {}", "to sum up, {}", "in short, {}")).format(" and ".join(faults))


def _choice(pen: Pen, best: Topic) -> str:
    if pen.chance(0.3):
        return f"{best.name} {pen.does('best move', us=pen.case.mover)}"
    return pen.say("choice", move=best.name, side=pen.case.mover, us=pen.case.mover)


def _fault(pen: Pen, topic: Topic) -> str | None:
    """What a dropped move costs, in a few words."""
    candidate = topic.candidate
    change = topic.play.swing(pen.case.mover)
    if candidate.loss != Loss.NOTHING and (candidate.score.mate or 0) < 0:
        return f"{topic.name} {pen.does('allows mate')}"
    if candidate.loss == Loss.NOTHING or change.points >= 0:
        return None
    if is_exchange(change.lost, change.won):
        return f"{topic.name} {pen.does('loses the exchange')}"
    won, lost = plain(change.lost, change.won)
    values = {"won": won, "lost": lost} if any(lost) else {"only": won}
    return f"{topic.name} {pen.does('loses material', **values)}"


def _comparison(pen: Pen, best: Topic, rival: Topic) -> str:
    if rival.candidate.loss == Loss.NOTHING:
        if pen.chance(0.3):
            return pen.say("equal moves", one=best.name, other=rival.name)
        return f"{rival.name} {pen.does('as good')}"
    if pen.chance(0.5):
        return f"{best.name} {pen.does('stronger', other=rival.name)}"
    return f"{rival.name} {pen.does('weaker', other=best.name)}"


def _keeps(pen: Pen, best: Topic) -> str:
    mate, found, us = best.candidate.score.mate, best.candidate.degree, pen.case.mover
    if mate is not None and 1 < mate <= _COUNTED_MATES:
        return pen.does("mates by force")
    if found == WINNING:
        return pen.does("wins the game")
    if found > 0:
        return pen.does("keeps the advantage", us=us)
    if found == 0:
        return pen.does("keeps the balance")
    return pen.does("resists best") if found <= _MUCH_WORSE else pen.does("best move", us=us)


# -- the answer ----------------------------------------------------------------------------------

_ANSWERS = (
    "{m} {does}. After {line}, {outcome}",
    "{m} {does}, and after {line}, {outcome}",
    "{m} is best: it {does}. After {line}, {outcome}",
    "the right move is {m}, which {does}. After {line}, {outcome}",
    "the strongest move is {m}: it {does}, and after {line}, {outcome}",
    "{m} is the strongest move. It {does}, and after {line}, {outcome}",
    "{m} is right. It {does}; after {line}, {outcome}",
    "calculator|I play {m}: it {does}. After {line}, {outcome}",
    "calculator|I choose {m}, which {does}. After {line}, {outcome}",
    "coach|we play {m}: it {does}. After {line}, {outcome}",
    "coach|our choice is {m}. It {does}, and after {line}, {outcome}",
    "annotator|{us} should play {m}: it {does}. After {line}, {outcome}",
    "annotator|{m} is the strongest continuation: it {does}. After {line}, {outcome}",
)
_SHORT = (
    "{m} {does}",
    "{m} is the best move: it {does}",
    "{m} is best: it {does}",
    "{m} is the best move: it {does}, and {verdict}",
    "the right move is {m}, which {does}",
    "the strongest move is {m}: it {does}",
    "{m} is the strongest move, since it {does}",
    "calculator|I play {m}: it {does}",
    "coach|we play {m}: it {does}",
    "annotator|{us} should play {m}, which {does}",
)
_LOST = ("{m} {resists}: it {does}",)
_PLAIN = (
    "{m} is best: after {line}, {outcome}",
    "{m} is the best move. After {line}, {outcome}",
    "the strongest move is {m}: after {line}, {outcome}",
    "the right move is {m}: after {line}, {outcome}",
    "{m} is strongest, and after {line}, {outcome}",
)
_BARE = ("{m} is the best move, and {verdict}", "{m} is best, and {verdict}")


def answer(pen: Pen, best: Topic) -> str:
    """What is said after the thinking, before the box."""
    pen.hand.forget()
    candidate, play = best.candidate, best.play
    deeds = selected(candidate, 1)
    slots: dict[str, str] = {"m": best.name, "us": pen.hand.us.word}
    replies = play.moves[1:]
    if replies:
        slots["line"] = numbered(play.boards[1], replies)
    ready = prepared(pen, candidate) if not deeds or deeds[0].weight < STRONG else None
    if not deeds and not ready:
        ending = (
            {"outcome": _end(pen, best)} if replies else {"verdict": _verdict(pen, candidate.score, best)}
        )
        return sentence(pen.pick(_PLAIN if replies else _BARE, **slots, **ending))
    slots["does"] = ready or finite(pen.phrase(candidate.step, deeds))
    if candidate.degree <= _MUCH_WORSE and not pen.case.only_move and pen.chance(0.6):
        return sentence(pen.pick(_LOST, resists=pen.does("resists best"), **slots))
    if not replies or (not play.end.is_checkmate() and pen.chance(0.3)):
        return sentence(pen.pick(_SHORT, verdict=_verdict(pen, candidate.score, best), **slots))
    return sentence(pen.pick(_ANSWERS, outcome=_end(pen, best), **slots))


def _end(pen: Pen, best: Topic) -> str:
    return Outcome(pen, best.play, best.candidate.score, pen.case.mover, back=best.candidate.retakes).clauses(
        brief=True
    )


def _verdict(pen: Pen, score: Score, best: Topic) -> str:
    if best.candidate.step.after.is_checkmate():
        return "the game is over"
    return pen.verdict(score, pen.case.mover)

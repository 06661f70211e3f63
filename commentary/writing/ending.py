"""The threat, the list of candidates, the choice, and the short answer after the thinking."""

from collections.abc import Sequence

from commentary.concept import move_findings
from commentary.concepts.material import is_exchange, plain
from commentary.naming import numbered
from commentary.step import Step
from commentary.template import finite
from commentary.writing.candidates import prepared
from commentary.writing.case import STRONG, WINNING, Loss, selected, telling
from commentary.writing.outcome import LineOutcome
from commentary.writing.writer import Topic, Writer, sentence

_WORTH_A_WORD = 4.0
"""The weight of an effect from which on a threat is explained by it."""

_COUNTED_MATES = 8
_MUCH_WORSE = -3

# -- before the candidates -----------------------------------------------------------------------


def threat(writer: Writer) -> list[str]:
    """The threat, if there is one that gains something and that has not been named as a mate in one."""
    play, study = writer.case.threat, writer.case.study.threat
    announced = any(finding.concept.name == "threat of mate" for finding in writer.case.findings)
    if play is None or study is None or (announced and len(play.moves) == 1):
        return []
    question = writer.talk("threat?") if writer.chance(writer.voice.asks + 0.2) else []
    writer.naming.forget()
    slots = {"them": not writer.case.mover, "us": writer.case.mover}
    outcome = LineOutcome(writer, play, study.score, mover=writer.case.mover)
    first = Step.of(play.boards[0], play.moves[0])
    effects = telling(first, move_findings(first), _WORTH_A_WORD)
    if effects and not outcome.mates and writer.chance(0.45):
        clause = writer.say("threat", line=(play.boards[0], play.moves[:1]), **slots | {"us": None})
        does = finite(writer.phrase(first, effects[:1]))
        rest = numbered(play.boards[1], play.moves[1:])
        more = [sentence(f"after {rest}, {outcome.gain()}")] if rest and writer.chance(0.6) else []
        return [*question, sentence(f"{clause}, which {does}"), *more]
    clause = writer.say("threat", line=(play.boards[0], play.moves), **slots)
    joint = (
        writer.naming.pick((", and {}", ", when {}")) if not clause.startswith("if ") else " comes, and {}"
    )
    return [*question, sentence(clause + joint.format(outcome.gain()))]


def listing(writer: Writer, names: Sequence[str]) -> list[str]:
    """A sentence that names the candidates, or one that only turns to them."""
    if len(names) >= 2 and writer.chance(0.6):
        return [sentence(writer.say("candidates", moves=names, side=writer.case.mover))]
    return writer.talk("moves") if writer.chance(0.5) else []


# -- the choice ----------------------------------------------------------------------------------


def decide(writer: Writer, best: Topic, topics: Sequence[Topic]) -> list[str]:
    """The paragraph that ends the thinking."""
    writer.naming.forget()
    if writer.case.only_move:
        return [sentence(f"{best.name} {writer.does('only move')}")]
    us = writer.case.mover
    if writer.chance(0.3):
        choice = sentence(f"{best.name} {writer.does('best move', us=us)}")
    else:
        choice = sentence(writer.say("choice", move=best.name, side=us, us=us))
    rivals = [topic for topic in topics if not topic.candidate.is_best]
    faults = [fault for topic in rivals if (fault := _fault(writer, topic))][:2]
    if faults and writer.chance(0.5):
        summed = writer.naming.pick(("{}", "so {}", "to sum up, {}", "in short, {}"))
        return [sentence(summed.format(" and ".join(faults))), choice]
    if best.candidate.step.after.is_checkmate():
        return [choice]
    if rivals and writer.chance(0.4):
        return [choice, sentence(_comparison(writer, best, rivals[0]))]
    return [choice, sentence(f"it {_merit(writer, best)}")] if writer.chance(0.7) else [choice]


def _fault(writer: Writer, topic: Topic) -> str | None:
    """What a dropped move costs, in a few words."""
    candidate = topic.candidate
    change = topic.play.swing(writer.case.mover)
    if candidate.loss != Loss.NOTHING and (candidate.score.mate or 0) < 0:
        return f"{topic.name} {writer.does('allows mate')}"
    if candidate.loss == Loss.NOTHING or change.points >= 0:
        return None
    if is_exchange(change.lost, change.won):
        return f"{topic.name} {writer.does('loses the exchange')}"
    won, lost = plain(change.lost, change.won)
    values = {"won": won, "lost": lost} if any(lost) else {"only": won}
    return f"{topic.name} {writer.does('loses material', **values)}"


def _comparison(writer: Writer, best: Topic, rival: Topic) -> str:
    if rival.candidate.loss == Loss.NOTHING:
        if writer.chance(0.3):
            return writer.say("equal moves", one=best.name, other=rival.name)
        return f"{rival.name} {writer.does('as good')}"
    if writer.chance(0.5):
        return f"{best.name} {writer.does('stronger', other=rival.name)}"
    return f"{rival.name} {writer.does('weaker', other=best.name)}"


def _merit(writer: Writer, best: Topic) -> str:
    mate, standing, us = best.candidate.score.mate, best.candidate.degree, writer.case.mover
    if mate is not None and 1 < mate <= _COUNTED_MATES:
        return writer.does("mates by force")
    if standing == WINNING:
        return writer.does("wins the game")
    if standing > 0:
        return writer.does("keeps the advantage", us=us)
    if standing == 0:
        return writer.does("keeps the balance")
    return writer.does("resists best") if standing <= _MUCH_WORSE else writer.does("best move", us=us)


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


def answer(writer: Writer, best: Topic) -> str:
    """The sentences after the thinking, before the box."""
    writer.naming.forget()
    candidate, play = best.candidate, best.play
    effects = selected(candidate, 1)
    slots: dict[str, str] = {"m": best.name, "us": writer.naming.us.word}
    replies = play.moves[1:]
    if replies:
        slots["line"] = numbered(play.boards[1], replies)
    ready = prepared(writer, candidate) if not effects or effects[0].weight < STRONG else None
    if not effects and not ready:
        if replies:
            return sentence(writer.pick(_PLAIN, outcome=_outcome_clauses(writer, best), **slots))
        return sentence(writer.pick(_BARE, verdict=_verdict(writer, best), **slots))
    slots["does"] = ready or finite(writer.phrase(candidate.step, effects))
    if candidate.degree <= _MUCH_WORSE and not writer.case.only_move and writer.chance(0.6):
        return sentence(writer.pick(_LOST, resists=writer.does("resists best"), **slots))
    if not replies or (not play.end.is_checkmate() and writer.chance(0.3)):
        return sentence(writer.pick(_SHORT, verdict=_verdict(writer, best), **slots))
    return sentence(writer.pick(_ANSWERS, outcome=_outcome_clauses(writer, best), **slots))


def _outcome_clauses(writer: Writer, best: Topic) -> str:
    candidate = best.candidate
    end = LineOutcome(writer, best.play, candidate.score, mover=writer.case.mover, back=candidate.retakes)
    return end.clauses(brief=True)


def _verdict(writer: Writer, best: Topic) -> str:
    if best.candidate.step.after.is_checkmate():
        return "the game is over"
    return writer.verdict(best.candidate.score, writer.case.mover)

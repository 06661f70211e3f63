"""The choice: what is left when the others are out, and the short answer after the thinking."""

from __future__ import annotations

from services.data.annotate.case import Candidate, Case
from services.data.annotate.standing import Loss, Standing
from services.data.annotate.voice.deeds import phrase, selected
from services.data.annotate.voice.outcome import Outcome, verdict
from services.data.annotate.voice.pen import Pen, finite, numbered
from services.data.annotate.voice.prose import sentence
from services.data.annotate.voice.topic import Topic
from services.data.annotate.voice.wordings.material import is_exchange, units

_CHOICES = (
    "that leaves {m}",
    "{m} it is",
    "so {m}",
    "the choice falls on {m}",
    "{m} is the move",
    "the right move is {m}",
    "{m} is strongest",
    "{m} is the best move",
    "{m} is the right choice",
    "so the move is {m}",
    "notebook|choice: {m}",
    "notebook|decision: {m}",
    "calculator|I play {m}",
    "calculator|I choose {m}",
    "calculator|I go for {m}",
    "calculator|so I settle on {m}",
    "coach|we choose {m}",
    "coach|we go with {m}",
    "coach|so our choice is {m}",
    "annotator|{us} should choose {m}",
    "annotator|{m} stands out",
    "annotator|{m} is clearly best",
    "annotator|{us.do[choose]} {m}",
)
_FORCED = ("{m} is the only legal move", "{m} is forced")
_COMPARED = (
    "{other} is weaker",
    "{m} promises more than {other}",
    "{m} is better than {other}",
    "{m} is stronger than {other}",
    "{other} is not as good",
    "{other} falls short",
    "{other} promises less",
)
_EQUALS = (
    "{other} is just as good",
    "{other} is a close second",
    "there is little to choose between {m} and {other}",
    "{other} is equally good",
)


def decide(pen: Pen, case: Case, best: Topic, told: list[Topic]) -> list[str]:
    """The paragraph that ends the thinking."""
    pen.forget()
    if case.only_move:
        return [sentence(pen.say(_FORCED, m=best.name))]
    choice = sentence(pen.say(_CHOICES, m=best.name, us=pen.us))
    rivals = [topic for topic in told if not topic.candidate.is_best]
    failures = [fault for topic in rivals if (fault := _failure(pen, topic))][:2]
    if failures and pen.chance(0.55):
        return [sentence(_eliminated(pen, failures)), choice]
    if best.candidate.step.after.is_checkmate():
        return [choice]
    if rivals and pen.chance(0.4):
        return [choice, _comparison(pen, best, rivals[0])]
    return [choice, sentence(_standing(pen, best))] if pen.chance(0.7) else [choice]


def _failure(pen: Pen, topic: Topic) -> str | None:
    """What a dropped move costs, in three words."""
    change = topic.play.swing(pen.root.turn)
    mate = topic.candidate.evaluation.mate
    if topic.candidate.loss != Loss.NOTHING and mate is not None and mate < 0:
        return f"{topic.name} {pen.rng.choice(('allows', 'runs into'))} mate"
    if topic.candidate.loss == Loss.NOTHING or change.points >= 0:
        return None
    if is_exchange(change.lost, change.won):
        return f"{topic.name} loses the exchange"
    price = f" for {units(change.won)}" if any(change.won) else ""
    return f"{topic.name} {pen.rng.choice(('loses', 'drops'))} {units(change.lost)}{price}"


def _eliminated(pen: Pen, failures: list[str]) -> str:
    return pen.say(
        ("{faults}", "so {faults}", "to sum up, {faults}", "in short, {faults}"), faults=pen.join(failures)
    )


def _comparison(pen: Pen, best: Topic, rival: Topic) -> str:
    equal = rival.candidate.loss == Loss.NOTHING
    return sentence(pen.say(_EQUALS if equal else _COMPARED, m=best.name, other=rival.name))


_COUNTED_MATES = 8
_MATES_IN = (
    "it is mate in {count}",
    "it is a forced mate in {count}",
    "it wins by force",
    "it mates by force",
)
_KEEPS = {
    "wins": ("it wins", "it keeps the win in hand"),
    "better": (
        "it keeps the advantage",
        "it holds the edge",
        "it keeps {us.object_} better",
        "it maintains the advantage",
        "it leaves {us.object_} better",
    ),
    "equal": ("it keeps the balance", "it holds the balance", "it keeps equality"),
    "worse": (
        "it puts up the best resistance",
        "it limits the damage",
        "it is the most stubborn defence",
        "it holds out longest",
    ),
}


def _standing(pen: Pen, best: Topic) -> str:
    degree = best.candidate.standing
    mate = best.candidate.evaluation.mate
    if mate is not None and 1 < mate <= _COUNTED_MATES:
        return pen.say(_MATES_IN, count=pen.number(mate))
    if degree == Standing.WINNING:
        return pen.say(_KEEPS["wins"], us=pen.us)
    if degree == Standing.EQUAL:
        return pen.say(_KEEPS["equal"])
    return pen.say(_KEEPS["better" if degree > Standing.EQUAL else "worse"], us=pen.us)


# -- the answer ------------------------------------------------------------------------------------

_ANSWERS = (
    "{m} {does}. After {line}, {outcome}.",
    "{m} {does}, and after {line}, {outcome}.",
    "{m} is best: it {does}. After {line}, {outcome}.",
    "the right move is {m}, which {does}. After {line}, {outcome}.",
    "the strongest move is {m}: it {does}, and after {line}, {outcome}.",
    "the move is {m}: it {does}. After {line}, {outcome}.",
    "{m} is the strongest move. It {does}, and after {line}, {outcome}.",
    "{m} is right. It {does}; after {line}, {outcome}.",
    "calculator|I play {m}: it {does}. After {line}, {outcome}.",
    "calculator|my move is {m}, which {does}. After {line}, {outcome}.",
    "coach|we play {m}: it {does}. After {line}, {outcome}.",
    "coach|our move is {m}. It {does}, and after {line}, {outcome}.",
    "annotator|{us} should play {m}: it {does}. After {line}, {outcome}.",
    "annotator|{m} is the strongest continuation: it {does}. After {line}, {outcome}.",
)
_SHORT_ANSWERS = (
    "{m} {does}.",
    "{m} is the best move: it {does}.",
    "{m} is best: it {does}.",
    "{m} is the move: it {does}, and {verdict}.",
    "the right move is {m}, which {does}.",
    "the strongest move is {m}: it {does}.",
    "{m} is the strongest move, since it {does}.",
    "calculator|I play {m}: it {does}.",
    "coach|we play {m}: it {does}.",
    "annotator|{us} should play {m}, which {does}.",
)
_LOST_ANSWERS = (
    "{m} is the most stubborn defence: it {does}.",
    "{m} puts up the best resistance: it {does}.",
    "{m} limits the damage: it {does}.",
)
_PLAIN_ANSWERS = (
    "{m} is best: after {line}, {outcome}.",
    "{m} is the best move. After {line}, {outcome}.",
    "the strongest move is {m}: after {line}, {outcome}.",
    "the right move is {m}: after {line}, {outcome}.",
    "{m} is strongest, and after {line}, {outcome}.",
    "the move is {m}: after {line}, {outcome}.",
    "{m} is the right move, and after {line}, {outcome}.",
)
_BARE_ANSWERS = ("{m} is the best move, and {verdict}.", "{m} is best, and {verdict}.")


def answer(pen: Pen, case: Case, best: Topic) -> str:
    """What is said after the thinking, before the box."""
    pen.forget()
    candidate, replies = best.candidate, best.play.moves[1:]
    ideas = selected(candidate, 1)
    slots: dict[str, object] = {"m": best.name, "us": pen.us}
    if replies:
        slots["line"] = numbered(best.play.boards[1], replies)
    if not ideas:
        slots |= _end(pen, best) if replies else {"verdict": _verdict(pen, case, candidate)}
        return sentence(pen.say(_PLAIN_ANSWERS if replies else _BARE_ANSWERS, **slots))
    slots["does"] = finite(phrase(pen, candidate.step, ideas))
    if candidate.standing <= Standing.MUCH_WORSE and not case.only_move and pen.chance(0.6):
        return sentence(pen.say(_LOST_ANSWERS, **slots))
    if not replies or (not best.play.end.is_checkmate() and pen.chance(0.3)):
        return sentence(pen.say(_SHORT_ANSWERS, verdict=_verdict(pen, case, candidate), **slots))
    return sentence(pen.say(_ANSWERS, **_end(pen, best), **slots))


def _end(pen: Pen, best: Topic) -> dict[str, object]:
    return {"outcome": Outcome(pen, best.play, best.candidate.evaluation).clauses(brief=True)}


def _verdict(pen: Pen, case: Case, candidate: Candidate) -> str:
    if candidate.step.after.is_checkmate():
        return "the game is over"
    return verdict(pen, candidate.evaluation, case.mover)

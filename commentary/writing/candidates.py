"""What is said of one candidate: what it does, how the game goes on, why it is dropped."""

from collections.abc import Sequence

import chess

from commentary.concept import Finding, move_findings
from commentary.exchange import gain
from commentary.naming import bare
from commentary.step import Step
from commentary.template import finite, infinitive, participle
from commentary.writing.case import LOST, STATES, STRONG, WINNING, CandidateMove, Loss, selected, telling
from commentary.writing.outcome import follow_line
from commentary.writing.writer import Topic, Writer, sentence

_OF_A_SIDE = (
    *("captures", "attacks", "forks", "pins", "targets a weakness", "pawn strikes", "defends", "reinforces"),
    *("parries", "develops", "opens a file", "takes a file", "blockades", "covers squares"),
)
"""Deeds that can be said of the side as well as of the move."""

_INTRODUCTIONS = (
    "{m} {does}",
    "{m} {does} ",
    "{m} {does}  ",
    "annotator,coach,calculator|the idea of {m} is to {do}",
    "coach,calculator|{m} comes to mind: it {does}",
    "annotator,coach|the point of {m} is to {do}",
    "coach,calculator|{m} deserves a look: it {does}",
    "notebook|{m}, {doing}",
    "notebook|{m}: {doing}",
    "annotator|{m} is worth a look, since it {does}",
    "calculator|{m} is an option, and it {does}",
    "coach|{m} is possible: it {does}",
    "annotator|there is {m}, which {does}",
    "calculator|there is also {m}, which {does}",
    "calculator|I could play {m}, to {do}",
    "coach|we could try {m}, to {do}",
    "annotator|{us} could consider {m}, to {do}",
    "annotator,coach|another idea is {m}, which {does}",
    "annotator,calculator|another option is {m}, which {does}",
    "coach,notebook|one idea is {m}, which {does}",
    "coach,calculator|{m} makes sense: it {does}",
    "annotator|{m} suggests itself, since it {does}",
    "calculator,notebook|{m} has a point: it {does}",
)
_FORCING = (
    "{m} {does}",
    "{m} {does} ",
    "{m} is forcing: it {does}",
    "calculator|{m} is tempting: it {does}",
    "annotator|{m} looks tempting: it {does}",
    "coach|{m} catches the eye: it {does}",
    "annotator|{m} is a forcing move: it {does}",
)
_QUESTIONS = (
    "what about {m}?",
    "and {m}?",
    "calculator|{m} next?",
    "and what about {m}?",
    "coach|can we play {m}?",
    "calculator|can I play {m}?",
)
_AFTER_QUESTION = ("it {does}", "it {does} ", "this {does}")
_WITH_SIDE = ("with {m}, {us} {acts}", "with {m} {us} {acts}")
_DRAWBACKS = (
    "but it {does}",
    "the drawback is that it {does}",
    "however, it {does}",
    "the catch: it {does}",
    "unfortunately, it {does}",
    "still, it {does}",
)


def consider(writer: Writer, topic: Topic, *, best: str | None) -> list[str]:
    """All that is said of a candidate; with `best` it may be compared with the best move."""
    writer.naming.forget()
    writer.topic = topic.name
    sentences, warning = introduce(writer, topic), _drawback(writer, topic)
    sentences += warning + follow_line(writer, topic, warned=bool(warning))
    return sentences if topic.candidate.is_best else sentences + _judge(writer, topic, best)


# -- what it does --------------------------------------------------------------------------------


def verbs(writer: Writer, step: Step, effects: Sequence[Finding]) -> dict[str, str]:
    """The forms of a verb phrase, by the names that wordings use."""
    marked = writer.phrase(step, effects)
    return {"does": finite(marked), "do": infinitive(marked), "doing": participle(marked)}


def prepared(writer: Writer, candidate: CandidateMove) -> str | None:
    """What a move without an effect of its own makes ready: the mover's next move, if that does something."""
    moves, boards = candidate.full.moves, candidate.full.boards
    if len(moves) < 3 or candidate.step.after.is_check():
        return None
    later = Step.of(boards[2], moves[2])
    if later.victim is not None and later.target == moves[1].to_square:
        return None  # it only takes back
    # A move that could be played at once is only made ready if it gets a new supporter.
    supported = candidate.step.after.attacks_mask(candidate.step.target) & chess.BB_SQUARES[later.target]
    at_once = boards[0].is_legal(moves[2]) and gain(boards[0], moves[2]) >= 0
    if (at_once and not supported) or not telling(later, move_findings(later), STRONG):
        return None
    return writer.does("prepares", foe=bare(boards[2], moves[2]))


def introduce(writer: Writer, topic: Topic) -> list[str]:
    """Brings the move up and says what it does."""
    candidate = topic.candidate
    effects = selected(candidate, writer.length.effects)
    ready = prepared(writer, candidate) if not effects or effects[0].weight < STRONG else None
    if not effects or ready:
        plain = "quiet move" if candidate.quiet else "candidate"
        return [sentence(f"{topic.name} {ready or writer.does(plain)}")]
    if writer.chance(writer.voice.asks):
        question = sentence(writer.pick(_QUESTIONS, m=topic.name))
        return [question, sentence(writer.pick(_AFTER_QUESTION, **verbs(writer, candidate.step, effects)))]
    if all(effect.concept.name in _OF_A_SIDE for effect in effects) and writer.chance(0.15):
        acts = finite(writer.phrase(candidate.step, effects), writer.naming.us.verb)
        return [sentence(writer.pick(_WITH_SIDE, m=topic.name, us=writer.naming.us.word, acts=acts))]
    states = any(effect.concept.name in STATES for effect in effects)
    options = (_FORCING[:2] if candidate.quiet else _FORCING) if states else _INTRODUCTIONS
    forms = verbs(writer, candidate.step, effects)
    return [sentence(writer.pick(options, m=topic.name, us=writer.naming.us.word, **forms))]


def _drawback(writer: Writer, topic: Topic) -> list[str]:
    """What speaks against it on the board, for a move that will be dropped."""
    drawbacks = [effect for effect in topic.candidate.effects if -50 < effect.weight < 0]
    probability = 0.75 if topic.candidate.loss >= Loss.SOME else 0.2
    if not drawbacks or topic.candidate.is_best or not writer.chance(probability):
        return []
    worst = min(drawbacks, key=lambda effect: effect.weight)
    return [sentence(writer.pick(_DRAWBACKS, **verbs(writer, topic.candidate.step, [worst])))]


# -- why it is dropped ---------------------------------------------------------------------------


def _judge(writer: Writer, topic: Topic, best: str | None) -> list[str]:
    candidate = topic.candidate
    it = "it" if writer.topic == topic.name else topic.name
    judged = _verdict(writer, candidate, best)
    parts = [sentence(f"{it} {judged}")] if judged else []
    bad = candidate.loss >= (Loss.MUCH if candidate.degree > 0 else Loss.SOME)
    if bad and writer.chance(0.45 if parts else 0.75):
        parts += writer.talk("dropped")
    return parts


def _verdict(writer: Writer, candidate: CandidateMove, best: str | None) -> str | None:
    """Why it is not chosen, as far as the scores say it."""
    top = writer.case.best
    if candidate.loss == Loss.NOTHING:
        return writer.does("as good") if writer.chance(0.7) else None
    weaker = best is not None and candidate.score.rank < top.score.rank
    if weaker and 0 < (top.score.mate or 0) < (candidate.score.mate or 0):
        return f"{writer.does('mates by force')}, but {writer.does('slower mate', other=best)}"
    if candidate.degree == WINNING:
        # A move that wins is not dropped without a reason.
        return writer.does("wins too") + (f", but is weaker than {best}" if weaker else "")
    if not writer.chance(0.8):
        return None
    compared = writer.does("weaker", other=best) if weaker else None
    same_side = top.degree > 0 < candidate.degree or top.degree < 0
    if compared and same_side and candidate.degree > LOST and writer.chance(0.5):
        return compared
    if candidate.degree >= top.degree:
        return compared
    return writer.does(_blame(top.degree, candidate.degree), them=not writer.case.mover)


def _blame(best: int, played: int) -> str:
    """The concept that says what a move gives away, by the degrees after the best move and after it."""
    if played == LOST:
        return "loses the game"
    if best < 0:
        return "makes it worse"
    if played > 0:
        return "gives up part of the advantage"
    return "gives up the advantage" if played == 0 else "hands over the advantage"

"""What is said of one candidate: what it does, how the game goes on, why it is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import chess

from commentary.concept import Finding, deeds_of
from commentary.exchange import gain
from commentary.names import bare, numbered
from commentary.step import Step
from commentary.template import finite, infinitive, participle
from commentary.writing.case import LOST, WINNING, Candidate, Loss
from commentary.writing.outcome import Outcome
from commentary.writing.pen import Pen, sentence
from commentary.writing.play import Play

_STRONG = 1.5
"""The weight from which on a deed needs no excuse to be told."""

_WORTH_A_WORD = 3.2
"""The weight of a deed from which on a reply is explained by it."""

_AIMED = ("attacks", "forks", "piles up", "adds an attacker", "targets a weak pawn", "captures")
_FAINT = ("covers squares", "centralises", "denies a square", "takes a file")
_CHECKS = ("checks", "discovers check", "double check")
_STATES = (*_CHECKS, "mates", "stalemates", "promotes", "leaves check")
"""Deeds that are no purpose: a move is check, it does not aim to be."""

_OF_A_SIDE = (
    *("captures", "attacks", "forks", "pins", "piles up", "pawn strikes", "defends", "reinforces"),
    *("stops a threat", "develops", "opens a file", "takes a file", "blockades", "covers squares"),
)
"""Deeds that can be said of the side as well as of the move."""

_INTRODUCTIONS = (
    "{m} {does}",
    "{m} {does} ",
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


@dataclass(frozen=True, slots=True)
class Topic:
    """A candidate under discussion: `name` is how it is written, `play` its line as far as it is told."""

    candidate: Candidate
    name: str
    play: Play

    @classmethod
    def of(cls, pen: Pen, candidate: Candidate) -> Topic:
        """Names a candidate and cuts its line to the length of the text."""
        plies = pen.length.plies + (1 if candidate.is_best else 0)
        return cls(candidate, pen.name(candidate.move), candidate.full.rest(least=min(2, plies), most=plies))


def consider(pen: Pen, topic: Topic, *, best: str | None) -> list[str]:
    """All that is said of a candidate; with `best` it may be compared with the best move."""
    pen.hand.forget()
    pen.topic = topic.name
    said, warning = introduce(pen, topic), _drawback(pen, topic)
    said += warning + _follow(pen, topic, warned=bool(warning))
    return said if topic.candidate.is_best else said + _judge(pen, topic, best)


# -- what it does --------------------------------------------------------------------------------


def selected(candidate: Candidate, count: int) -> list[Finding]:
    """The deeds worth telling, the weightiest first; what follows from another is left out."""
    end = next((deed for deed in candidate.deeds if deed.concept.name in ("mates", "stalemates")), None)
    if end is not None:
        return [*(deed for deed in candidate.deeds if deed.concept.name == "captures"), end]
    return _pruned([deed for deed in candidate.deeds if deed.weight > 0], candidate.step)[:count]


def telling(step: Step, deeds: Sequence[Finding], least: float) -> list[Finding]:
    """The deeds of a reply from a weight on; its name says already that it is check."""
    seen = ("leaves check", "checks")
    return [d for d in _pruned(deeds, step) if d.weight >= least and d.concept.name not in seen]


def _pruned(deeds: Sequence[Finding], step: Step) -> list[Finding]:
    """Without what another deed says already."""
    kept: list[Finding] = []
    for deed in deeds:
        if not any(_covers(other, deed, step) for other in kept):
            kept.append(deed)
    return [deed for deed in kept if deed.weight >= _STRONG] or kept


def _covers(told: Finding, deed: Finding, step: Step) -> bool:
    """Whether a deed has been told with another."""
    name, other = deed.concept.name, told.concept.name
    if name == "centralises" and other in ("develops", "captures"):
        return True
    if name == "checks":
        return other == "forks" and step.after.king(not step.mover) in told.values["targets"]
    if name in ("stops a threat", "avoids a check"):
        return other == "parries mate"
    if name in _AIMED and other in _AIMED and name != "captures":
        return bool(set(deed.squares) & set(told.squares))
    return other == "castles" and name in (*_FAINT, "frees a piece")


def verbs(pen: Pen, step: Step, deeds: Sequence[Finding]) -> dict[str, str]:
    """The forms of a verb phrase, by the names that wordings use."""
    marked = pen.phrase(step, deeds)
    return {"does": finite(marked), "do": infinitive(marked), "doing": participle(marked)}


def prepared(pen: Pen, candidate: Candidate) -> str | None:
    """What a move without a deed of its own makes ready: the mover's next move, if that does something."""
    moves, boards = candidate.full.moves, candidate.full.boards
    if len(moves) < 3 or candidate.step.after.is_check():
        return None
    later = Step.of(boards[2], moves[2])
    if later.victim is not None and later.target == moves[1].to_square:
        return None  # it only takes back
    # A move that could be played at once is only made ready if it gets a new supporter.
    supported = candidate.step.after.attacks_mask(candidate.step.target) & chess.BB_SQUARES[later.target]
    at_once = boards[0].is_legal(moves[2]) and gain(boards[0], moves[2]) >= 0
    if (at_once and not supported) or not telling(later, deeds_of(later), _STRONG):
        return None
    return pen.does("prepares", foe=bare(boards[2], moves[2]))


def introduce(pen: Pen, topic: Topic) -> list[str]:
    """Brings the move up and says what it does."""
    candidate = topic.candidate
    deeds = selected(candidate, pen.length.deeds)
    ready = prepared(pen, candidate) if not deeds or deeds[0].weight < _STRONG else None
    if not deeds or ready:
        return [sentence(f"{topic.name} {ready or pen.does(_plain(candidate))}")]
    if pen.chance(pen.voice.asks):
        question = sentence(pen.pick(_QUESTIONS, m=topic.name))
        return [question, sentence(pen.pick(_AFTER_QUESTION, **verbs(pen, candidate.step, deeds)))]
    if all(deed.concept.name in _OF_A_SIDE for deed in deeds) and pen.chance(0.15):
        acts = finite(pen.phrase(candidate.step, deeds), pen.hand.us.verb)
        return [sentence(pen.pick(_WITH_SIDE, m=topic.name, us=pen.hand.us.word, acts=acts))]
    states = any(deed.concept.name in _STATES for deed in deeds)
    options = (_FORCING[:2] if candidate.quiet else _FORCING) if states else _INTRODUCTIONS
    forms = verbs(pen, candidate.step, deeds)
    return [sentence(pen.pick(options, m=topic.name, us=pen.hand.us.word, **forms))]


def _plain(candidate: Candidate) -> str:
    return "quiet move" if candidate.quiet else "candidate"


def _drawback(pen: Pen, topic: Topic) -> list[str]:
    """What speaks against it on the board, for a move that will be dropped."""
    found = [deed for deed in topic.candidate.deeds if -50 < deed.weight < 0]
    wanted = 0.75 if topic.candidate.loss >= Loss.SOME else 0.2
    if not found or topic.candidate.is_best or not pen.chance(wanted):
        return []
    worst = min(found, key=lambda deed: deed.weight)
    return [sentence(pen.pick(_DRAWBACKS, **verbs(pen, topic.candidate.step, [worst])))]


# -- how the game goes on ------------------------------------------------------------------------


def _follow(pen: Pen, topic: Topic, *, warned: bool) -> list[str]:
    """The line after the move and what it comes to; `warned` when what is wrong with it was just said."""
    play, candidate = topic.play, topic.candidate
    if len(play.moves) < 2:
        return []
    good_for = pen.case.mover if candidate.is_best else (not pen.case.mover)
    end = Outcome.of(pen, play, candidate.score, good_for=good_for)
    if explained := _explained(pen, topic, end, warned=warned):
        return explained
    line = (play.boards[1], play.moves[1:])
    if pen.chance(0.25) and (said := end.of_line(line)):
        pen.topic = said
        return [sentence(said)]
    if not end.tells and pen.chance(0.35):
        return [sentence(f"{_line(pen, line)}, {pen.ending(candidate.score, pen.case.mover)}")]
    outcome = end.clauses(brief=pen.length.remarks <= 3)
    if candidate.loss >= Loss.MUCH and pen.chance(0.7):
        options = (*_REFUTED, *(() if warned else (*_PROBLEMS, *_BUT)))
        slots = {"m": topic.name, "line": numbered(*line), "outcome": outcome}
        have = pen.hand.them.verb("have")
        return [sentence(pen.pick(options, them=pen.hand.them.word, have=have, **slots))]
    if len(play.moves) > 3 and pen.chance(0.3):
        return [sentence(_split(pen, play, outcome))]
    return [sentence(_after(pen, line, outcome))]


def _line(pen: Pen, line: tuple[chess.Board, Sequence[chess.Move]]) -> str:
    """A clause that plays the line."""
    kind = pen.hand.least_used(["line", "line again", "side", "expected"])
    if kind == 2:
        return pen.say("line of a side", side=line[0].turn, line=line)
    if kind == 3 and pen.voice.person != "third":
        return pen.say("expected line", us=pen.case.mover, line=line)
    return pen.say("line", line=line)


def _after(pen: Pen, line: tuple[chess.Board, Sequence[chess.Move]], outcome: str) -> str:
    said = _line(pen, line)
    if said.startswith(("after ", "following ")):
        return f"{said}, {outcome}"
    joints = ("{said}, and {outcome}", "notebook|{said}; {outcome}", "{said}, when {outcome}")
    return pen.pick(joints, said=said, outcome=outcome)


def _split(pen: Pen, play: Play, outcome: str) -> str:
    first = pen.say("best reply", line=(play.boards[1], play.moves[1:2]))
    rest = numbered(play.boards[2], play.moves[2:])
    options = (
        "{first}, and after {rest}, {outcome}",
        "{first}; after {rest}, {outcome}",
        "{first}; then {rest}, and {outcome}",
    )
    return pen.pick(options, first=first, rest=rest, outcome=outcome)


def _explained(pen: Pen, topic: Topic, end: Outcome, *, warned: bool) -> list[str]:
    """The line with a word on what the reply does, if it does something worth it."""
    play, candidate = topic.play, topic.candidate
    reply = Step.of(play.boards[1], play.moves[1])
    deeds = telling(reply, deeds_of(reply), _WORTH_A_WORD)
    if candidate.step.victim is not None and reply.victim == candidate.step.target:
        deeds = [deed for deed in deeds if deed.concept.name != "captures"]  # that it takes back is plain
    if not deeds or end.mates or not pen.chance(0.5 if candidate.is_best else 0.7):
        return []
    first = numbered(play.boards[1], play.moves[1:2])
    pen.topic = first
    count = 2 if pen.length.deeds > 1 and pen.chance(0.4) else 1
    does = finite(pen.phrase(reply, deeds[:count]))
    rest = numbered(play.boards[2], play.moves[2:]) if len(play.moves) > 2 else ""
    outcome = end.clauses(brief=True)
    outcome = f"after {rest}, {outcome}" if rest else outcome
    have, answer = (f"{pen.hand.them.word} {pen.hand.them.verb(verb)}" for verb in ("have", "answer"))
    options = [
        f"{answer} {first}, which {does}, and {outcome}",
        f"the reply is {first}, which {does}, and {outcome}",
    ]
    options += [f"{first} {does}, and {outcome}", f"{have} {first}, which {does}, and {outcome}"]
    if candidate.loss >= Loss.SOME and pen.chance(0.7):
        options = [f"it allows {first}, which {does}, and {outcome}"]
        if not warned:
            options += [f"it runs into {first}, which {does}, and {outcome}"]
            options += [f"but {have} {first}, which {does}, and {outcome}"]
    kind = pen.hand.least_used([f"explained {len(options)} {n}" for n in range(len(options))])
    return [sentence(options[kind])]


# -- why it is dropped ---------------------------------------------------------------------------


def _judge(pen: Pen, topic: Topic, best: str | None) -> list[str]:
    candidate = topic.candidate
    it = "it" if pen.topic == topic.name else topic.name
    judged = _verdict(pen, candidate, best)
    parts = [sentence(f"{it} {judged}")] if judged else []
    if candidate.loss >= Loss.SOME and pen.chance(0.45 if parts else 0.75):
        parts += pen.talk("dropped")
    return parts


def _verdict(pen: Pen, candidate: Candidate, best: str | None) -> str | None:
    """Why it is not chosen, as far as the scores say it."""
    top, own = pen.case.best, candidate
    if own.loss == Loss.NOTHING:
        return pen.does("as good") if pen.chance(0.7) else None
    weaker = best is not None and own.score.capped < top.score.capped
    if own.degree == WINNING:
        # A move that wins is not dropped without a reason.
        return pen.does("wins the game") + (f", but is weaker than {best}" if weaker else "")
    if not pen.chance(0.8):
        return None
    compared = pen.does("weaker", other=best) if weaker else None
    same_side = top.degree > 0 < own.degree or top.degree < 0
    if compared and same_side and own.degree > LOST and pen.chance(0.5):
        return compared
    if own.degree >= top.degree:
        return compared
    return pen.does(_blame(top.degree, own.degree), them=not pen.case.mover)


def _blame(best: int, own: int) -> str:
    """The concept that says what a move gives away, by the standing with the best move and with it."""
    if own == LOST:
        return "loses the game"
    if best < 0:
        return "makes it worse"
    if own > 0:
        return "gives up part of the advantage"
    return "gives up the advantage" if own == 0 else "hands over the advantage"

"""How the game goes on after a candidate: the line in a player's words, and what it comes to."""

from __future__ import annotations

from collections.abc import Sequence

import chess

from commentary.concept import deeds_of
from commentary.names import numbered
from commentary.step import Step
from commentary.template import finite
from commentary.writing.case import Loss
from commentary.writing.deeds import Topic, telling
from commentary.writing.outcome import Outcome
from commentary.writing.pen import Pen, sentence
from commentary.writing.play import Play

_WORTH_A_WORD = 3.2
"""The weight of a deed from which on a reply is explained by it."""

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


def follow(pen: Pen, topic: Topic, *, warned: bool) -> list[str]:
    """The line after the move and what it comes to; `warned` when what is wrong with it was just said."""
    play, candidate = topic.play, topic.candidate
    if len(play.moves) < 2:
        return []
    good_for = pen.case.mover if candidate.is_best else (not pen.case.mover)
    end = Outcome.of(pen, play, candidate.score, good_for=good_for, back=candidate.retakes)
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
    kind = pen.hand.least_used(["line", "bare", "side", "expected"])
    if kind == 1:
        return numbered(*line)
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

"""How the game goes on after a candidate: the line in a player's words, and what it comes to."""

from collections.abc import Sequence

import chess

from commentary.concept import move_findings
from commentary.naming import numbered
from commentary.step import Step
from commentary.template import finite
from commentary.writing.case import Loss
from commentary.writing.outcome import Outcome
from commentary.writing.play import Play
from commentary.writing.topic import Topic, telling
from commentary.writing.writer import Writer, sentence

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


def follow(writer: Writer, topic: Topic, *, warned: bool) -> list[str]:
    """The line after the move and what it comes to; `warned` when what is wrong with it was just said."""
    play, candidate = topic.play, topic.candidate
    if len(play.moves) < 2:
        return []
    good_for = writer.case.mover if candidate.is_best else (not writer.case.mover)
    end = Outcome.of(writer, play, candidate.score, good_for=good_for, back=candidate.retakes)
    if explained := _explained(writer, topic, end, warned=warned):
        return explained
    line = (play.boards[1], play.moves[1:])
    if writer.chance(0.25) and (said := end.of_line(line)):
        writer.topic = said
        return [sentence(said)]
    if not end.tells and writer.chance(0.35):
        return [sentence(f"{_line(writer, line)}, {writer.ending(candidate.score, writer.case.mover)}")]
    outcome = end.clauses(brief=writer.length.remarks <= 3)
    if candidate.loss >= Loss.MUCH and writer.chance(0.7):
        options = (*_REFUTED, *(() if warned else (*_PROBLEMS, *_BUT)))
        slots = {"m": topic.name, "line": numbered(*line), "outcome": outcome}
        have = writer.naming.them.verb("have")
        return [sentence(writer.pick(options, them=writer.naming.them.word, have=have, **slots))]
    if len(play.moves) > 3 and writer.chance(0.3):
        return [sentence(_split(writer, play, outcome))]
    return [sentence(_after(writer, line, outcome))]


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


def _after(writer: Writer, line: tuple[chess.Board, Sequence[chess.Move]], outcome: str) -> str:
    said = _line(writer, line)
    if said.startswith(("after ", "following ")):
        return f"{said}, {outcome}"
    joints = ("{said}, and {outcome}", "notebook|{said}; {outcome}", "{said}, when {outcome}")
    return writer.pick(joints, said=said, outcome=outcome)


def _split(writer: Writer, play: Play, outcome: str) -> str:
    first = writer.say("best reply", line=(play.boards[1], play.moves[1:2]))
    rest = numbered(play.boards[2], play.moves[2:])
    options = (
        "{first}, and after {rest}, {outcome}",
        "{first}; after {rest}, {outcome}",
        "{first}; then {rest}, and {outcome}",
    )
    return writer.pick(options, first=first, rest=rest, outcome=outcome)


def _explained(writer: Writer, topic: Topic, end: Outcome, *, warned: bool) -> list[str]:
    """The line with a word on what the reply does, if it does something worth it."""
    play, candidate = topic.play, topic.candidate
    reply = Step.of(play.boards[1], play.moves[1])
    effects = telling(reply, move_findings(reply), _WORTH_A_WORD)
    if candidate.step.victim is not None and reply.victim == candidate.step.target:
        effects = [
            effect for effect in effects if effect.concept.name != "captures"
        ]  # that it takes back is plain
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
    options = [
        f"{answer} {first}, which {does}, and {outcome}",
        f"the reply is {first}, which {does}, and {outcome}",
    ]
    options += [f"{first} {does}, and {outcome}", f"{have} {first}, which {does}, and {outcome}"]
    if candidate.loss >= Loss.SOME and writer.chance(0.7):
        options = [f"it allows {first}, which {does}, and {outcome}"]
        if not warned:
            options += [f"it runs into {first}, which {does}, and {outcome}"]
            options += [f"but {have} {first}, which {does}, and {outcome}"]
    kind = writer.naming.least_used([f"explained {len(options)} {n}" for n in range(len(options))])
    return [sentence(options[kind])]

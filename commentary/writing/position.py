"""What the position is about: the findings worth saying, in an order that leads from one to the next."""

import re
from collections.abc import Sequence

from commentary.concept import Finding
from commentary.exchange import best_gain
from commentary.wording import TALK
from commentary.writing.case import Case
from commentary.writing.writer import Writer, sentence

_LEAST_WEIGHT = 1.0
_MOST_OF_A_KIND = 2
_SAYS = 0.12
"""How often a coach comes up with a saying."""

_TOLD_MATES = 0.3
"""How often a mate in one is announced before it is found among the candidates."""

_TOUCHED, _TARGETED = 1.4, 2.0
"""What a finding gains when the best line runs over its squares, and when the best move goes there."""

_URGENT = 30
"""A check or a threat of mate comes first."""

_BEGINS_WITH = (0.5, 0.3, 0.2)
"""How often a text begins with the weightiest remark, the second and the third."""

_LINE_PLIES = 5
_SAME_TOPIC, _SAME_PIECES = 1.2, 1.0
_PREAMBLE = 3
"""Remarks from which on a text may begin with the verdict or the side to move."""

_LONG_CLAUSE = 70
"""Characters beyond which two clauses do not share a sentence."""

_NOTICE = (
    "coach|the first thing to notice is that {}",
    "coach|note that {}",
    "coach|it helps to see that {}",
    "calculator|I see that {}",
    "calculator|I notice that {}",
    "calculator|what strikes me is that {}",
    "annotator|it matters that {}",
    "annotator|what stands out is that {}",
)
_PASSED = {"passed pawn", "protected passed pawn", "passed pawn near promotion", "steps to promotion"}
_ALIKE = (
    {*_PASSED, "blockaded passed pawn"},
    {"passed pawn", "protected passed pawn", "connected passed pawns"},
    {"isolated pawn", "passed pawn"},
    {"isolated pawn", "doubled pawns"},
    {"pressed piece", "pin"},
    {"pressed piece", "loose piece", "fork"},
    {"pressed piece", "overloaded piece"},
    {"pressed piece", "pressure on a file"},
    {"loose piece", "pressure on a file"},
    {"king without pawns", "king in the centre"},
    {"king without pawns", "file towards the king"},
    {"king shelter", "weak back rank"},
    {"fork", "skewer"},
)
"""Of two findings of one set about the same pieces, each says most of what the other does."""

_ONCE = {"loose piece", "pressed piece"}
"""About one piece, only one finding of these concepts is told."""

_BALANCES = {"level material", "one for another", "material ahead", "far ahead", "exchange up"}
_A_PIECE = 2
"""In pawns, at least."""

_FILES = {"open file", "held open file", "file towards the king", "pressure on a file"}


def describe_position(writer: Writer) -> list[str]:
    """Sentences about the position as it stands."""
    chosen = _ordered(writer, _chosen(writer))
    clauses = []
    for finding in chosen:
        writer.naming.next_remark()
        clauses.append((writer.state(writer.case.board, finding), finding))
    return [*_preamble(writer), *_flow(writer, clauses)]


def _preamble(writer: Writer) -> list[str]:
    """Now and then the verdict or the side to move comes before all else."""
    if writer.length.remarks < _PREAMBLE or not writer.chance(0.22):
        return []
    if writer.chance(0.4) and writer.voice.person == "third":
        return [sentence(writer.say("side to move", side=writer.case.mover))]
    return [sentence(writer.verdict(writer.case.best.score, writer.case.mover))]


# -- what to say ---------------------------------------------------------------------------------


def _chosen(writer: Writer) -> list[Finding]:
    ranked = [
        (_weight(finding, writer.case) * writer.rng.uniform(0.8, 1.2), finding)
        for finding in writer.case.findings
    ]
    announces_mates = writer.chance(_TOLD_MATES)
    ranked = [(w, f) for w, f in ranked if announces_mates or f.concept.name != "mate in one"]
    if writer.case.best.retakes or best_gain(writer.case.board) >= _A_PIECE:
        # A piece is about to be taken, or taken back: how the material stands until then misleads.
        ranked = [(w, f) for w, f in ranked if f.concept.name not in _BALANCES]
    ranked.sort(key=lambda pair: -pair[0])
    chosen: list[Finding] = []
    for weight, finding in ranked:
        same = sum(previous.concept is finding.concept for previous in chosen)
        is_repeated = any(repeats(finding, previous) for previous in chosen)
        if weight >= _LEAST_WEIGHT and same < _MOST_OF_A_KIND and not is_repeated:
            chosen.append(finding)
        if len(chosen) == writer.length.remarks:
            break
    return _with_staples(chosen, [finding for _, finding in ranked], writer.length.remarks)


def _weight(finding: Finding, case: Case) -> float:
    best = case.best
    touched = {s for move in best.full.moves[:_LINE_PLIES] for s in (move.from_square, move.to_square)}
    aimed = {best.move.to_square} if best.step.victim is None else {best.step.victim}
    squares = set(finding.squares)
    contact = finding.concept.topic == "contacts"
    return (
        finding.weight + _TOUCHED * bool(squares & touched) + _TARGETED * (contact and bool(squares & aimed))
    )


def _with_staples(chosen: list[Finding], ranked: list[Finding], count: int) -> list[Finding]:
    """An analysis of some length speaks of the material, a king and the pawns, whatever else there is."""
    for topic, least in (("material", 2), ("kings", 4), ("pawns", 6)):
        missing = not any(finding.concept.topic == topic for finding in chosen)
        spare = next((f for f in ranked if f.concept.topic == topic), None)
        if missing and spare and count >= least:
            if len(chosen) >= count:
                chosen.pop(-1)
            chosen.insert(min(2, len(chosen)), spare)
    return chosen


def repeats(finding: Finding, other: Finding) -> bool:
    """Whether one of two findings says most of what the other does."""
    names = {finding.concept.name, other.concept.name}
    if names <= _FILES:
        return bool(_files(finding) & _files(other))
    if names == {"undeveloped pieces"}:
        return finding.favours is None and other.favours is None
    if "level material" in names and names & {"same pieces", "one for another"}:
        return True
    squares, other_squares = set(finding.squares), set(other.squares)
    related = names <= _ONCE or (len(names) > 1 and any(names <= alike for alike in _ALIKE))
    return related and bool(set(finding.squares[:1]) & other_squares or set(other.squares[:1]) & squares)


def _files(finding: Finding) -> set[int]:
    values = finding.values
    single_files = [values.get(name) for name in ("file", "beside", "front")]
    return {file for file in (*single_files, *(values.get("files") or ())) if file is not None}


# -- in which order ------------------------------------------------------------------------------


def _ordered(writer: Writer, findings: Sequence[Finding]) -> list[Finding]:
    """Begins with what matters much, then goes to what is near: the same subject, the same pieces."""
    left = list(findings)
    if not left:
        return []
    urgent = left[0].weight >= _URGENT
    first = 0 if urgent else min(len(left) - 1, writer.rng.choices(range(3), _BEGINS_WITH)[0])
    ordered = [left.pop(first)]

    def nearness(finding: Finding) -> float:
        last = ordered[-1]
        same_topic = last.concept.topic == finding.concept.topic
        shared = bool(set(last.squares) & set(finding.squares))
        return finding.weight + _SAME_TOPIC * same_topic + _SAME_PIECES * shared

    while left:
        ordered.append(max(left, key=nearness))
        left.remove(ordered[-1])
    return ordered


# -- in which words ------------------------------------------------------------------------------


def _flow(writer: Writer, clauses: list[tuple[str, Finding]]) -> list[str]:
    """Clauses into sentences: neighbours that go together share one, contrasts are marked."""
    sentences: list[str] = []
    index, last = 0, None
    while index < len(clauses):
        text, finding = clauses[index]
        following = clauses[index + 1] if index + 1 < len(clauses) else None
        if following and _may_share(text, following[0]) and writer.chance(writer.voice.joins):
            text = writer.join(text, following[0], against=_opposed(finding, following[1]))
            index += 1
        elif last is not None and writer.chance(writer.voice.links) and _both_favour_a_side(last, finding):
            text = writer.linked(text, against=_opposed(last, finding))
        elif not sentences and writer.chance(0.2) and writer.voice.name != "notebook":
            text = writer.naming.pick(_NOTICE).format(text)
        last = clauses[index][1]
        sentences.append(sentence(text))
        if writer.voice.name == "coach" and last.concept.name in TALK and writer.chance(_SAYS):
            sentences += writer.talk(last.concept.name)
        index += 1
    return list(dict.fromkeys(sentences))


def _may_share(first: str, second: str) -> bool:
    return (
        len(first) < _LONG_CLAUSE
        and len(second) < _LONG_CLAUSE
        and not re.search(":|;|, and ", first + second)
    )


def _both_favour_a_side(first: Finding, second: Finding) -> bool:
    return first.favours is not None and second.favours is not None


def _opposed(first: Finding, second: Finding) -> bool:
    return _both_favour_a_side(first, second) and first.favours != second.favours

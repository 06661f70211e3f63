"""Reads a text about a position and holds every claim in it against the board."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache

import chess

from commentary.concept import CONCEPTS
from commentary.context import Context, Unknown, Unresolved
from commentary.parser import Clause, Grammar, Parser
from commentary.reading import ReadClaim, ReadSentence, Status, TextReading
from commentary.study import Study, sound_board
from commentary.token import Token, lex, marks, parse_move
from commentary.wording import IN_PASSING, SAYS_NOTHING

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_TAGS = re.compile(r"</?\w{1,20}>|\\boxed\{[^{}]*\}")
_PARAGRAPHS = re.compile(r"\n\s*\n|</?\w{1,20}>")
_ENDS = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9.])|\n")
_MOVE = r"(?:O-O(?:-O)?|[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|[a-h](?:x[a-h])?[1-8])(?:=[QRBN])?[+#]?"
_MOVE_NUMBER = re.compile(r"(?:^|[\s(])(\d{1,3})\.(\.\.)?$")
_ANNOTATED = re.compile(rf"(\d{{1,3}}\. ?)?{_MOVE}[!?]{{1,2}}$")
_NUMBERED = re.compile(rf"(\d{{1,3}})\. ?{_MOVE}")
_ONE_MOVE = re.compile(_MOVE)
_TWO_MOVES = re.compile(rf"{_MOVE}[!?]* (?:\d{{1,3}}\. ?)?{_MOVE}")
_WORD = re.compile(r"[A-Za-z][a-z]+|[KQRBNa-h][a-h]?x?[a-h][1-8]|[a-h][1-8](?:[a-h][1-8]| ?->)")
"""A line without it, such as a row of a board, is no sentence."""

_OF_PLAY = ("choice", "lines")
"""Topics of claims that a part of a sentence alone cannot make false."""

_NEAR = 40
"""Characters before a full stop that say whether it is that of a move number."""

_LONGEST_SENTENCE = 600
_LONGEST_TEXT = 20_000


def read(position: str | Study, text: str, *, about: chess.Move | None = None) -> TextReading:
    """Reads a text about a position: every sentence, understood or not, with its claims and their truth.

    `position` is a FEN, or a `Study` with an engine's lines and scores. Without them claims about scores, and
    lines of play, are neither true nor false. What names no subject ("Attacks the pawn on e5.") is about the
    legal move `about`, if there is one. The move in the last `\\boxed{}` is the one that the text chooses.
    Any text can be read. Nothing is guessed: a sentence counts as read only when all of it is understood; of
    others, what they assert beside that counts. Beyond 20,000 characters of text, and in sentences of more
    than 600, nothing is read, nor once a text has cost as much work as five long ones. Raises `ValueError` if
    the position is broken.
    """
    study = Study(position) if isinstance(position, str) else position
    root = sound_board(study.fen)
    chosen = _chosen(root, text)
    sentences: list[ReadSentence] = []
    parser = Parser(_grammar())
    if about:  # owned by the side that makes it
        uci = about.uci()
        parser.about = Token("m", uci, owner=chess.COLOR_NAMES[root.turn], moves=(uci,))
    goals: set[str] = set()
    for start, end in _paragraphs(text):
        context = Context(study, root, chosen, goals=goals)
        parser.forget()
        for begin, stop in _sentences(text, start, end, root.fullmove_number):
            sentences.append(_sentence(text, begin, stop, parser, context))
    return TextReading(tuple(sentences))


@cache
def _grammar() -> Grammar:
    return Grammar.of(CONCEPTS.values())


def _chosen(board: chess.Board, text: str) -> chess.Move | None:
    boxes = _BOX.findall(text)
    for parse in (board.parse_san, board.parse_uci) if boxes else ():
        with suppress(ValueError):
            return parse(boxes[-1].strip())
    return None


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for gap in _PARAGRAPHS.finditer(text):
        yield start, gap.start()
        start = gap.end()
    yield start, len(text)


def _sentences(text: str, start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    """Places of sentences; the dots of move numbers end none. `number` is that of the first move."""
    cuts = [
        gap.span()
        for gap in _ENDS.finditer(text, start, end)
        if "\n" in gap[0]
        or not _goes_on(
            text[max(start, gap.start() - _NEAR) : gap.start()].rpartition("\n")[2], text, gap.end(), number
        )
    ]
    for begin, stop in zip([start, *(b for _, b in cuts)], [*(a for a, _ in cuts), end], strict=True):
        whole = text[begin:stop]
        if _WORD.search(_TAGS.sub("", whole)):
            begin += len(whole) - len(whole.lstrip())
            yield begin, begin + len(whole.strip())


def _goes_on(line: str, text: str, place: int, number: int) -> bool:
    """Whether a line of moves goes on at `place`, behind `line`: "14. Nf3", "Nf3! 15. Bb5". At the beginning
    of a line of text, a number with one move may be an item of a list."""
    if annotated := _ANNOTATED.search(line):
        ahead = _NUMBERED.match(text, place)
        return int(ahead[1]) >= number if ahead else bool(annotated[1] and _ONE_MOVE.match(text, place))
    last = _MOVE_NUMBER.search(line)
    if last is None or int(last[1]) < number:
        return False
    before = line[: last.start()].rstrip(" *(-\u2022")
    within = last[2] or (before and (before[-1] not in ".!?" or _ANNOTATED.search(before)))
    return (_ONE_MOVE if within else _TWO_MOVES).match(text, place) is not None


def _sentence(text: str, start: int, end: int, parser: Parser, context: Context) -> ReadSentence:
    # Tags become blanks, so that places stay what they are.
    words = _TAGS.sub(lambda match: " " * len(match[0]), text[start:end])
    if len(words) > _LONGEST_SENTENCE or start > _LONGEST_TEXT:
        return ReadSentence(text[start:end], start, end, "unread")
    lexed = lex(words)
    if _says_nothing(lexed.text):
        return ReadSentence(text[start:end], start, end, "talk")
    context.see(lexed.tokens)
    clauses, whole = parser.clauses(lexed)
    if words.rstrip().endswith("?") and any(clause.concept.name != "candidates" for clause in clauses):
        return ReadSentence(text[start:end], start, end, "unread")
    fragments = [] if whole else parser.fragments(lexed, clauses[-1].end if clauses else 0)
    context.moved = []  # what moves is to be named again by its move
    claims = [_claim(clause, context, text, *_place(clause, parser, start)) for clause in clauses]
    for clause in fragments:
        claims += _asserted(clause, context, text, *_place(clause, parser, start))
    status: Status = "unread" if not claims else "claims" if whole else "partly"
    return ReadSentence(text[start:end], start, end, status, tuple(claims))


def _place(clause: Clause, parser: Parser, start: int) -> tuple[int, int]:
    begin, stop = parser.place(clause)
    return start + begin, start + stop


def _asserted(clause: Clause, context: Context, text: str, start: int, end: int) -> Iterator[ReadClaim]:
    """The claim of a part of a sentence, open if it may be about another position; what a FEN says is none
    then."""
    place = context.start, context.board, context.moves
    if clause.subject is None or clause.subject.kind not in "ml":
        context.go(context.root)
    elif parse_move(context.root, clause.subject.moves[0]) is None:
        return  # a move of another position
    claim = _claim(clause, context, text, start, end)
    context.start, context.board, context.moves = place
    elsewhere = not clause.concept.about_moves and context.is_elsewhere(clause.slots)
    unsure = clause.doubted or clause.concept.topic in _OF_PLAY or elsewhere
    if unsure and (
        claim.true is False or clause.concept.topic != "given"
    ):  # what costs nothing earns nothing
        claim = replace(claim, true=None)
    if claim.true is not None or clause.concept.topic != "given":
        yield claim


def _says_nothing(text: str) -> bool:
    bare = text.strip(" .!?;:")
    names_something = any(kind in "lgpfmq" for kind, _ in marks(text))
    passing = not names_something and (IN_PASSING.fullmatch(bare) or IN_PASSING.fullmatch(text.strip()))
    return bare in SAYS_NOTHING or bool(passing)


def _claim(clause: Clause, context: Context, text: str, start: int, end: int) -> ReadClaim:
    concept = clause.concept
    context.meet(clause.topic, clause.subject)
    values, true = _judged(clause, context)
    if not true and concept.topic == "given" and context.moves:
        # After a move was named, what a FEN says may be said of the position that the text is about.
        context.go(context.root)
        values, true = _judged(clause, context)
    slots = sorted(f"{name}={value}" for name, value in values.items() if not callable(value))
    key = f"{concept.name} {slots} {context.board.board_fen()}"
    weight = concept.weight if isinstance(concept.weight, int | float) else 2.0
    return ReadClaim(concept.name, text[start:end], start, end=end, true=true, weight=abs(weight), key=key)


def _judged(clause: Clause, context: Context) -> tuple[dict[str, object], bool | None]:
    """What the slots stand for, as far as they were read, and whether the claim is true."""
    concept, values = clause.concept, dict[str, object]()
    try:
        for name, content in clause.slots:
            values[name] = clause.template.slots[name].read(context, content)
        fits = all(values[name] == right for name, right in context.roles.items() if name in values)
        role_names = {*context.roles, "move"} if concept.about_moves else context.roles
        arguments = {name: value for name, value in values.items() if name not in role_names}
        if isinstance(arguments.get("other"), bool):  # the side that `side` is not
            other_side = arguments.pop("other")
            fits = fits and arguments.setdefault("side", not other_side) != other_side
        return values, fits and concept.holds(context, **arguments)
    except Unresolved:
        return values, False
    except Unknown:
        return values, None

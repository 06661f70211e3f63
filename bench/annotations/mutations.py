"""Plants falsehoods in sound texts, to measure whether the reader finds them.

A planted text differs in a single word: a square, a piece, a side, a count, a move, a file, a degree. What
may be true by chance is not planted. That is decided here, on every board of the study and without the
reader: a name must fit nothing, a move must be illegal, a file must have nothing of what can be said of it.
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import chess

from commentary import Study
from commentary.concepts.pieces import home_count
from commentary.naming import NUMBERS
from commentary.predicates import all_of, count, is_half_open, is_open, pawns_on

_NAME = "king|queen|rook|bishop|knight|pawn"
_AT_HOME = re.compile(r"(\w+) minor pieces?")
_ON_FILE = re.compile(r"(?:doubled|battery).* the ([a-h])-file")

_Boards = Sequence[chess.Board]
_Place = re.Match[str]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A text in which one word is changed. `kind` says which kind of word."""

    kind: str
    text: str


def mutations(text: str, study: Study, rng: random.Random) -> Iterator[Mutation]:
    """One falsehood of each kind for which the text has a place."""
    boards = _boards(study)
    for kind, (pattern, choices, is_false) in _KINDS.items():
        places = list(pattern.finditer(text))
        rng.shuffle(places)
        for place in places:
            words = [word for word in choices if word != place["word"] and is_false(boards, place, word)]
            if words:
                begin, end = place.span("word")
                yield Mutation(kind, text[:begin] + rng.choice(words) + text[end:])
                break


def _boards(study: Study) -> list[chess.Board]:
    """The position, and those after each move of the study's lines."""
    root = chess.Board(study.fen)
    passed = root.copy(stack=False)
    passed.push(chess.Move.null())
    boards = [root]
    for line in (*study.lines, *study.refuted, study.threat):
        board = (passed if line is study.threat else root).copy(stack=False)
        for move in line.moves if line else ():
            board.push_uci(move)
            boards.append(board.copy(stack=False))
    return boards


def _stands(boards: _Boards, square: str, name: str | None = None, side: str | None = None) -> bool:
    """Whether such a piece stands there on one of the boards."""
    pieces = {board.piece_at(chess.parse_square(square)) for board in boards} - {None}
    return any(
        name in (None, chess.piece_name(piece.piece_type)) and side in (None, _SIDES[not piece.color])
        for piece in pieces
        if piece
    )


def _is_false_side(boards: _Boards, place: _Place, side: str) -> bool:
    """Whether the side has no such piece, pieces or pawns. Only one side is better, in check or ahead."""
    colour, rest = side == "White", place["rest"]
    if place["square"]:
        return not _stands(boards, place["square"], place["name"], side)
    if place["name"]:
        return not any(all_of(board, colour, place["name"]) for board in boards)
    if match := _AT_HOME.search(rest):
        return match[1] not in {NUMBERS[home_count(board, colour)] for board in boards}
    if match := _ON_FILE.search(rest):
        facts = {f"pawns {colour}", f"heavy {colour}"}
        return not any(facts & _facts(board, match[1]) for board in boards)
    squares = re.findall(r"\bo[fn] ([a-h][1-8])", rest)
    return "seventh" not in rest and not any(_stands(boards, square, None, side) for square in squares)


def _is_false_file(boards: _Boards, place: _Place, file: str) -> bool:
    facts = {fact for board in boards for fact in _facts(board, place["word"])}
    return bool(facts) and not any(facts & _facts(board, file) for board in boards)


def _facts(board: chess.Board, letter: str) -> set[str]:
    """What can be said of a file: it is open or half-open, holds doubled pawns, or several heavy pieces."""
    file, facts = chess.FILE_NAMES.index(letter), set()
    for side in chess.COLORS:
        heavy = all_of(board, side, "rook", "queen")
        facts |= {"half-open"} if is_half_open(board, file, side) else set()
        facts |= {f"pawns {side}"} if len(pawns_on(board, file, side)) > 1 else set()
        facts |= {f"heavy {side}"} if sum(chess.square_file(s) == file for s in heavy) > 1 else set()
    return facts | ({"open"} if is_open(board, file) else set())


def _is_false_move(boards: _Boards, place: _Place, letter: str) -> bool:
    kind = chess.PIECE_SYMBOLS.index(letter.lower())
    target = chess.BB_SQUARES[chess.parse_square(place["square"])]
    return not any(
        any(board.generate_legal_moves(board.pieces_mask(kind, board.turn), target)) for board in boards
    )


def _is_false_count(boards: _Boards, place: _Place, word: str) -> bool:
    """Whether on no board a side has this many, or this many more than the other. All boards count: a line
    that costs two pawns may cost one first."""
    noun = place["noun"].removesuffix("s")
    pairs = [(count(board, True, noun), count(board, False, noun)) for board in boards]
    leads = [ours - theirs for ours, theirs in pairs]
    apart = {abs(lead - before) for lead in leads for before in (0, leads[0])}.union(*pairs)
    return noun not in _NAME.split("|") or NUMBERS.index(word) not in apart


_SIDES = ("White", "Black")
_DEGREES = ("slightly better", "clearly better", "much better", "winning", "lost")
_KINDS: dict[str, tuple[re.Pattern[str], Sequence[str], Callable[[_Boards, _Place, str], bool]]] = {
    "square": (
        re.compile(
            rf"(?:\b(?P<name>{_NAME})s? )?\b(?:on |the )(?P<file>[a-h])(?P<word>[1-8])\b(?!=)"
            rf"(?:-(?P<after>{_NAME}))?"
        ),
        "12345678",
        lambda boards, place, rank: (
            not _stands(boards, place["file"] + rank, place["name"] or place["after"])
        ),
    ),
    "piece": (
        re.compile(r"\b(?P<word>queen|rook|bishop|knight|pawn)(?=s? on (?P<square>[a-h][1-8])\b)"),
        ("queen", "rook", "bishop", "knight", "pawn"),
        lambda boards, place, name: not _stands(boards, place["square"], name),
    ),
    "side": (
        re.compile(
            rf"\b(?P<word>White|Black)(?:'s (?P<name>{_NAME})\b(?: on (?P<square>[a-h][1-8]))?|"
            r"(?= (?:is|has|wins|loses|drops|picks|gets)\b(?P<rest>[^.,;:]*)))"
        ),
        _SIDES,
        _is_false_side,
    ),
    "count": (
        re.compile(
            r"\b(?P<word>two|three|four)(?= (?P<noun>legal|steps|pawns|rooks|knights|bishops|minor)\b)"
        ),
        NUMBERS[2:6],
        _is_false_count,
    ),
    "move": (
        re.compile(r"(?<=\d\.)(?:\.\.)?(?P<word>[KQRBN])x?(?P<square>[a-h][1-8])"),
        "QRBN",
        _is_false_move,
    ),
    "file": (re.compile(r"\b(?P<word>[a-h])(?=-file\b)"), "abcdefgh", _is_false_file),
    "degree": (
        re.compile(rf"\b(?P<word>{'|'.join(_DEGREES)})\b"),
        _DEGREES,
        lambda boards, place, word: True,
    ),
}
"""By kind: the pattern that finds a word, the words to replace it, and whether a replacement is false."""

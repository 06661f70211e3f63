"""The slots of templates: each type with the tokens it takes, one renderer and one reader."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import chess

from commentary.context import Context, Unknown, Unresolved
from commentary.naming import NUMBERS, Naming, joined, number_in_words, numbered
from commentary.token import Token

Subject = Literal["piece", "pieces", "side", "move", "line", "file"]
KINDS = ("pawn", "knight", "bishop", "rook", "queen")
"""In the order of the counts of pieces."""

_COUNT = "|".join((*NUMBERS, "none", "an", "a", "once", "twice", r"\d{1,3}"))
_UNIT = rf"(?:{'|'.join(NUMBERS[1:])}|an?|the) (?:minor piece|piece|queen|rook|bishop|knight|pawn)s?"
_UNITS = f"{_UNIT}(?:, {_UNIT})*(?: and (?:{_UNIT}|queen|rook|bishop|knight|pawn))?"
_NAMES = (*KINDS, "king")
_ORDINALS = {"second": 2, "third": 3, "fourth": 4}


@dataclass(frozen=True, slots=True)
class SlotType:
    """`pattern` matches what the slot holds in a lexed text. `read` gets its words when `plain`, else its
    tokens."""

    name: str
    pattern: str
    render: Callable[[Naming, Any], str]
    read: Callable[[Context, Any], Any]
    subject: Subject | None = None
    plain: bool = False
    squares: bool = False
    """Whether its value is a square or a list of squares of pieces."""
    takes: Callable[[Token], bool] = lambda token: True
    """Which of the tokens that the pattern matches it takes."""


def count_of(word: str) -> int:
    """The number a word stands for.

    >>> [count_of(word) for word in ("twice", "a", "three", "none", "12")]
    [2, 1, 3, 0, 12]
    """
    word = word.removesuffix(" times").removesuffix(" time")
    word = {"once": "one", "twice": "two", "a": "one", "an": "one", "none": "no"}.get(word, word)
    return int(word) if word.isdecimal() else NUMBERS.index(word)


def units_of(words: str) -> Counter[str]:
    """Pieces by name; `piece` is a knight or a bishop.

    >>> sorted(units_of("a rook and two pawns").items()), sorted(units_of("a rook and bishop").items())
    ([('pawn', 2), ('rook', 1)], [('bishop', 1), ('rook', 1)])
    """
    counts: Counter[str] = Counter()
    for amount, name in re.findall(r"(\w+) ((?:minor )?\w+?)s?(?=,| and |$)", words):
        counts[name.removeprefix("minor ")] += 1 if amount in ("the", "and") else count_of(amount)
    return counts


def units(counts: Sequence[int]) -> str:
    """Pieces in words, the big ones first.

    >>> units((2, 0, 0, 1, 0))
    'a rook and two pawns'
    """
    parts = [(counts[kind], KINDS[kind]) for kind in (4, 3, 2, 1, 0) if counts[kind]]
    return joined([f"a {name}" if n == 1 else f"{number_in_words(n)} {name}s" for n, name in parts])


def _mark(kinds: str) -> str:
    return rf"«[{kinds}]\d+»"


def _mark_list(kinds: str) -> str:
    mark = _mark(kinds)
    return rf"{mark}(?:, {mark})*(?:,? (?:and|or) {mark})?"


def _plain(naming: Naming, value: object) -> str:
    return str(value)


def _render_times(naming: Naming, value: int) -> str:
    return {1: "once", 2: "twice"}.get(value, f"{number_in_words(value)} times")


def _render_ordinal(naming: Naming, value: int) -> str:
    return list(_ORDINALS)[value - 2]


def _file(adjective: str) -> Callable[[Naming, Any], str]:
    return lambda naming, value: f"the {adjective}{chess.FILE_NAMES[value]}-file"


def _render_files(naming: Naming, value: Sequence[int]) -> str:
    letters = [chess.FILE_NAMES[file] for file in value]
    if len(letters) == 1:
        return f"the {letters[0]}-file"
    return f"the {'-, '.join(letters[:-1])}- and {letters[-1]}-files"


def _render_squares(naming: Naming, value: Sequence[int]) -> str:
    naming.several()
    return joined([chess.square_name(square) for square in value])


def _read_file(context: Context, tokens: list[Token]) -> int:
    files = context.files(tokens[0])
    return files[0] if len(files) == 1 else -1


def _read_line(context: Context, tokens: list[Token]) -> chess.Color:
    """Plays the line, and returns the side that begins it."""
    moves = context.play(tokens[0])
    return bool(context.start.turn ^ (len(moves) - len(tokens[0].moves)) % 2)


def _read_threat(context: Context, tokens: list[Token]) -> chess.Color:
    context.go(context.passed(context.root))
    return _read_line(context, tokens)


def _read_before(context: Context, tokens: list[Token]) -> chess.Square:
    if tokens[0].name == "rook" and context.move and context.before.is_castling(context.move):
        raise Unknown("castling moves a rook, too")
    token = tokens[0]
    absent = token.squares and not context.fitting(token, context.before)
    if absent and context.move and context.to in context.fitting(token, context.board):
        return context.origin  # "Nf3 places the knight on f3"
    return context.piece(token, context.before)


def _read_held(context: Context, tokens: list[Token]) -> chess.Square:
    fitting = context.fitting(tokens[0]) if tokens[0].squares else [context.piece(tokens[0])]
    if not fitting:
        raise Unresolved(tokens[0].words)  # "White has a knight on d5"
    return fitting[0]


def _read_placed(context: Context, tokens: list[Token]) -> list[chess.Square]:
    fitting = context.fitting(tokens[0])
    if not fitting and context.is_imagined(tokens[0]):
        raise Unknown(tokens[0].words)
    return fitting


def _read_behind(context: Context, tokens: list[Token]) -> chess.Square:
    """What stands behind the piece named last: of several that a name fits, the one of its side."""
    squares = context.named_squares
    return context.piece(tokens[0], side=context.board.color_at(squares[-1]) if squares else None)


def _read_foe(context: Context, tokens: list[Token]) -> Callable[[chess.Board], chess.Move]:
    return lambda board: context.move_on(board, tokens[0])


def _read_prey(context: Context, tokens: list[Token]) -> list[chess.Square]:
    """What a move or a piece attacks: of several pieces that a name fits, the enemy's."""
    return context.pieces(tokens, None if context.actor is None else not context.actor)


def _squares(context: Context, tokens: list[Token]) -> list[chess.Square]:
    squares = [chess.parse_square(name) for name in tokens[0].squares]
    if len(set(squares)) < len(squares):
        raise Unresolved("the same square twice")
    return squares


_DENIED = r"[^.;]{0,200}\b(?:not|no|n't|wrong|off)\b"

_PIECE, _PIECES, _MOVE = _mark("pi"), rf"{_mark_list('pg')}|{_mark('i')}", _mark("mlq")

_ALL = (
    SlotType("piece", _PIECE, Naming.piece, lambda s, t: s.piece(t[0]), "piece", squares=True),
    SlotType("before", _PIECE, lambda n, v: n.piece(v, n.before), _read_before, squares=True),
    SlotType("behind", _PIECE, Naming.piece, _read_behind, "piece", squares=True),
    SlotType("held", _PIECE, Naming.piece, _read_held, squares=True),
    SlotType("some", _mark("p"), Naming.piece, lambda s, t: s.fitting(t[0]), "piece"),
    SlotType("placed", _mark("p"), Naming.piece, _read_placed, takes=lambda t: bool(t.squares)),
    SlotType(
        "group", _mark("g"), Naming.pieces, lambda s, t: s.pieces(t), takes=lambda t: len(t.squares) > 1
    ),
    SlotType(
        "owned",
        _mark("p"),
        Naming.piece,
        lambda s, t: s.fitting(t[0]),
        takes=lambda t: t.owner in chess.COLOR_NAMES,
    ),
    SlotType(
        "passer",
        _mark("p"),
        lambda n, v: "the passed pawn",
        _read_before,
        takes=lambda t: t.adjective == "passed",
    ),
    SlotType(
        "king",
        _PIECE,
        Naming.piece,
        lambda s, t: s.piece(t[0]),
        "piece",
        squares=True,
        takes=lambda t: t.name in ("king", ""),
    ),
    SlotType("pieces", _PIECES, Naming.pieces, lambda s, t: s.pieces(t), "pieces", squares=True),
    SlotType("prey", _PIECES, Naming.pieces, _read_prey, "pieces", squares=True),
    SlotType("square", _mark("q"), lambda n, v: _render_squares(n, [v]), lambda s, t: _squares(s, t)[0]),
    SlotType("squares", _mark("q"), _render_squares, _squares, squares=True),
    SlotType("side", _mark("s"), lambda n, v: n.side(v).word, lambda s, t: s.side(t[0]), "side"),
    SlotType(
        "speaker",
        _mark("s"),
        _plain,
        lambda s, t: s.side(t[0]),
        "side",
        takes=lambda t: t.owner in ("we", "i"),
    ),
    SlotType("object", _mark("s"), lambda n, v: n.side(v).object_, lambda s, t: s.side(t[0])),
    SlotType("owner", _mark("o"), lambda n, v: n.side(v).owner, lambda s, t: s.side(t[0])),
    SlotType("file", _mark("fi"), _file(""), _read_file, "file"),
    SlotType(
        "open_file", _mark("f"), _file("open "), _read_file, "file", takes=lambda t: t.adjective == "open"
    ),
    SlotType(
        "half_file",
        _mark("f"),
        _file("half-open "),
        _read_file,
        "file",
        takes=lambda t: t.adjective == "half-open",
    ),
    SlotType("files", _mark("fi"), _render_files, lambda s, t: s.files(t[0]), "file"),
    SlotType("move", _MOVE, _plain, lambda s, t: s.step(t[0]), "move"),
    SlotType("candidate", _MOVE, _plain, lambda s, t: s.move_on(s.root, t[0])),
    SlotType("candidates", _mark_list("mlq"), lambda n, v: joined(v), lambda s, t: [s.step(x) for x in t]),
    SlotType("named_move", _MOVE, _plain, _read_foe, "move"),
    SlotType("mention", rf"{_mark('m')}(?!{_DENIED})", _plain, lambda s, t: t[0].moves[0]),
    SlotType(
        "spot",
        _mark("q"),
        _plain,
        lambda s, t: chess.parse_square(t[0].squares[0]),
        takes=lambda t: len(t.squares) == 1,
    ),
    SlotType("spots", _mark("q"), _plain, _squares, takes=lambda t: len(t.squares) == 1),
    SlotType("foe", _mark("ml"), _plain, _read_foe),
    SlotType("mate", _mark("ml"), _plain, _read_foe, takes=lambda t: t.moves[0].endswith("#")),
    SlotType("line", _mark("l"), lambda n, v: numbered(*v), _read_line, "line"),
    SlotType("threat", _mark("l"), lambda n, v: numbered(*v), _read_threat),
    SlotType("count", _COUNT, lambda n, v: number_in_words(v), lambda s, w: count_of(w), plain=True),
    SlotType("times", rf"(?:{_COUNT})(?: times)?", _render_times, lambda s, w: count_of(w), plain=True),
    SlotType("ordinal", "|".join(_ORDINALS), _render_ordinal, lambda s, w: _ORDINALS[w], plain=True),
    SlotType("units", _UNITS, lambda n, v: units(v), lambda s, w: units_of(w), plain=True),
    SlotType(
        "kind", "|".join(_NAMES), lambda n, v: _NAMES[v - 1], lambda s, w: _NAMES.index(w) + 1, plain=True
    ),
    SlotType("colour", "white|black", _plain, lambda s, w: w == "white", plain=True),
    SlotType("word", "[a-z]+(?:-[a-z]+)*", _plain, lambda s, w: w, plain=True),
)
TYPES = {type_.name: type_ for type_ in _ALL}

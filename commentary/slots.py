"""The slots of templates: each type with the tokens it takes, one renderer and one reader."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import chess

from commentary import names
from commentary.names import Names
from commentary.scene import Scene
from commentary.token import Token

Subject = Literal["piece", "pieces", "side", "move", "line", "file"]
KINDS = ("pawn", "knight", "bishop", "rook", "queen")
"""In the order of the counts of pieces."""

_COUNT = "|".join((*names.NUMBERS, "none", "an", "a", "once", "twice", r"\d{1,3}"))
_UNIT = rf"(?:{'|'.join(names.NUMBERS[1:])}|an?|the) (?:minor piece|piece|queen|rook|bishop|knight|pawn)s?"
_ORDINALS = {"second": 2, "third": 3, "fourth": 4}


@dataclass(frozen=True, slots=True)
class SlotType:
    """`pattern` matches what the slot holds in a lexed text.

    `read` gets its words when `plain`, else its tokens.
    """

    name: str
    pattern: str
    render: Callable[[Names, Any], str]
    read: Callable[[Scene, Any], Any]
    subject: Subject | None = None
    plain: bool = False
    squares: bool = False
    """Whether its value is a square or a list of squares of pieces."""


def count_of(word: str) -> int:
    """The number a word stands for.

    >>> [count_of(word) for word in ("twice", "a", "three", "none", "12")]
    [2, 1, 3, 0, 12]
    """
    word = word.removesuffix(" times").removesuffix(" time")
    word = {"once": "one", "twice": "two", "a": "one", "an": "one", "none": "no"}.get(word, word)
    return int(word) if word.isdecimal() else names.NUMBERS.index(word)


def units_of(words: str) -> Counter[str]:
    """Pieces by name; `piece` is a knight or a bishop.

    >>> sorted(units_of("a rook and two pawns").items())
    [('pawn', 2), ('rook', 1)]
    """
    found: Counter[str] = Counter()
    for amount, name in re.findall(r"(\w+) ((?:minor )?\w+?)s?(?=,| and |$)", words):
        found[name.removeprefix("minor ")] += 1 if amount == "the" else count_of(amount)
    return found


def units(counts: Sequence[int]) -> str:
    """Pieces in words, the big ones first.

    >>> units((2, 0, 0, 1, 0))
    'a rook and two pawns'
    """
    parts = [(counts[kind], KINDS[kind]) for kind in (4, 3, 2, 1, 0) if counts[kind]]
    return names.joined([f"a {name}" if n == 1 else f"{names.number(n)} {name}s" for n, name in parts])


def _one(kinds: str) -> str:
    return rf"«[{kinds}]\d+»"


def _list(kinds: str) -> str:
    one = _one(kinds)
    return rf"{one}(?:, {one})*(?:,? (?:and|or) {one})?"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{names.number(count)} times")


def _file(adjective: str) -> Callable[[Names, Any], str]:
    return lambda hand, value: f"the {adjective}{chess.FILE_NAMES[value]}-file"


def _render_files(hand: Names, value: Sequence[int]) -> str:
    letters = [chess.FILE_NAMES[file] for file in value]
    if len(letters) == 1:
        return f"the {letters[0]}-file"
    return f"the {'-, '.join(letters[:-1])}- and {letters[-1]}-files"


def _render_squares(hand: Names, value: Sequence[int]) -> str:
    hand.several()
    return names.joined([chess.square_name(square) for square in value])


def _read_file(scene: Scene, found: list[Token]) -> int:
    files = scene.files(found[0])
    return files[0] if len(files) == 1 else -1


def _read_line(scene: Scene, found: list[Token]) -> chess.Color:
    """Plays the line; the side that begins it."""
    moves = scene.play(found[0])
    return bool(scene.start.turn ^ (len(moves) - len(found[0].moves)) % 2)


def _read_threat(scene: Scene, found: list[Token]) -> chess.Color:
    scene.pass_turn()
    return _read_line(scene, found)


def _read_foe(scene: Scene, found: list[Token]) -> Callable[[chess.Board], chess.Move]:
    return lambda board: scene.move_on(board, found[0])


def _squares(scene: Scene, found: list[Token]) -> list[chess.Square]:
    return [chess.parse_square(name) for name in found[0].squares]


def _render_line(hand: Names, value: tuple[chess.Board, Sequence[chess.Move]]) -> str:
    return names.numbered(*value)


_ALL = (
    SlotType("piece", _one("pi"), Names.piece, lambda s, t: s.piece(t[0]), "piece", squares=True),
    SlotType(
        "before",
        _one("pi"),
        lambda hand, value: hand.piece(value, hand.before),
        lambda s, t: s.piece(t[0], s.before),
        squares=True,
    ),
    SlotType("some", _one("p"), Names.piece, lambda s, t: s.fitting(t[0]), "piece"),
    SlotType("passer", _one("p"), lambda hand, v: "the passed pawn", lambda s, t: s.piece(t[0], s.before)),
    SlotType(
        "pieces",
        rf"{_list('pg')}|{_one('i')}",
        Names.pieces,
        lambda s, t: s.pieces(t),
        "pieces",
        squares=True,
    ),
    SlotType("square", _one("q"), lambda hand, v: _render_squares(hand, [v]), lambda s, t: _squares(s, t)[0]),
    SlotType("squares", _one("q"), _render_squares, _squares, squares=True),
    SlotType("side", _one("s"), lambda hand, v: hand.side(v).word, lambda s, t: s.side(t[0]), "side"),
    SlotType("object", _one("s"), lambda hand, v: hand.side(v).object_, lambda s, t: s.side(t[0])),
    SlotType("owner", _one("o"), lambda hand, v: hand.side(v).owner, lambda s, t: s.side(t[0])),
    SlotType("file", _one("fi"), _file(""), _read_file, "file"),
    SlotType("open_file", _one("fi"), _file("open "), _read_file, "file"),
    SlotType("half_file", _one("fi"), _file("half-open "), _read_file, "file"),
    SlotType("files", _one("fi"), _render_files, lambda s, t: s.files(t[0]), "file"),
    SlotType("move", _one("mlq"), lambda hand, v: str(v), lambda s, t: s.step(t[0]), "move"),
    SlotType("candidate", _one("mlq"), lambda hand, v: str(v), lambda s, t: s.candidate(t[0])),
    SlotType(
        "candidates", _list("mlq"), lambda hand, v: names.joined(v), lambda s, t: [s.step(x) for x in t]
    ),
    SlotType("foe", _one("ml"), lambda hand, v: str(v), _read_foe),
    SlotType("line", _one("l"), _render_line, _read_line, "line"),
    SlotType("threat", _one("l"), _render_line, _read_threat),
    SlotType("count", _COUNT, lambda hand, v: names.number(v), lambda s, w: count_of(w), plain=True),
    SlotType(
        "times", rf"(?:{_COUNT})(?: times)?", lambda h, v: _times(v), lambda s, w: count_of(w), plain=True
    ),
    SlotType(
        "ordinal",
        "|".join(_ORDINALS),
        lambda hand, v: list(_ORDINALS)[v - 2],
        lambda s, w: _ORDINALS[w],
        plain=True,
    ),
    SlotType(
        "units",
        f"{_UNIT}(?:, {_UNIT})*(?: and {_UNIT})?",
        lambda hand, v: units(v),
        lambda s, w: units_of(w),
        plain=True,
    ),
    SlotType(
        "kind",
        "|".join((*KINDS, "king")),
        lambda hand, v: chess.piece_name(v),
        lambda s, w: chess.PIECE_NAMES.index(w),
        plain=True,
    ),
    SlotType("word", "[a-z]+(?:-[a-z]+)*", lambda hand, v: str(v), lambda s, w: w, plain=True),
)
TYPES = {type_.name: type_ for type_ in _ALL}

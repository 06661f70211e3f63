"""Reads lines of EPD and FEN, as books and test suites have them, which often differ from the standard.

A line is a position, perhaps with its two counters, and operations. Of these, `id`, `bm`, `am`, `hmvc` and
`fmvn` are read, others ignored.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import chess

from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.notation import read_move

MAX_LINE_CHARS = 8192
"""The longest line that is read; some have the engine's whole line of play."""

_COUNTERS = re.compile(r"(\d+)\s+(\d+)(?=[\s;]|\Z)")
_OPERATION = re.compile(r'(?:[^;"\\]|\\.?|"(?:[^"\\]|\\.)*"?)+')
_SEPARATORS = re.compile(r"[\s,]+")


@dataclass(frozen=True, slots=True)
class Epd:
    """A line: its board, and its operations. `best` and `avoid` are moves in UCI."""

    board: chess.Board
    id: str = ""
    best: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()


def epd_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers, without empty lines and comments (`#`)."""
    for number, line in enumerate(re.split(r"\r\n?|\n", text), start=1):
        if (line := line.strip()) and not line.startswith("#"):
            yield number, line


def read_epd(line: str, *, dropped: Counter[str] | None = None) -> Epd:
    """Reads a line. `dropped` counts what is dropped from its position, as for `read_fen`.

    >>> epd = read_epd('r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1; bm 0-0, Ra2!; id "castles";')
    >>> epd.id, epd.best
    ('castles', ('e1g1', 'a1a2'))

    Raises:
        InvalidInput: the position is none or impossible, what follows it is no operation, or a move of `bm`
            or `am` is not legal.
    """
    if len(line) > MAX_LINE_CHARS:
        raise InvalidInput(f"a line of {len(line)} characters: {line[:120]!r}...")
    *fields, rest = [*line.split(None, 4), "", "", "", "", ""][:5]
    counters = _COUNTERS.match(rest)
    operations = dict(_operations(rest[counters.end() :] if counters else rest))
    clock, number = counters.groups() if counters else ("0", "1")
    clock, number = operations.get("hmvc", clock), operations.get("fmvn", number)
    board = read_fen(" ".join((*fields, clock, number)).replace(";", ""), dropped=dropped)
    best, avoid = (_moves(operations.get(code, ""), code, board) for code in ("bm", "am"))
    return Epd(board, operations.get("id", ""), best, avoid)


def _operations(text: str) -> Iterator[tuple[str, str]]:
    """The operations as pairs of opcode, in lower case, and operand."""
    for operation in _OPERATION.findall(text):
        code, _, operand = operation.strip().partition(" ")
        if code and code != "-" and not code[0].isalpha():
            raise InvalidInput(f"no operation: {operation.strip()[:40]!r}")
        operand = operand.strip()
        if operand.startswith('"'):
            operand = re.sub(r"\\(.)", r"\1", operand[1:].removesuffix('"'))
        yield code.lower(), operand


def _moves(operand: str, code: str, board: chess.Board) -> tuple[str, ...]:
    moves = []
    for word in _SEPARATORS.split(operand):
        if word.strip("+#!?"):
            reading = read_move(word, board)
            if reading.move is None:
                raise InvalidInput(f"{code} {word[:40]!r} is no legal move: {reading.outcome.value}")
            moves.append(reading.move.uci())
    return tuple(moves)

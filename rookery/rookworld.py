"""Writes and parses RookWorld's `P:` lines (candidates, evaluations, best move) and `A:` lines (next state).

Training data and model output use the same functions, so that the exact bytes are defined only once. Padding
is part of the published text, but the parsers do not depend on it. This module handles only the text. Whether
it is true on the board is decided by `rookery.rookworld_env`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import chess

from rookery.errors import InvalidInput
from rookery.trace import Evaluation

CANDIDATES = 5
"""Moves in a `P:` line. There are fewer only if fewer moves are legal."""

RECENT = 10
"""Maximum moves in the history of an `A:` line, including the move just played."""

MAX_ANSWER_CHARS = 512
"""Longer answers are invalid, and are not parsed. A published line has 175 characters."""

END_OF_TEXT = "<|endoftext|>"

_MATE_CP, _MIN_MATE_CP = 100_000, 90_000  # mate in 8 is written 999.92

_UCI = r"[a-h][1-8][a-h][1-8][qrbn]?"
_PAWNS = r"[+-]?\d{1,4}(?:\.\d{1,4})?"
_SEPARATOR = r"(?:\s*,\s*|\s+)"  # the data set has spaces, the mini implementation's example commas
_FIELDS = re.compile(
    rf"M:\s*({_UCI}(?:{_SEPARATOR}{_UCI}){{0,{CANDIDATES - 1}}})\s*"
    rf"E:\s*({_PAWNS}(?:{_SEPARATOR}{_PAWNS}){{0,{CANDIDATES - 1}}})\s*"
    rf"B:\s*({_UCI})",
    re.ASCII,
)
_MOVE = re.compile(_UCI)
_NUMBER = re.compile(_PAWNS, re.ASCII)
_FEN = re.compile(
    r"[pnbrqkPNBRQK1-8]{1,8}(?:/[pnbrqkPNBRQK1-8]{1,8}){7} [wb] (?:-|[KQkqA-Ha-h]{1,4}) "
    r"(?:-|[a-h][36]) \d{1,4} \d{1,4}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The widths of the fields of a `P:` line. None means no padding: the text and one space."""

    fen: int | None
    moves: int | None
    evals: int | None


LAYOUTS = MappingProxyType(
    {"published": Layout(89, 30, 40), "generator": Layout(90, 30, 40), "compact": Layout(None, None, None)}
)
"""`published`: the 175 characters of the released validation lines. `generator`: one more column, as written
by the released generator today. `compact`: no padding; the models are also prompted this way."""


@dataclass(frozen=True, slots=True)
class PolicyAnswer:
    """The fields after the FEN: moves in UCI, evaluations in pawns for the side to move, the best move."""

    moves: tuple[str, ...]
    evals: tuple[float, ...]
    best: str


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """A `P:` line."""

    fen: str
    answer: PolicyAnswer


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The state after a move. `truncated`: the move was illegal. `terminated`: the game is over."""

    next_fen: str
    reward: float
    terminated: bool
    truncated: bool


@dataclass(frozen=True, slots=True)
class StateLine:
    """An `A:` line. `recent` is UCI, oldest first, and ends with `move`."""

    fen: str
    move: str
    recent: tuple[str, ...]
    answer: StateAnswer


def policy_prompt(fen: str, *, layout: str = "published") -> str:
    """The prompt of a `P:` line.

    >>> policy_prompt("8/8/R7/7p/P2K2k1/7r/8/8 w - - 0 56", layout="compact")
    'P: 8/8/R7/7p/P2K2k1/7r/8/8 w - - 0 56 '
    """
    return f"P: {_cell(fen, _layout(layout).fen)}"


def policy_answer(answer: PolicyAnswer, *, layout: str = "published") -> str:
    """The text that a model should write after `policy_prompt` with the same layout.

    >>> policy_answer(PolicyAnswer(("e2e4", "e7e8q"), (0.3, 999.99), "e7e8q"), layout="compact")
    'M: e2e4 e7e8q E: 0.3 999.99 B: e7e8q'
    """
    widths = _layout(layout)
    moves = _cell(" ".join(answer.moves), widths.moves)
    evals = _cell(" ".join(map(str, answer.evals)), widths.evals)
    return f"M: {moves}E: {evals}B: {answer.best}"


def parse_policy_line(text: str) -> PolicyLine:
    """Parses a line of any layout, with or without `P:`. Raises `InvalidInput` if `text` is not a `P:`
    line."""
    fen, mark, fields = text.partition("M:")
    answer = read_policy_answer(mark + fields)
    if answer is None:
        raise InvalidInput(f"not a P: line: {text[:MAX_ANSWER_CHARS]!r}")
    return PolicyLine(parse_policy_prompt(fen), answer)


def parse_policy_prompt(text: str) -> str:
    """The FEN of a `P:` prompt, with any padding. Raises `InvalidInput` if there is no FEN."""
    fen = text.strip().removeprefix("P:").strip()
    if not is_fen(fen):
        raise InvalidInput(f"no FEN in the P: prompt {text[:MAX_ANSWER_CHARS]!r}")
    return fen


def read_policy_answer(text: str) -> PolicyAnswer | None:
    """The fields in a model's completion. None unless it consists of exactly these fields, in order.

    >>> read_policy_answer("   M: e2e4 d2d4 E: 0.3 0.2 B: e2e4<|endoftext|>")
    PolicyAnswer(moves=('e2e4', 'd2d4'), evals=(0.3, 0.2), best='e2e4')
    >>> read_policy_answer("M: e2e4,d2d4 E: 0.3,0.2 B: e2e4") == _
    True
    """
    match = _FIELDS.fullmatch(_completion(text))
    if match is None:
        return None
    moves, evals = _MOVE.findall(match[1]), _NUMBER.findall(match[2])
    if len(moves) != len(evals):
        return None
    return PolicyAnswer(tuple(moves), tuple(map(float, evals)), match[3])


def state_prompt(fen: str, move: str, recent: Sequence[str]) -> str:
    """The prompt of an `A:` line. `recent` ends with `move`.

    >>> state_prompt("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", "e2e4", ["e8d8", "e2e4"])
    'A: 4k3/8/8/8/8/8/4P3/4K3 w - - 0 1+e2e4+e8d8 e2e4+'
    """
    return f"A: {fen}+{move}+{' '.join(recent)}+"


def state_answer(answer: StateAnswer) -> str:
    """The text that a model should write after `state_prompt`."""
    return f"{answer.next_fen}+{answer.reward}+{int(answer.terminated)}+{int(answer.truncated)}"


def parse_state_line(text: str) -> StateLine:
    """Parses a line with or without `A:`. Raises `InvalidInput` if `text` is not an `A:` line."""
    parts = text.split("+")
    answer = read_state_answer("+".join(parts[3:]))
    if answer is None:
        raise InvalidInput(f"not an A: line: {text[:MAX_ANSWER_CHARS]!r}")
    return StateLine(*parse_state_prompt("+".join(parts[:3])), answer)


def parse_state_prompt(text: str) -> tuple[str, str, tuple[str, ...]]:
    """The FEN, move and recent moves of a prompt, with or without `A:` and the last `+`. Raises
    `InvalidInput` if `text` is not an `A:` prompt."""
    parts = text.strip().removeprefix("A:").strip().removesuffix("+").split("+")
    if len(parts) == 3 and is_fen(parts[0]) and is_move(parts[1]):
        recent = tuple(parts[2].split())
        if len(recent) <= RECENT and all(map(is_move, recent)):
            return parts[0], parts[1], recent
    raise InvalidInput(f"not an A: prompt: {text[:MAX_ANSWER_CHARS]!r}")


def read_state_answer(text: str) -> StateAnswer | None:
    """The state in a model's completion. None unless it consists of exactly four well-formed fields. A
    leading `+` is allowed: the model writes it if the prompt has no `+` at its end."""
    parts = [part.strip() for part in _completion(text).removeprefix("+").split("+")]
    if len(parts) != 4 or not is_fen(parts[0]) or not _NUMBER.fullmatch(parts[1]):
        return None
    if not {parts[2], parts[3]} <= {"0", "1"}:
        return None
    return StateAnswer(parts[0], float(parts[1]), parts[2] == "1", parts[3] == "1")


def to_pawns(evaluation: Evaluation) -> float:
    """An evaluation as the number in `E:`. Raises `ValueError` if it has no score.

    >>> to_pawns(Evaluation(cp=-207)), to_pawns(Evaluation(mate=8)), to_pawns(Evaluation(mate=-4))
    (-2.07, 999.92, -999.96)
    """
    if evaluation.mate is not None:
        return ((_MATE_CP if evaluation.mate > 0 else -_MATE_CP) - evaluation.mate) / 100
    if evaluation.cp is None:
        raise ValueError(f"an evaluation without a score: {evaluation!r}")
    return evaluation.cp / 100


def from_pawns(pawns: float) -> Evaluation:
    """The evaluation that a number in `E:` stands for.

    >>> from_pawns(-2.07), from_pawns(999.92)
    (Evaluation(cp=-207, mate=None), Evaluation(cp=None, mate=8))
    """
    cp = round(pawns * 100)
    if cp >= _MIN_MATE_CP:
        return Evaluation(mate=max(1, _MATE_CP - cp))
    if cp <= -_MIN_MATE_CP:
        return Evaluation(mate=min(0, -_MATE_CP - cp))
    return Evaluation(cp=cp)


def is_move(text: str) -> bool:
    """Whether `text` is a move in UCI, legal or not."""
    return _MOVE.fullmatch(text) is not None


def is_fen(text: str) -> bool:
    """Whether `text` is a FEN with six fields. The position may still be impossible."""
    if not _FEN.fullmatch(text):
        return False
    try:
        chess.Board(text)
    except ValueError:
        return False
    return True


def _layout(name: str) -> Layout:
    try:
        return LAYOUTS[name]
    except KeyError:
        raise InvalidInput(f"no layout {name!r}: choose from {', '.join(LAYOUTS)}") from None


def _cell(text: str, width: int | None) -> str:
    return f"{text} " if width is None else text.ljust(width)


def _completion(text: str) -> str:
    text = text.partition(END_OF_TEXT)[0].strip()
    return text if len(text) <= MAX_ANSWER_CHARS else ""

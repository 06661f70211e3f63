"""Finds the moves that an answer names besides its own, and the evaluations that it states of them.

The candidates are the moves in the text before the box (see `notation.named_moves`), or the `M:` field of a
`P:` line.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import chess

from rookery.answers import before_answer
from rookery.notation import named_moves
from rookery.rookworld import from_pawns, read_policy_answer
from rookery.trace import Evaluation
from rookery.winprob import win_probability


@dataclass(frozen=True, slots=True)
class Candidate:
    """A move that an answer names: UCI. The score is higher for moves that the answer ranks higher."""

    move: str
    score: float


def candidates_of(text: str, board: chess.Board) -> list[Candidate]:
    """The candidates in the order of the text, with repetitions.

    The scores are the evaluations of a `P:` line, in pawns. In other texts the move named first counts as
    the best: its score is 0, that of the next -1, and so on.

    >>> [c.move for c in candidates_of("<think>e4 or Nf3, not Nf6: e4!</think>", chess.Board())]
    ['e2e4', 'g1f3', 'e2e4']
    """
    line = read_policy_answer(text)
    if line is not None:
        return [Candidate(*pair) for pair in zip(line.moves, line.evals, strict=True)]
    moves = named_moves(before_answer(text), board)
    return [Candidate(move.uci, -float(place)) for place, move in enumerate(moves)]


def distinct(candidates: Sequence[Candidate]) -> dict[str, float]:
    """The scores of the different moves, each as named first.

    >>> distinct([Candidate("e2e4", 0.0), Candidate("d2d4", -1.0), Candidate("e2e4", -2.0)])
    {'e2e4': 0.0, 'd2d4': -1.0}
    """
    scores: dict[str, float] = {}
    for candidate in candidates:
        scores.setdefault(candidate.move, candidate.score)
    return scores


_STATED_CHARS = 10_000

_STATED = re.compile(
    r"(?<![\w.#+-])(?:(?P<percent>\d{1,3}(?:\.\d{1,3})?)\s?%"
    r"|(?P<cp>[+-]?\d{1,4})\s?(?:cp|centipawns?)(?!\w)"
    r"|(?P<pawns>[+-]\d{1,2}\.\d{1,2})(?!\w|\.\d|%)"
    r"|(?P<mate>(?:[+-]?(?:#|M)|(?:#|M)-)[1-9]\d?)(?!\w))"
)
_CHANCE = re.compile(r"win|chance|probab|expect|scor|eval", re.IGNORECASE)
_SIDE = re.compile(r"White|Black")
_CLAUSE = re.compile(
    r"[\n;]|[.!?](?=\s)(?!(?<=[1-8O+#!?][!?])\s[(\[]?(?:[+-]\d|[+-]?[#M]\d|\d+(?:\.\d|\s?%)|$))"
)
"""What ends a clause: not the mark of a move before its evaluation, "Qxf3? -2.1"."""


@dataclass(frozen=True, slots=True)
class StatedEvaluation:
    """What `text[start:end]` says something is worth to the side to move: an evaluation or a win probability.
    Of a `P:` line, the place is empty."""

    value: Evaluation | float
    start: int = 0
    end: int = 0

    @property
    def win(self) -> float:
        """The win probability, in [0, 1]."""
        return self.value if isinstance(self.value, float) else win_probability(self.value)


def stated_evaluations(text: str, board: chess.Board) -> dict[str, StatedEvaluation]:
    """What an answer says a move is worth to the side to move: by UCI, or by "" for the position itself.

    An evaluation belongs to the first legal move of its clause, which a line of moves may follow, or, without
    one, to the position. Percent are win probabilities, in [0, 1] here: they count after a move or beside a
    word such as "chance", and are the mover's unless the clause names the other side alone. Signed pawns,
    centipawns and mates are White's, as in PGN. What is said first of a move counts. In a `P:` line, the
    evaluations are those of its moves.

    >>> text = "e2e4 e7e5 g1f3 55%; d4: +0.30. a3 (-20 cp)\\nWhite has a 53% chance. \\\\boxed{e4}"
    >>> {move: round(stated.win, 2) for move, stated in stated_evaluations(text, chess.Board()).items()}
    {'e2e4': 0.55, 'd2d4': 0.53, 'a2a3': 0.48, '': 0.53}
    """
    line = read_policy_answer(text)
    if line is not None:
        return {
            move: StatedEvaluation(from_pawns(pawns))
            for move, pawns in zip(line.moves, line.evals, strict=True)
        }
    text = before_answer(text)[:_STATED_CHARS].replace("\u2212", "-")
    # A castling move has several spellings: the legal one is the key.
    moves = [(named.start, named.move.uci()) for named in named_moves(text, board) if named.move]
    stated: dict[str, StatedEvaluation] = {}
    begin = 0
    for match in _STATED.finditer(text):
        breaks = [begin, *(b.end() for b in _CLAUSE.finditer(text, begin, match.start()))]
        clause = text[breaks[-1] : match.end() + 40]
        first, end = (bisect_left(moves, (place, "")) for place in (breaks[-1], match.start()))
        named = moves[first][1] if first < end else ""
        sides = set(_SIDE.findall(_CLAUSE.split(clause, maxsplit=1)[0]))
        begin = match.end()
        value = _read_stated(match, board, sides=sides)
        if match["percent"] and not (named or _CHANCE.search(clause)):
            continue
        if value is not None:
            stated.setdefault(named, StatedEvaluation(value, *match.span()))
    return stated


def best_stated(stated: Mapping[str, StatedEvaluation]) -> Collection[str]:
    """The moves that are best by the evaluations of moves in `stated`. None if it has fewer than two."""
    wins = {move: evaluation.win for move, evaluation in stated.items() if move}
    highest = max(wins.values(), default=0.0)
    return [move for move, win in wins.items() if win == highest] if len(wins) > 1 else []


def _read_stated(match: re.Match[str], board: chess.Board, *, sides: set[str]) -> Evaluation | float | None:
    if match["percent"]:
        share = float(match["percent"]) / 100
        other = sides == {"Black" if board.turn else "White"}
        return None if share > 1 else 1 - share if other else share
    sign = 1 if board.turn else -1
    if match["mate"]:
        return Evaluation(mate=sign * int(match["mate"].replace("#", "").replace("M", "")))
    cp = int(match["cp"]) if match["cp"] else round(100 * float(match["pawns"]))
    return Evaluation(cp=sign * cp)

"""Grades RookWorld answers by a data set's own answer, the target, with continuous terms.

    -0.3                        the answer is not in the task's format
     0.2 + 0.8 x quality        it is, and quality is in [0, 1]: 1 for the target, in any order of its moves

The quality of a `P:` answer is the mean of three fields, or 0 if its best move is not legal:

    best          1 if it is the target's, else 0
    candidates    the share of places that have a different move of the target
    evaluations   the mean over the same places of 1 - |win - target's win| / `EVALUATION_SPAN`, at least 0

An `A:` answer has the similarity of its FEN, exp(-(wrong squares + wrong other fields)), less a quarter of it
for each of the three fields after the FEN that is wrong. So the exact FEN earns the steps of
`rookworld_grades`. The FEN of the question, copied, is wrong in four or five places and earns almost nothing.
If the target says that the move was illegal, its FEN is that of the question, so an answer without the flag
`truncated` has quality 0.

The terms are those of rookworld-rlvr's reward scorer: "FEN similarity (exponential), evaluation accuracy
(linear)". Its similarity by characters paid 0.86 of 1.0 for a copied FEN.
"""

import math
from itertools import chain

import chess

from rookery import rookworld
from rookery.answers import after_reasoning
from rookery.errors import QUOTED_CHARS, InvalidInput
from rookery.rookworld import StateAnswer
from rookery.trace import Outcome
from rookery.winprob import win_probability
from services.reward.rookworld_grades import FORMAT, INVALID, PERFECT, Grade, read_policy

VERSION = 1
"""Increased whenever a grade changes."""

EVALUATION_SPAN = 0.2
"""An evaluation that is wrong by this much win probability earns nothing. Near equality: two pawns."""


def grade_target(task: str, board: chess.Board, response: str, target: str, *, k: float) -> Grade:
    """The grade of an answer to task `P` or `A` about `board`. `k` is that of `win_probability`. Raises
    `InvalidInput` if `target` is not an answer to the task."""
    grade = (
        _grade_policy(board, response, target, k) if task == "P" else _grade_state(response, _state(target))
    )
    return grade or Grade(INVALID, Outcome.UNPARSABLE, {"format": 0.0})


def _grade_policy(board: chess.Board, response: str, target: str, k: float) -> Grade | None:
    truth, answer = read_policy(target, board), read_policy(response, board)
    if truth is None or truth.best is None:
        raise InvalidInput(
            f"target {target[:QUOTED_CHARS]!r} is not an answer to task 'P' in {board.fen()!r}"
        )
    if answer is None:
        return None
    if answer.best is None:
        return Grade(FORMAT, Outcome.ILLEGAL, {"format": 1.0})
    places = max(len(truth.moves), len(answer.moves))
    # Of a move that is named twice, the first evaluation counts, as in `rookworld_grades`.
    theirs = dict(zip(reversed(truth.moves), reversed(truth.evals), strict=True))
    answered = dict(zip(reversed(answer.moves), reversed(answer.evals), strict=True))
    common = [move for move in answered if move is not None and move in theirs]
    errors = [abs(win_probability(answered[m], k=k) - win_probability(theirs[m], k=k)) for m in common]
    fields = {
        "best": float(answer.best == truth.best),
        "candidates": len(common) / places,
        "evaluations": sum(max(0.0, 1.0 - error / EVALUATION_SPAN) for error in errors) / places,
    }
    return _graded(math.fsum(fields.values()) / len(fields), fields)


def _grade_state(response: str, truth: StateAnswer) -> Grade | None:
    answer = rookworld.read_state_answer(after_reasoning(response))
    if answer is None:
        return None
    flags = {
        "reward": float(answer.reward == truth.reward),
        "terminated": float(answer.terminated == truth.terminated),
        "truncated": float(answer.truncated == truth.truncated),
    }
    similarity = math.exp(-_wrong_places(answer.next_fen, truth.next_fen))
    copied = truth.truncated and not answer.truncated
    wrong = len(flags) - sum(flags.values())
    return _graded(0.0 if copied else similarity * (1.0 - wrong / 4), {"fen": similarity, **flags})


def _state(target: str) -> StateAnswer:
    truth = rookworld.read_state_answer(target)
    if truth is None:
        raise InvalidInput(f"target {target[:QUOTED_CHARS]!r} is not an answer to task 'A'")
    return truth


def _graded(quality: float, fields: dict[str, float]) -> Grade:
    return Grade(FORMAT + (PERFECT - FORMAT) * quality, Outcome.LEGAL, {"format": 1.0, **fields})


def _wrong_places(fen: str, target: str) -> int:
    """How many of the 64 squares and the five other fields of two FENs differ.

    >>> _wrong_places("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1", "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1")
    3
    """
    (board, *fields), (target_board, *target_fields) = (text.split(" ") for text in (fen, target))
    squares = zip(_squares(board), _squares(target_board), strict=True)
    return sum(place != right for place, right in chain(squares, zip(fields, target_fields, strict=True)))


def _squares(placement: str) -> str:
    return "".join("." * int(c) if c.isdigit() else c for c in placement.replace("/", ""))

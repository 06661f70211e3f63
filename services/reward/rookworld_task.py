"""RookWorld's tasks `P` and `A`: makes the searches that `rookworld_grades` needs, and the verdicts.

Answers that come with a target are graded by it alone, in `target_grades`.
"""

from collections.abc import Sequence
from typing import Any

from rookery.engines import RequestQueue
from rookery.errors import InvalidInput, RookeryError, free_frames
from rookery.prompt import STATE_TASK
from rookery.schemes import MAX_SCHEME_CHARS
from rookery.trace import ScoreItem, Verdict
from services.reward import target_grades
from services.reward.position import JudgedPosition
from services.reward.rookworld_grades import (
    VERSION,
    Grade,
    PolicyAnswerOnBoard,
    grade_policy,
    grade_state,
    read_policy,
)
from services.reward.searches import Result, Searches, Values
from services.reward.target_grades import grade_target

LINES = 5
"""Moves in a `P:` answer, so the engine is asked for as many."""

SCHEME, TARGET = "graded", "target"


def judged_by_target(task: str, scheme: str, target: str) -> bool:
    """Whether an answer to task P or A is judged by its target. By default it is, if it has one. Raises
    `InvalidInput` if `scheme` is neither empty nor `graded` or `target`, or there is no target."""
    if scheme not in ("", SCHEME, TARGET):
        raise InvalidInput(
            f"scheme {scheme[:MAX_SCHEME_CHARS]!r} judges moves: task {task!r} takes only {SCHEME!r} and "
            f"{TARGET!r}"
        )
    if scheme == TARGET and not target:
        raise InvalidInput(f"scheme {TARGET!r} of task {task!r} needs a target")
    return bool(target) and scheme != SCHEME


class RookWorldTask:
    """Grades answers with `searches`."""

    def __init__(self, searches: Searches) -> None:
        self._searches = searches
        self._k = searches.model.k
        self._version = f"{SCHEME}-{VERSION}/{searches.version}"
        self._target_version = f"{TARGET}-{target_grades.VERSION}/{searches.model.id}"

    async def read(self, item: ScoreItem, position: JudgedPosition) -> PolicyAnswerOnBoard | Verdict:
        """The `P:` answer to be judged, or the verdict of an answer that needs no search. Raises
        `InvalidInput` if the scheme is not one of these tasks, or the target or the move is not valid."""
        if judged_by_target(item.task, item.scheme, item.target):
            grade = grade_target(item.task, position.board, item.response, item.target, k=self._k)
            return self._verdict(grade, version=self._target_version)
        if item.task == STATE_TASK:
            return self._verdict(grade_state(item.fen, item.move, item.response))
        answer = read_policy(item.response, position.board)
        if answer is None or answer.best is None:
            return self._verdict(grade_policy(answer, {}, top=(), k=self._k))
        return answer

    async def judge(
        self, position: JudgedPosition, answers: Sequence[PolicyAnswerOnBoard], queue: RequestQueue
    ) -> list[Result]:
        """The verdicts of `P:` answers to one position, in their order; an error if a move's search failed.
        Raises `RookeryError` if the search of the whole position failed."""
        named = [move for answer in answers for move in answer.named]
        async with queue.many_moves:
            values = await self._searches.values(position, named, queue, lines=LINES)
        return [self._result(answer, values) for answer in answers]

    def _result(self, answer: PolicyAnswerOnBoard, values: Values) -> Result:
        try:
            wins = {move: values[move].win for move in (*values.top, *answer.named)}
            return self._verdict(
                grade_policy(answer, wins, top=values.top, k=self._k),
                **self._searches.compare(values, answer.best or answer.named[0], answer.named),
            )
        except RookeryError as error:
            free_frames(error)
            return error

    def _verdict(self, grade: Grade, *, version: str = "", **compared: Any) -> Verdict:
        return Verdict(
            grade.reward,
            grade.outcome,
            version or self._version,
            components=grade.components,
            **{"engine": self._searches.stamp(), **compared},
        )

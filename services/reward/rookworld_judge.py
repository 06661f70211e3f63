"""Judges RookWorld's `P:` and `A:` answers: makes the searches that their grades need, and the verdicts.

`rookworld_grades` reads and grades the answers. This module adds the engine's searches. Answers that come
with a target are graded by it alone, in `target_grades`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import chess

from rookery.engines import RequestQueue
from rookery.errors import InvalidInput, RookeryError
from rookery.schemes import MAX_SCHEME_CHARS
from rookery.trace import EngineStamp, Verdict
from rookery.uci import Analysis
from rookery.winprob import win_probability
from services.reward import target_grades
from services.reward.move_judge import MoveJudge, MoveValue, Result
from services.reward.position import Position
from services.reward.rookworld_grades import (
    VERSION,
    Grade,
    PolicyAnswer,
    PolicyTruth,
    grade_policy,
    grade_state,
    read_policy,
    refuse_policy,
)
from services.reward.target_grades import grade_target

LINES = 5
"""Moves in a `P:` answer, so the engine is asked for as many."""

SCHEME, TARGET = "graded", "target"
SCHEME_ID = f"{SCHEME}-{VERSION}"
TARGET_ID = f"{TARGET}-{target_grades.VERSION}"


def judged_by_target(task: str, scheme: str, target: str) -> bool:
    """Whether an answer to task P or A is judged by its target. By default it is, if it has one.

    Raises:
        InvalidInput: `scheme` is neither empty nor `graded` or `target`, or there is no target.
    """
    if scheme not in ("", SCHEME, TARGET):
        raise InvalidInput(
            f"scheme {scheme[:MAX_SCHEME_CHARS]!r} judges moves: task {task!r} takes only {SCHEME!r} and "
            f"{TARGET!r}"
        )
    if scheme == TARGET and not target:
        raise InvalidInput(f"scheme {TARGET!r} of task {task!r} needs a target")
    return bool(target) and scheme != SCHEME


class RookworldJudge:
    """Grades answers with the searches of `judge`."""

    def __init__(self, judge: MoveJudge, *, searched: str, engine_id: str) -> None:
        self._judge = judge
        self._version = f"{SCHEME_ID}/{judge.model.id}/{searched}"
        self._target_version = f"{TARGET_ID}/{judge.model.id}"
        self._engine_id = engine_id

    def target(self, task: str, position: Position, response: str, target: str) -> Verdict:
        """The verdict of an answer by `target`, the right answer. It needs no search.

        Raises:
            InvalidInput: `target` is not an answer to the task.
        """
        grade = grade_target(task, position.board, response, target, k=self._judge.model.k)
        return replace(self._verdict(grade, nodes=0), reward_version=self._target_version)

    def state(self, fen: str, move: str, response: str) -> Verdict:
        """The verdict of an `A:` answer about `move`. It needs no search.

        Raises:
            InvalidInput: `move` is not written in UCI.
        """
        return self._verdict(grade_state(fen, move, response), nodes=0)

    async def policy(self, position: Position, responses: Sequence[str], queue: RequestQueue) -> list[Result]:
        """The verdicts of `P:` answers to one position, in their order; an error if a search failed."""
        answers = [read_policy(response, position.board) for response in responses]
        sound = [answer for answer in answers if answer is not None and answer.best is not None]
        if not sound:
            return [self._refusal(answer) for answer in answers]
        root = await self._judge.root(position, queue, lines=LINES)
        if not isinstance(root, Analysis):
            return [root if answer in sound else self._refusal(answer) for answer in answers]
        best = [(position.from_engine(line.pv[0]), line) for line in root.lines]
        top = {move: self._judge.value(position.legal_move(move), line) for move, line in best}
        others = dict.fromkeys(move for answer in sound for move in answer.named if move not in top)
        values = {**top, **await self._judge.values(position, list(others), queue)}
        return [
            self._graded(position, answer, top, values, root.nodes)
            if answer is not None and answer.best is not None
            else self._refusal(answer)
            for answer in answers
        ]

    def _refusal(self, answer: PolicyAnswer | None) -> Verdict:
        grade = refuse_policy(answer)
        if grade is None:
            raise ValueError(f"an answer that is to be graded: {answer!r}")
        return self._verdict(grade, nodes=0)

    def _graded(
        self,
        position: Position,
        answer: PolicyAnswer,
        top: Mapping[chess.Move, MoveValue],
        values: Mapping[chess.Move, MoveValue | RookeryError],
        root_nodes: int,
    ) -> Result:
        judged: dict[chess.Move, MoveValue] = {}
        for move in (*top, *answer.named):
            value = values[move]
            if not isinstance(value, MoveValue):
                return value
            judged[move] = value
        truth = PolicyTruth(
            top={move: judged[move].win for move in top},
            wins={move: value.win for move, value in judged.items()},
            win=lambda claimed: win_probability(claimed, k=self._judge.model.k),
        )
        verdict = self._verdict(
            grade_policy(answer, truth), nodes=root_nodes + sum(judged[move].nodes for move in answer.named)
        )
        best = max(top, key=lambda move: judged[move].win)
        played = answer.best or best
        return replace(
            verdict,
            move=position.legal_move(played).move,
            best=position.legal_move(best).move,
            win_before=judged[best].win,
            win_after=judged[played].win,
            regret=max(0.0, judged[best].win - judged[played].win),
            eval_before=judged[best].evaluation,
            eval_after=judged[played].evaluation,
        )

    def _verdict(self, grade: Grade, *, nodes: int) -> Verdict:
        return Verdict(
            reward=grade.reward,
            outcome=grade.outcome,
            reward_version=self._version,
            components=grade.components,
            engine=EngineStamp(self._engine_id, nodes),
        )

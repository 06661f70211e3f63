"""A taskset for verifiers, and so for prime-rl: questions of `rookery data`, rewards of the reward service.

eval rookery-chess --env.taskset.questions questions.jsonl
"""

from collections.abc import Iterable

import verifiers.v1 as vf

from rookery_bridges.client import RewardClient
from rookery_bridges.questions import Question, read_questions


class ChessData(vf.TaskData):
    """A question, as it travels with the trace."""

    fen: str
    task: str = ""
    move: str = ""


class ChessTaskConfig(vf.TaskConfig):
    """Which reward: of which service, by which scheme."""

    reward_url: str = ""
    """The reward service. Default: `ROOKERY_REWARD_URL`."""
    scheme: str = ""
    """The scheme. Default: the service's."""


class ChessTask(vf.Task[ChessData, vf.State, ChessTaskConfig]):
    """One question, with one answer."""

    @vf.reward
    async def reward(self, trace: vf.Trace) -> float:
        """The reward of the service. A fault of the service is an error of the rollout, never a reward."""
        client = RewardClient(self.config.reward_url, scheme=self.config.scheme)
        data = self.data
        question = Question(data.id or "", [], data.fen, task=data.task, move=data.move)
        [verdict] = await client.ascore([question.answer(trace.last_reply)])
        trace.record_metric("legal", float(verdict.legal))
        return verdict.reward


class ChessConfig(vf.TasksetConfig):
    """Where the questions are."""

    questions: str = "questions.jsonl"
    """JSON lines of `rookery data sample --style` or `rookery data tasks --jsonl`."""
    task: ChessTaskConfig = ChessTaskConfig()


class ChessTaskset(vf.Taskset[ChessTask, ChessConfig]):
    """The questions of a file, as tasks."""

    def load(self) -> Iterable[ChessTask]:
        for question in read_questions(self.config.questions):
            # verifiers wants the system prompt apart.
            system = [turn["content"] for turn in question.prompt if turn["role"] == "system"]
            data = ChessData(
                id=question.id,
                prompt="\n".join(turn["content"] for turn in question.prompt if turn["role"] == "user"),
                system_prompt="\n".join(system) or None,
                fen=question.fen,
                task=question.task,
                move=question.move,
            )
            yield ChessTask(data, self.config.task)

"""Environments for tinker-cookbook: questions of `rookery data`, one request for a group of answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import tinker
from tinker_cookbook import renderers
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    Metrics,
    StepResult,
    Trajectory,
)

from rookery_bridges.client import RewardClient
from rookery_bridges.questions import Question


class ChessEnv(Env):
    """One question. The answer is kept: the group's rewards come from `ChessGroup`."""

    def __init__(self, question: Question, renderer: renderers.Renderer) -> None:
        self.question = question
        self.answer = ""
        self._renderer = renderer

    async def initial_observation(self) -> tuple[tinker.ModelInput, StopCondition]:
        prompt = self._renderer.build_generation_prompt(self.question.prompt)
        return prompt, self._renderer.get_stop_sequences()

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        message, _ = self._renderer.parse_response(action)
        self.answer = renderers.format_content_as_string(message["content"], separator="")
        return StepResult(
            reward=0.0,
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self._renderer.get_stop_sequences(),
        )


@dataclass(frozen=True)
class ChessGroup(EnvGroupBuilder):
    """`size` answers to one question."""

    question: Question
    renderer: renderers.Renderer
    size: int
    client: RewardClient = field(default_factory=RewardClient)

    async def make_envs(self) -> Sequence[ChessEnv]:
        return [ChessEnv(self.question, self.renderer) for _ in range(self.size)]

    async def compute_group_rewards(
        self, trajectory_group: list[Trajectory], env_group: Sequence[ChessEnv]
    ) -> list[tuple[float, Metrics]]:
        """The rewards of the service. A RewardFault fails the group: nothing is trained on it."""
        verdicts = await self.client.ascore(self.question.answer(env.answer) for env in env_group)
        return [(verdict.reward, {"legal": float(verdict.legal)}) for verdict in verdicts]

    def logging_tags(self) -> list[str]:
        return ["chess"]

"""An environment for OpenEnv: one answer to one position, over its own server.

    ROOKERY_QUESTIONS=questions.jsonl uvicorn rookery_bridges.openenv:app

OpenEnv's own chess environment pays -0.1 for an illegal move and -1 for a lost game, so a losing player does
best to break the rules. Here no legal move is worth less than an illegal one.
"""

import os
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Any
from uuid import uuid4

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from rookery_bridges.client import RewardClient
from rookery_bridges.questions import Question, read_questions


class ChessAction(Action):
    """The model's completion, such as `\\boxed{e4}`."""

    response: str


class ChessObservation(Observation):
    """The question. After the answer, `done`, `reward` and `outcome` ("legal", or why not) are set."""

    prompt: list[dict[str, str]]
    fen: str
    outcome: str = ""


class ChessEnvironment(Environment[ChessAction, ChessObservation, State]):
    """Each episode asks the next question, or question number `seed` if a seed is given."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self, questions: list[Question], client: RewardClient, *, order: Iterator[int] | None = None
    ) -> None:
        """`order` yields the number of the next question. Sessions share it, or each would begin with 0."""
        super().__init__()
        self._questions = questions
        self._order = order or cycle(range(len(questions)))
        self._client = client
        self._question = questions[0]
        self._state = State(episode_id=None, step_count=0)

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any
    ) -> ChessObservation:
        number = next(self._order) if seed is None else seed
        self._question = self._questions[number % len(self._questions)]
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._observation()

    def step(self, action: ChessAction, timeout_s: float | None = None, **kwargs: Any) -> ChessObservation:
        if self._state.episode_id is None or self._state.step_count:
            raise ValueError("the episode is over, or none has begun: call reset")
        [verdict] = self._client.score([self._question.answer(action.response)])
        self._state.step_count = 1
        return self._observation(done=True, reward=verdict.reward, outcome=verdict.outcome)

    @property
    def state(self) -> State:
        return self._state

    def _observation(self, **result: Any) -> ChessObservation:
        return ChessObservation(prompt=self._question.prompt, fen=self._question.fen, **result)


@cache
def _questions() -> tuple[list[Question], Iterator[int]]:
    questions = list(read_questions(os.environ["ROOKERY_QUESTIONS"]))
    return questions, cycle(range(len(questions)))


def _create_environment() -> ChessEnvironment:
    questions, order = _questions()
    return ChessEnvironment(questions, RewardClient(), order=order)


app = create_app(_create_environment, ChessAction, ChessObservation, env_name="rookery-chess")

"""An environment for OpenEnv, over its own server: one answer to one position, or an episode of many turns.

    ROOKERY_QUESTIONS=questions.jsonl uvicorn rookery_bridges.openenv:app
    ROOKERY_EPISODE=game,opponent=random,start=book uvicorn rookery_bridges.openenv:app

OpenEnv's own chess environment pays -0.1 for an illegal move and -1 for a lost game, so a losing player does
best to break the rules. Here no legal move is worth less than an illegal one.
"""

import os
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any
from uuid import uuid4

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

from rookery_bridges.client import EpisodeState, RewardClient
from rookery_bridges.questions import Question, begins_with_book, first_request, read_questions

VARIABLE = "ROOKERY_QUESTIONS"


class ChessAction(Action):
    """The model's completion, such as `\\boxed{e4}`."""

    response: str
    truncated: bool = False
    """It was cut at its token limit."""


class ChessObservation(Observation):
    """The question. `reward` is that of the last answer. `done` is set at the end, and so is `outcome` of a
    question: "legal", or why not."""

    prompt: list[dict[str, str]]
    """The whole conversation so far; empty at the end of an episode."""
    tools: list[dict[str, Any]]
    """The schemas for the chat template, in episodes with `calls=template`."""
    fen: str
    outcome: str = ""
    observation: str = ""
    """What the environment said after an answer, such as the opponent's move or how a game ended."""


class ChessEnvironment(Environment[ChessAction, ChessObservation, State]):
    """Each episode asks the next question, or question number `seed` if a seed is given."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        questions: list[Question],
        client: RewardClient,
        *,
        order: Iterator[int] | None = None,
        episode: str = "",
    ) -> None:
        """`order` yields the number of the next question. Sessions share it, or each would begin with 0.
        `episode` is what begins at the questions' positions: one of several turns."""
        super().__init__()
        self._questions = questions
        self._order = order or count()
        self._client = client
        self._kind = episode
        self._asked: Question | EpisodeState | None = None
        self._done = True
        self._state = State(episode_id=None, step_count=0)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        episode: str = "",
        fen: str = "",
        style: str = "fen",
        slot: int | None = None,
        **kwargs: Any,
    ) -> ChessObservation:
        """Begins. `episode`, `fen`, `style` and `slot` are those of `/v1/episodes`."""
        self._done = True  # until all has worked
        number = next(self._order) if seed is None else seed
        kind = episode or self._kind
        if not kind or not (fen or begins_with_book(kind)):
            if not self._questions:
                raise ValueError(f"episode {kind!r} without a fen needs questions: set {VARIABLE}")
            self._asked = self._questions[number % len(self._questions)]
            fen = self._asked.fen
        if kind:
            self._asked = self._client.play(
                first_request(kind, number=number, fen=fen, style=style, slot=slot)
            )
        self._done = False
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._observation()

    def step(self, action: ChessAction, timeout_s: float | None = None, **kwargs: Any) -> ChessObservation:
        asked, response, truncated = self._asked, action.response, action.truncated
        if self._done or asked is None:
            raise ValueError("the episode is over, or none has begun: call reset")
        if isinstance(asked, EpisodeState):
            self._asked = after = self._client.play(asked.episode, response=response, truncated=truncated)
            reward, outcome, self._done = after.reward, "", after.done
        else:
            [verdict] = self._client.score([asked.answer(response, truncated=truncated)])
            reward, outcome, self._done = verdict.reward, verdict.outcome, True
        self._state.step_count += 1
        return self._observation(done=self._done, reward=reward, outcome=outcome)

    @property
    def state(self) -> State:
        return self._state

    def _observation(self, **result: Any) -> ChessObservation:
        asked = self._asked
        assert asked is not None  # noqa: S101 -- reset asks
        observation, tools = (asked.observation, asked.tools) if isinstance(asked, EpisodeState) else ("", [])
        return ChessObservation(
            prompt=asked.prompt or [], tools=tools, fen=asked.fen, observation=observation, **result
        )


@cache
def _questions() -> tuple[list[Question], Iterator[int]]:
    path = os.environ.get(VARIABLE)
    return list(read_questions(path)) if path else [], count()


def _create_environment() -> ChessEnvironment:
    questions, order = _questions()
    return ChessEnvironment(
        questions, RewardClient(), order=order, episode=os.environ.get("ROOKERY_EPISODE", "")
    )


app = create_app(_create_environment, ChessAction, ChessObservation, env_name="rookery-chess")

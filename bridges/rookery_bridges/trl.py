"""Reward functions for TRL's `GRPOTrainer` and `AsyncGRPOTrainer`.

    GRPOTrainer(..., reward_funcs=rookery_bridges.trl.reward)

The training set needs a column `fen`. It may have `task`, `move`, `target` and `truncated`, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from threading import Lock
from typing import Any

from rookery_bridges.client import Answer, RewardClient, Verdict, with_reasoning

Completion = str | Sequence[Mapping[str, Any]]
"""A text, or the messages of a conversation."""

_COLUMNS = {field.name for field in fields(Answer)} - {"fen", "response", "scheme"}


FROM_ENVIRONMENT = RewardClient()
"""Its address and token are in `ROOKERY_REWARD_URL` and `ROOKERY_TOKEN`."""


def reward(
    completions: Sequence[Completion],
    *,
    fen: Sequence[str],
    client: RewardClient = FROM_ENVIRONMENT,
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float]:
    """The reward of each completion as an answer to the position in `fen`.

    For another service or scheme, call it in a function of yours with `client=RewardClient(url,
    scheme="best")`: TRL wants functions that have a name. The share of legal moves is logged as `legal_rate`
    if TRL gives `log_metric`. Raises `RewardFault` if there is no reward, because the service does not answer
    or a FEN is not valid.
    """
    verdicts = _verdicts(client, _answers(completions, fen, columns))
    if log_metric is not None and verdicts:
        log_metric("legal_rate", sum(verdict.legal for verdict in verdicts) / len(verdicts))
    return [verdict.reward for verdict in verdicts]


def components(scheme: str, client: RewardClient = FROM_ENVIRONMENT) -> list[Callable[..., list[float]]]:
    """One reward function for each term of a scheme such as `delta+0.1*candidates`, for TRL to log.

    Their sum is the reward of the scheme. All of them together send one request.
    """
    terms = scheme.replace(" ", "").split("+")
    client = replace(client, scheme=scheme)
    return [Component(client, place, term.rpartition("*")[2]) for place, term in enumerate(terms)]


@dataclass(frozen=True)
class Component:
    """The reward function of the term of the client's scheme at `place`. It can be pickled."""

    client: RewardClient
    place: int
    __name__: str

    def __call__(
        self, completions: Sequence[Completion], *, fen: Sequence[str], **columns: Any
    ) -> list[float]:
        return [
            self._value(verdict) for verdict in _verdicts(self.client, _answers(completions, fen, columns))
        ]

    def _value(self, verdict: Verdict) -> float:
        """An answer without a legal move has no terms. Its penalty counts as the first term's value."""
        if not verdict.legal:
            return verdict.reward if self.place == 0 else 0.0
        return list(verdict.components.values())[self.place]


@lru_cache(maxsize=1)
def _last_verdicts(client: RewardClient, answers: tuple[Answer, ...]) -> list[Verdict]:
    return client.score(answers)


_LOCK = Lock()


def _verdicts(client: RewardClient, answers: tuple[Answer, ...]) -> list[Verdict]:
    """The verdicts on a batch. Those on the last one are kept, because each function of `components` asks.

    `AsyncGRPOTrainer` calls them at once, in threads: the first one asks, and the others wait for its answer.
    """
    with _LOCK:
        return _last_verdicts(client, answers)


def _answers(
    completions: Sequence[Completion], fen: Sequence[str], columns: Mapping[str, Any]
) -> tuple[Answer, ...]:
    columns = {name: values for name, values in columns.items() if name in _COLUMNS}
    answers = []
    for i, (completion, position) in enumerate(zip(completions, fen, strict=True)):
        options: dict[str, Any] = {name: values[i] for name, values in columns.items() if values[i]}
        answers.append(Answer(position, _text(completion), **options))
    return tuple(answers)


def _text(completion: Completion) -> str:
    """The completion itself if it is a text; the last message of the assistant if it is a conversation.

    TRL splits the reasoning off if the tokenizer has a response template, as `AsyncGRPOTrainer` gives it one.
    """
    if isinstance(completion, str):
        return completion
    turn = next(turn for turn in reversed(completion) if turn["role"] == "assistant")
    content, reasoning = turn["content"], turn.get("reasoning_content")
    if reasoning is None:
        reasoning = turn.get("thinking")
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return with_reasoning(reasoning, text)

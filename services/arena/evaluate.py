"""Asks a policy about every position and has its answers judged by the reward service.

Two policies are asked one after the other, so that a server with few adapter slots need not swap between
them. Sample i of a position has the same seed for both. If a request fails for good, the evaluation stops: no
answer is made up, and no position is left out silently.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from rookery.clients import InferenceClient, RewardClient, ScoreItem
from rookery.errors import NotFound, PeerFault, WireError
from rookery.prompt import render
from rookery.trace import Completion, Outcome, Position, Sampling, Trace, Verdict, policy_name
from services.arena.measures import Answers

TRIES = 3
_BACKOFF_S = 1.0
_WEIGHTS = "adapter_model.safetensors"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Policy:
    """A served policy. `sha256` is that of its adapter, None if this process cannot know it."""

    name: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Questions:
    """How every position is asked."""

    style: str
    samples: int
    sampling: Sampling
    seed: int

    @property
    def greedy(self) -> Sampling:
        """The same sampling settings at temperature 0."""
        return replace(self.sampling, temperature=0.0)


async def find_policy(inference: InferenceClient, name: str) -> Policy:
    """The served policy `name`. The name `policy` is resolved to the current version.

    Raises:
        NotFound: the server does not serve it. The message lists what it serves.
        PeerFault: the server does not answer.
    """
    served = await inference.served()
    if name not in served:
        raise NotFound(f"policy {name!r} is not served at {inference.url}: it serves {', '.join(served)}")
    current = await inference.policy()
    if current is not None and name in (current.name, "policy"):
        return Policy(policy_name(current.number), current.sha256)
    return Policy(name, _sha256(served[name] / _WEIGHTS))


async def ask(
    positions: Sequence[Position],
    *,
    policy: str,
    questions: Questions,
    inference: InferenceClient,
    reward: RewardClient,
    concurrency: int,
    answered: Callable[[], None] = lambda: None,
) -> list[Answers]:
    """The judged answers of `policy` in the order of `positions`. `answered` is called after each position.

    Raises:
        NotFound: the server no longer serves the policy.
        InvalidInput: the server or the reward service refuses a position.
        PeerFault: the server or the reward service did not answer after several attempts.
        WireError: a verdict has no finite reward or regret.
    """
    slots = asyncio.Semaphore(concurrency)

    async def one(position: Position) -> Answers:
        async with slots:
            answers = await _answers(
                position, policy=policy, questions=questions, inference=inference, reward=reward
            )
        answered()
        return answers

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(position)) for position in positions]
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from faults
    return [task.result() for task in tasks]


async def _answers(
    position: Position, *, policy: str, questions: Questions, inference: InferenceClient, reward: RewardClient
) -> Answers:
    prompt = render(position, style=questions.style)
    seed = position_seed(position, seed=questions.seed)

    async def complete(count: int, sampling: Sampling) -> tuple[Completion, ...]:
        generation = await _patiently(
            lambda: inference.complete(prompt, model=policy, count=count, sampling=sampling, seed=seed)
        )
        return generation.completions

    completions = (
        *await complete(1, questions.greedy),
        *await complete(questions.samples, questions.sampling),
    )
    items = [ScoreItem(prompt.fen, c.text, truncated=c.truncated) for c in completions]
    verdicts = [_sound(verdict, fen=prompt.fen) for verdict in await reward.score(items)]
    greedy, *samples = [
        Trace(f"{policy}/{position.id}/{'greedy' if i == 0 else i - 1}", completion, verdict)
        for i, (completion, verdict) in enumerate(zip(completions, verdicts, strict=True))
    ]
    return Answers(position, prompt, greedy, tuple(samples))


def position_seed(position: Position, *, seed: int) -> int:
    """The seed of the position's first sample. It depends only on the position and `seed`.

    It has 30 bits, so that the seeds of the further samples, which count up from it, fit into 31.
    """
    digest = hashlib.sha256(f"{seed}:{position.id}:{position.fen}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 2


def _sound(verdict: Verdict, *, fen: str) -> Verdict:
    """Returns `verdict`.

    Raises:
        WireError: its reward or regret is missing or not finite, which would silently spoil every mean.
    """
    judged = (verdict.reward, verdict.regret if verdict.outcome is Outcome.LEGAL else 0.0)
    if any(value is None or not math.isfinite(value) for value in judged):
        raise WireError(f"verdict on {fen!r} without a finite reward and regret: {verdict!r}")
    return verdict


async def _patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    for attempt in range(1, TRIES):
        try:
            return await call()
        except PeerFault:
            await asyncio.sleep(_BACKOFF_S * attempt)
    return await call()


def _sha256(path: Path) -> str | None:
    """The SHA-256 of the file, or None if it is not on this machine."""
    if not path.is_absolute() or not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()

"""Compares rewards and advantages of an archive with those under another scheme.

The reward service scores every answer again. An advantage here is the reward minus the mean of its group. The
trainer may also divide it by a positive number, which changes no sign.
"""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from rookery.advantages import group_advantages, zero_variance
from rookery.clients import ScoreItem
from rookery.clients.score_stream import Scorer
from rookery.errors import InvalidInput, RookeryError
from rookery.prompt import STATE_TASK, target_of, task_of
from rookery.trace import TraceGroup, Verdict
from services.data.store.parquet import Kind

_NOISE = 1e-9
"""Advantages smaller than this are rounding errors and count as zero."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """One answer under both schemes."""

    group_id: str
    trace_id: str
    policy: int
    outcome: str
    reward_before: float
    reward_after: float
    advantage_before: float
    advantage_after: float


RESCORED = Kind("rescored", Rescored)


async def rescore(
    groups: Iterable[TraceGroup], scorer: Scorer, *, scheme: str, task: str = "", in_flight: int = 2048
) -> AsyncGenerator[tuple[TraceGroup, list[Verdict]]]:
    """Yields each group with its new verdicts, in order. At most `in_flight` answers are scored at once.

    Raises:
        InvalidInput: the service refuses an answer, for example because the scheme does not exist.
        PeerFault: the service does not answer.
    """
    requests = (((number, group), list(_items(group, task))) for number, group in enumerate(groups))
    early: dict[int, tuple[TraceGroup, list[Verdict]]] = {}
    due = 0
    async with aclosing(scorer.stream(requests, scheme=scheme, items=in_flight)) as answers:
        async for (number, group), slots in answers:
            early[number] = group, _verdicts(group, slots)
            while due in early:
                yield early.pop(due)
                due += 1


def compare(group: TraceGroup, verdicts: Sequence[Verdict]) -> Iterator[Rescored]:
    """The answers of a group under both schemes."""
    before, after = group.rewards, [verdict.reward for verdict in verdicts]
    advantages_before, advantages_after = (group_advantages(r, normalise=False) for r in (before, after))
    for index, trace in enumerate(group.traces):
        yield Rescored(
            group_id=group.id,
            trace_id=trace.id,
            policy=group.policy.number,
            outcome=verdicts[index].outcome.value,
            reward_before=before[index],
            reward_after=after[index],
            advantage_before=advantages_before[index],
            advantage_after=advantages_after[index],
        )


@dataclass(slots=True)
class Moments:
    """Running means and sums of products of pairs of numbers, for their correlation.

    `means` are the two means; `sums` are the sums of dx^2, dy^2 and dx dy.
    """

    count: int = 0
    means: list[float] = field(default_factory=lambda: [0.0] * 2)
    sums: list[float] = field(default_factory=lambda: [0.0] * 3)

    def add(self, x: float, y: float) -> None:
        """Adds a pair by Welford's algorithm, which stays exact for millions of similar pairs."""
        self.count += 1
        dx, dy = x - self.means[0], y - self.means[1]
        self.means[0] += dx / self.count
        self.means[1] += dy / self.count
        self.sums[0] += dx * (x - self.means[0])
        self.sums[1] += dy * (y - self.means[1])
        self.sums[2] += dx * (y - self.means[1])

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation; None if one side is constant."""
        spread = math.sqrt(self.sums[0] * self.sums[1])
        return self.sums[2] / spread if spread > 0 else None


@dataclass(slots=True)
class Comparison:
    """The effect of the other scheme on a whole archive."""

    groups: int = 0
    uniform_before: int = 0
    uniform_after: int = 0
    uniform_both: int = 0
    flipped: int = 0
    """Answers whose advantage changes its sign."""
    silenced: int = 0
    """Answers with an advantage before and none after; `awakened` is the opposite."""
    awakened: int = 0
    rewards: Moments = field(default_factory=Moments)
    advantages: Moments = field(default_factory=Moments)
    outcomes: dict[str, Moments] = field(default_factory=dict)
    versions_before: Counter[str] = field(default_factory=Counter)
    versions_after: Counter[str] = field(default_factory=Counter)

    def add(self, group: TraceGroup, verdicts: Sequence[Verdict]) -> list[Rescored]:
        """Adds one group. Returns its answers under both schemes."""
        rows = list(compare(group, verdicts))
        self.groups += 1
        uniform = [zero_variance(side) for side in (group.rewards, [v.reward for v in verdicts])]
        self.uniform_before += uniform[0]
        self.uniform_after += uniform[1]
        self.uniform_both += all(uniform)
        self.versions_before.update(trace.verdict.reward_version for trace in group.traces)
        self.versions_after.update(verdict.reward_version for verdict in verdicts)
        for row in rows:
            self._add(row)
        return rows

    def _add(self, row: Rescored) -> None:
        self.rewards.add(row.reward_before, row.reward_after)
        self.advantages.add(row.advantage_before, row.advantage_after)
        self.outcomes.setdefault(row.outcome, Moments()).add(row.reward_before, row.reward_after)
        before, after = _sign(row.advantage_before), _sign(row.advantage_after)
        self.flipped += before * after < 0
        self.silenced += before != 0 and after == 0
        self.awakened += before == 0 and after != 0

    def summary(self) -> dict[str, Any]:
        """The comparison as JSON values. The entries of `advantage_signs` count answers."""
        answers = self.rewards.count
        return {
            "groups": self.groups,
            "answers": answers,
            "reward_versions": {
                "before": dict(self.versions_before.most_common()),
                "after": dict(self.versions_after.most_common()),
            },
            "reward_correlation": _rounded(self.rewards.correlation),
            "advantage_correlation": _rounded(self.advantages.correlation),
            "advantage_signs": {
                "flipped": self.flipped,
                "silenced": self.silenced,
                "awakened": self.awakened,
                "kept": answers - self.flipped - self.silenced - self.awakened,
            },
            "groups_without_variance": {
                "before": self.uniform_before,
                "after": self.uniform_after,
                "both": self.uniform_both,
            },
            "mean_reward": {"all": _means(self.rewards)}
            | {outcome: _means(moments) for outcome, moments in sorted(self.outcomes.items())},
        }


def _items(group: TraceGroup, task: str) -> Iterator[ScoreItem]:
    position, own = group.position, task_of(group.position, style=group.prompt.style)
    target = target_of(position, style=group.prompt.style)
    for trace in group.traces:
        completion = trace.completion
        yield ScoreItem(
            group.prompt.fen,
            completion.text,
            truncated=completion.truncated,
            task=task or own,
            move=position.move if own == STATE_TASK else "",
            target=target if task in ("", own) else "",
        )


def _verdicts(group: TraceGroup, slots: Sequence[Verdict | RookeryError]) -> list[Verdict]:
    for slot in slots:
        if isinstance(slot, InvalidInput):
            raise InvalidInput(f"group {group.id!r}: {slot}") from slot
        if isinstance(slot, RookeryError):
            raise slot
    return [slot for slot in slots if isinstance(slot, Verdict)]


def _sign(advantage: float) -> int:
    return (advantage > _NOISE) - (advantage < -_NOISE)


def _means(moments: Moments) -> dict[str, Any]:
    before, after = moments.means
    return {"answers": moments.count, "before": _rounded(before), "after": _rounded(after)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)

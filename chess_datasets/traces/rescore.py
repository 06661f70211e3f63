"""Compares rewards and advantages of an archive with those under another scheme.

The reward service scores every answer again. An advantage here is the reward minus the mean of its group. The
trainer may also divide it by a positive number, which changes no sign.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chess_datasets.store.parquet import Kind
from rookery.advantages import group_advantages, zero_variance
from rookery.clients import ScoreItem
from rookery.clients.score_stream import GroupScorer
from rookery.errors import InvalidInput, RookeryError
from rookery.prompt import STATE_TASK, target_of, task_of
from rookery.trace import TraceGroup, Verdict

_NOISE = 1e-9
"""Advantages smaller than this are rounding errors and count as zero."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """One trace under both schemes: its return, and the outcome of its last turn."""

    group_id: str
    trace_id: str
    policy: int
    outcome: str
    reward_before: float
    reward_after: float
    advantage_before: float
    advantage_after: float


RESCORED = Kind("rescored", Rescored)


async def rescored(
    groups: Iterable[TraceGroup], scorer: GroupScorer, *, scheme: str, task: str = ""
) -> AsyncGenerator[tuple[TraceGroup, list[Verdict]]]:
    """Yields each group with the new verdicts of its turns, in order. Raises
    `InvalidInput` if the service refuses an answer, for example because the scheme does not exist, or if the
    scheme has `influence`; `PeerFault` if the service does not answer."""
    if re.search(r"\binfluence\b", scheme):
        raise InvalidInput(
            f"scheme {scheme!r}: influence is measured while the policy that answered is served"
        )
    requests = (((number, group), list(_items(group, task))) for number, group in enumerate(groups))
    early: dict[int, tuple[TraceGroup, list[Verdict]]] = {}
    due = 0
    async with aclosing(scorer.stream(requests, scheme=scheme)) as answers:
        async for (number, group), slots in answers:
            early[number] = group, _verdicts(group, slots)
            while due in early:
                yield early.pop(due)
                due += 1


def rescored_rows(group: TraceGroup, verdicts: Sequence[Verdict]) -> Iterator[Rescored]:
    """The answers of a group under both schemes. Raises `InvalidInput` if a reward of the archive is NaN or
    infinite, which would make every figure so."""
    for trace in group.traces:
        if not math.isfinite(trace.reward):
            raise InvalidInput(
                f"group {group.id!r}: reward {trace.reward} of trace {trace.id!r} is not finite"
            )
    group_after = with_verdicts(group, verdicts)
    before, after = group.rewards, group_after.rewards
    advantages_before, advantages_after = (group_advantages(r, normalise=False) for r in (before, after))
    for index, trace in enumerate(group.traces):
        yield Rescored(
            group_id=group.id,
            trace_id=trace.id,
            policy=group.policy.number,
            outcome=group_after.traces[index].verdict.outcome.value,
            reward_before=before[index],
            reward_after=after[index],
            advantage_before=advantages_before[index],
            advantage_after=advantages_after[index],
        )


def with_verdicts(group: TraceGroup, verdicts: Sequence[Verdict]) -> TraceGroup:
    """The group with other verdicts of the turns that have one, in their order."""
    new = iter(verdicts)
    traces = [
        replace(t, turns=tuple(replace(turn, verdict=turn.verdict and next(new)) for turn in t.turns))
        for t in group.traces
    ]
    return replace(group, traces=tuple(traces))


class SchemeComparison:
    """The effect of the other scheme on a whole archive."""

    def __init__(self) -> None:
        self._uniform: list[tuple[bool, bool]] = []  # by group: whether it has no variance before, and after
        self._figures = array("d")  # by answer: rewards before and after, advantages before and after
        self._outcomes: list[str] = []
        self._versions: dict[str, Counter[str]] = {"before": Counter(), "after": Counter()}

    def add(self, group: TraceGroup, verdicts: Sequence[Verdict]) -> list[Rescored]:
        """Adds one group. Returns its answers under both schemes."""
        rows = list(rescored_rows(group, verdicts))
        after = [row.reward_after for row in rows]
        self._uniform.append((zero_variance(group.rewards), zero_variance(after)))
        self._versions["before"].update(verdict.reward_version for verdict in group.verdicts)
        self._versions["after"].update(verdict.reward_version for verdict in verdicts)
        for row in rows:
            self._figures.extend((row.reward_before, row.reward_after))
            self._figures.extend((row.advantage_before, row.advantage_after))
            self._outcomes.append(row.outcome)
        return rows

    def summary(self) -> dict[str, Any]:
        """The comparison as JSON values. The entries of `advantage_signs` count answers."""
        figures = np.array(self._figures).reshape(-1, 4).T
        rewards, advantages, outcomes = figures[:2], figures[2:], np.array(self._outcomes)
        before, after = np.sign(advantages) * (np.abs(advantages) > _NOISE)
        signs = {
            "flipped": before * after < 0,
            "silenced": (before != 0) & (after == 0),
            "awakened": (before == 0) & (after != 0),
            "kept": before == after,
        }
        return {
            "groups": len(self._uniform),
            "answers": len(self._outcomes),
            "reward_versions": {
                when: dict(versions.most_common()) for when, versions in self._versions.items()
            },
            "reward_correlation": _correlation(rewards),
            "advantage_correlation": _correlation(advantages),
            "advantage_signs": {name: int(answers.sum()) for name, answers in signs.items()},
            "groups_without_variance": {
                "before": sum(uniform for uniform, _ in self._uniform),
                "after": sum(uniform for _, uniform in self._uniform),
                "both": self._uniform.count((True, True)),
            },
            "mean_reward": {"all": _means(rewards)}
            | {outcome: _means(rewards[:, outcomes == outcome]) for outcome in sorted({*self._outcomes})},
        }


def _items(group: TraceGroup, task: str) -> Iterator[ScoreItem]:
    position, group_task = group.position, task_of(group.position, style=group.prompt.style)
    target = target_of(position, style=group.prompt.style)
    for turn in (turn for turn in group.turns if turn.verdict):
        completion = turn.completion
        yield ScoreItem(
            group.prompt_of(turn).fen,
            completion.text,
            truncated=completion.truncated,
            task=task or group_task,
            move=position.move if group_task == STATE_TASK else "",
            target=target if task in ("", group_task) else "",
        )


def _verdicts(group: TraceGroup, slots: Sequence[Verdict | RookeryError]) -> list[Verdict]:
    for slot in slots:
        if isinstance(slot, InvalidInput):
            raise InvalidInput(f"group {group.id!r}: {slot}") from slot
        if isinstance(slot, RookeryError):
            raise slot
    return [slot for slot in slots if isinstance(slot, Verdict)]


def _correlation(sides: NDArray[np.float64]) -> float | None:
    """Pearson's correlation; None if one side is constant."""
    return round(float(np.corrcoef(sides)[0, 1]), 6) if np.ptp(sides, axis=1).all() else None


def _means(sides: NDArray[np.float64]) -> dict[str, Any]:
    before, after = (round(float(mean), 6) for mean in sides.mean(axis=1))
    return {"answers": sides.shape[1], "before": before, "after": after}

"""Figures of a step by task, if its groups have tasks: RookWorld's `P` and `A`."""

import statistics
from collections.abc import Mapping, Sequence

from rookery.prompt import task_of
from rookery.trace import TraceGroup

GROUPS, REWARD = "groups_", "reward_"


def by_task(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns the number of groups and the mean reward of each task; empty if groups have no tasks."""
    rewards: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for group in groups:
        if task := task_of(group.position, style=group.prompt.style):
            counts[task] = counts.get(task, 0) + 1
            rewards.setdefault(task, []).extend(group.rewards)
    return {
        **{GROUPS + task.lower(): count for task, count in sorted(counts.items())},
        **{REWARD + task.lower(): statistics.fmean(values) for task, values in sorted(rewards.items())},
    }


def shown(row: Mapping[str, float]) -> str:
    """Returns the counts as text for a log line.

    >>> shown({"groups_a": 2, "groups_p": 8, "groups": 10}), shown({"groups": 10})
    (' P/A 8/2', '')
    """
    counts = {name.removeprefix(GROUPS): row[name] for name in row if name.startswith(GROUPS)}
    names = sorted(counts, reverse=True)
    return f" {'/'.join(names).upper()} {'/'.join(f'{counts[name]:g}' for name in names)}" if names else ""

"""What a step learned from, task by task, where its groups have tasks: RookWorld's `P` and `A`."""

import statistics
from collections.abc import Mapping, Sequence

from rookery.prompt import task_of
from rookery.trace import TraceGroup

GROUPS, REWARD = "groups_", "reward_"


def by_task(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Groups and mean reward of each task; nothing where moves alone were asked for."""
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
    """The counts in a log line.

    >>> shown({"groups_a": 2, "groups_p": 8, "groups": 10}), shown({"groups": 10})
    (' P/A 8/2', '')
    """
    counts = {name.removeprefix(GROUPS): row[name] for name in row if name.startswith(GROUPS)}
    names = sorted(counts, reverse=True)
    return f" {'/'.join(names).upper()} {'/'.join(f'{counts[name]:g}' for name in names)}" if names else ""

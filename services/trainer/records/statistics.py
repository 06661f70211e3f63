"""The statistics of a step by their names in metrics.jsonl: verdicts, tasks, lengths, ages."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rookery.prompt import task_of
from rookery.trace import Outcome, TraceGroup
from services.trainer.batches.advantages import zero_variance

COMPONENT = "component_"
GROUPS, REWARD = "groups_", "reward_"

UNREADABLE = {Outcome.NO_BOX, Outcome.TRUNCATED, Outcome.EMPTY_BOX, Outcome.TOO_LONG, Outcome.UNPARSABLE}
"""Outcomes without a readable move in a box."""


def describe_step(
    groups: list[TraceGroup], result: Mapping[str, float], *, version: int, dropped: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the row of a step before its commit, which stores it.

    `result` has the statistics of the update (`StepStats.row`). `version` is the one that the step makes.
    `dropped` counts, by reason, the groups dropped since the previous step.
    """
    ages = ages_of(groups, version=version)
    return {
        "time": time.time(),
        "step": version,
        "version": version,
        **describe(groups),
        **result,
        "age_mean": statistics.fmean(ages),
        "age_max": max(ages),
        **{f"dropped_{reason}": count for reason, count in dropped.items()},
    }


def describe(groups: list[TraceGroup]) -> dict[str, float]:
    """Returns statistics of a batch's verdicts. Rates are over completions, regret over legal moves."""
    traces = [trace for group in groups for trace in group.traces]
    verdicts = [trace.verdict for trace in traces]
    regrets = [verdict.regret for verdict in verdicts if verdict.regret is not None]
    return {
        "groups": len(groups),
        "completions": len(traces),
        "reward": statistics.fmean(verdict.reward for verdict in verdicts),
        "reward_std": statistics.fmean(statistics.pstdev(group.rewards) for group in groups),
        "legal_rate": statistics.fmean(verdict.outcome is Outcome.LEGAL for verdict in verdicts),
        "box_rate": statistics.fmean(verdict.outcome not in UNREADABLE for verdict in verdicts),
        "regret": statistics.fmean(regrets) if regrets else float("nan"),
        "zero_variance_groups": sum(zero_variance(group.rewards) for group in groups),
        "truncated": sum(trace.completion.truncated for trace in traces),
        **by_task(groups),
        **components(groups),
        **lengths(groups),
        "generation_s": statistics.fmean(group.generation_s for group in groups),
        "reward_s": statistics.fmean(group.reward_s for group in groups),
    }


def ages_of(groups: list[TraceGroup], *, version: int) -> list[int]:
    """Returns how many versions behind each group was when `version` was trained on it."""
    return [version - 1 - group.policy.number for group in groups]


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces NaN (the regret of a batch without legal moves) and infinity with None: JSON has neither."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def components(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns the mean of each component of the reward over all completions; a missing one counts as 0.

    So the means add up to the mean reward if each verdict's components add up to its reward.
    """
    verdicts = [trace.verdict for group in groups for trace in group.traces]
    names = sorted({name for verdict in verdicts for name in verdict.components})
    return {
        COMPONENT + name: statistics.fmean(verdict.components.get(name, 0.0) for verdict in verdicts)
        for name in names
    }


def lengths(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns lengths of completions and prompts in tokens. The percentile uses the nearest rank."""
    completions = sorted(len(trace.completion.token_ids) for group in groups for trace in group.traces)
    return {
        "completion_length": statistics.fmean(completions),
        "completion_length_p95": completions[-(-95 * len(completions) // 100) - 1],
        "completion_length_max": completions[-1],
        "prompt_length": statistics.fmean(len(group.prompt_token_ids) for group in groups),
    }


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


def task_counts(row: Mapping[str, float]) -> str:
    """Returns the counts as text for a log line.

    >>> task_counts({"groups_a": 2, "groups_p": 8, "groups": 10}), task_counts({"groups": 10})
    (' P/A 8/2', '')
    """
    counts = {name.removeprefix(GROUPS): row[name] for name in row if name.startswith(GROUPS)}
    names = sorted(counts, reverse=True)
    return f" {'/'.join(names).upper()} {'/'.join(f'{counts[name]:g}' for name in names)}" if names else ""

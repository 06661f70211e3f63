"""Reports a step: its statistics as a line of metrics.jsonl, in Prometheus, in MLflow, and as a log line.

Version names and step numbers never become labels of metrics.
"""

import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from prometheus_client import Gauge

from rookery.advantages import zero_variance
from rookery.metrics import (
    GROUP_AGE,
    KL_BY_AGE,
    LEARNING,
    MOVES_BY_PIECE,
    REWARD_COMPONENT,
    TRAINER_LAST_STEP,
    TRAINER_MEMORY,
    TRAINER_MFU,
    TRAINER_STEP_S,
    TRAINER_TOKENS,
    TRAINER_TOKENS_PER_S,
    TRAINER_VERSION,
)
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.prompt import GAME_TASK, task_of
from rookery.trace import Outcome, TraceGroup
from services.trainer.records.exploration import BEST_MOVES, MOVES, exploration, of_new_positions
from services.trainer.records.memory import MIB
from services.trainer.records.tracking import Tracker

logger = logging.getLogger(__name__)


COMPONENT = "component_"
GROUPS, REWARD, PERFECT = "groups_", "reward_", "perfect_"

UNREADABLE = {Outcome.NO_BOX, Outcome.TRUNCATED, Outcome.EMPTY_BOX, Outcome.TOO_LONG, Outcome.UNPARSABLE}
"""Outcomes without a readable move in a box."""


def describe_step(
    groups: list[TraceGroup], result: Mapping[str, float], *, version: int, dropped: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the row of a step before its commit, which stores it.

    `result` has the statistics of the update (`StepStats.row`). `version` is the version that the step makes.
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
        **exploration(groups),
        **of_new_positions(groups),
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

    So the means add up to the mean reward if each verdict's components add up to its reward. RookWorld's
    tasks have other components each: their means are over the completions of the task, as `component_a_fen`.
    """
    found: dict[str, float] = {}
    for task, own in _tasks(groups).items():
        verdicts = [trace.verdict for group in own for trace in group.traces]
        prefix = COMPONENT + (f"{task}_" if task else "")
        for name in sorted({name for verdict in verdicts for name in verdict.components}):
            found[prefix + name] = statistics.fmean(v.components.get(name, 0.0) for v in verdicts)
    return found


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
    """Returns, for each of RookWorld's tasks, the number of groups, the mean reward and the share of perfect
    answers; empty if groups have no tasks."""
    found: dict[str, float] = {}
    for task, own in _tasks(groups).items():
        rewards = [reward for group in own for reward in group.rewards]
        if task:
            perfect = sum(reward > 1.0 - 1e-9 for reward in rewards)  # a mean of fields may be rounded
            found |= {GROUPS + task: len(own), REWARD + task: statistics.fmean(rewards)}
            found[PERFECT + task] = perfect / len(rewards)
    return found


def _tasks(groups: Sequence[TraceGroup]) -> dict[str, list[TraceGroup]]:
    """The groups by RookWorld's task, `p` or `a`, or under an empty string if a move was asked for."""
    found: dict[str, list[TraceGroup]] = {}
    for group in groups:
        task = task_of(group.position, style=group.prompt.style)
        found.setdefault("" if task == GAME_TASK else task.lower(), []).append(group)
    return dict(sorted(found.items()))


def task_counts(row: Mapping[str, float]) -> str:
    """Returns the counts as text for a log line.

    >>> task_counts({"groups_a": 2, "groups_p": 8, "groups": 10}), task_counts({"groups": 10})
    (' P/A 8/2', '')
    """
    counts = {name.removeprefix(GROUPS): row[name] for name in row if name.startswith(GROUPS)}
    names = sorted(counts, reverse=True)
    return f" {'/'.join(names).upper()} {'/'.join(f'{counts[name]:g}' for name in names)}" if names else ""


STATISTICS = {
    "reward", "reward_std", "legal_rate", "box_rate", "regret", "loss", "entropy", "grad_norm", "lr",
    "ratio_max", "ess", "kl_behaviour", "kl_reference", "kl_penalty", "kl_coefficient",
    "entropy_coefficient",    "value_loss", "value_clip_fraction", "explained_variance",
    "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual", "mismatch_max", "mismatch_mean",
    "zero_variance_groups", "zero_variance_share", "collapsed_steps",
    "identical_answers", "distinct_candidates", "piece_distance",
    "completion_length", "completion_length_p95", "completion_length_max",
    "reward_p", "reward_a", "perfect_p", "perfect_a",
}  # fmt: skip
"""Exported as `rookery_learning{statistic=...}` if the step has them."""

NOT_IN_EVERY_STEP = {"mismatch_max", "mismatch_mean"}
"""Statistics that are removed from `/metrics` after a step that did not measure them. (The KL to the base
model, which is measured every few steps, keeps its last value.)"""

BY_AGE = "kl_behaviour_age"

_MEMORY = {"resident_mib": "resident", "resident_peak_mib": "resident_peak", "cuda_peak_mib": "cuda_peak"}
_BY_PREFIX: dict[str, Callable[[str], Gauge]] = {
    COMPONENT: lambda name: REWARD_COMPONENT.labels(component=name),
    MOVES: lambda piece: MOVES_BY_PIECE.labels(by="policy", piece=piece),
    BEST_MOVES: lambda piece: MOVES_BY_PIECE.labels(by="engine", piece=piece),
    BY_AGE: lambda age: KL_BY_AGE.labels(age=age),
}
_SPEED = {"tokens_per_s": "trained", "generated_tokens_per_s": "generated"}


_MANY_CUT = 0.25
"""A warning says so if at least this share of a batch was cut at the token limit ..."""
_CUT_WARNING_STEPS = 25
"""... at every so many steps."""


class StepReporter:
    """Appends to `metrics.jsonl` of a run folder. Use it as a context manager."""

    def __init__(self, run_dir: Path, tracker: Tracker = Tracker()) -> None:  # noqa: B008 - without state
        self._tracker = tracker
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / METRICS_FILE
        if self._path.exists() and not (data := self._path.read_bytes()).endswith(b"\n"):
            # A kill left an incomplete line, which the next row would become part of.
            os.truncate(self._path, data.rfind(b"\n") + 1)
        steps = read_metrics(self._path) if self._path.exists() else []
        self._file = self._path.open("a", buffering=1)
        self._last = max((row["step"] for row in steps), default=0)
        self._best = max((row.get("reward", -math.inf) for row in steps), default=-math.inf)

    def recover(self, row: Mapping[str, Any] | None) -> None:
        """Writes the row of a committed step if the trainer was killed before it wrote it."""
        if row and row["step"] > self._last:
            row = {**self._with_best(row), "recovered": True}
            self._write(row)
            self._tracker.log(row)

    def report(self, row: Mapping[str, Any], *, phases_s: Mapping[str, float], ages: Iterable[int]) -> None:
        """Reports a step. `row` is from `describe_step`; `phases_s` are wall-clock seconds by phase."""
        row = {**self._with_best(row), **{f"{name}_s": seconds for name, seconds in phases_s.items()}}
        row["step_s"] = sum(phases_s.values())
        row["generated_tokens_per_s"] = row["completions"] * row["completion_length"] / row["step_s"]
        self._write(row)
        cut = row["truncated"] / row["completions"]
        if cut >= _MANY_CUT and row["step"] % _CUT_WARNING_STEPS == 1:
            logger.warning(
                "step %d: %.0f%% of the answers were cut at the token limit, and cut answers teach nothing: "
                "raise --max-tokens of the rollouts, or switch off the model's thinking (--no-thinking of "
                "`rookery up` or the inference server)",
                row["step"], 100 * cut,
            )  # fmt: skip
        export(row, ages=ages, phases_s=phases_s)
        self._tracker.log(row)
        logger.info(
            "step %d reward %.3f (best %.3f)%s legal %.1f%% regret %.4f loss %.4f age %.1f "
            "wait %.2f s of %.2f s, %.0f tokens/s, MFU %.1f%%, %.0f MiB",
            row["step"], row["reward"], row["reward_best"], task_counts(row),
            100 * row["legal_rate"], row["regret"], row["loss"],
            row["age_mean"], phases_s["rollout_wait"], row["step_s"],
            row["tokens_per_s"], 100 * row["mfu"], row.get("cuda_peak_mib", row["resident_peak_mib"]),
        )  # fmt: skip

    def _with_best(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `row` with the best mean reward of any batch so far."""
        self._best = max(self._best, row["reward"])
        return {**row, "reward_best": self._best}

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(json_row(row), allow_nan=False) + "\n")
        self._last = row["step"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def export(row: Mapping[str, float], *, ages: Iterable[int], phases_s: Mapping[str, float]) -> None:
    """Sets every gauge for which `row` has a value. Removes the mismatch if it was not measured."""
    for name in NOT_IN_EVERY_STEP - row.keys():
        with suppress(KeyError):
            LEARNING.remove(name)
    KL_BY_AGE.clear()
    for name, value in row.items():
        _set(name, value)
    for phase, seconds in phases_s.items():
        TRAINER_STEP_S.labels(phase=phase).observe(seconds)
    for age in ages:
        GROUP_AGE.observe(age)
    TRAINER_TOKENS.inc(row["tokens"])
    TRAINER_VERSION.set(row["version"])
    TRAINER_LAST_STEP.set(row["time"])


def _set(name: str, value: float) -> None:
    if name in STATISTICS:
        LEARNING.labels(statistic=name).set(value)
    elif name in _MEMORY:
        TRAINER_MEMORY.labels(kind=_MEMORY[name]).set(value * MIB)
    elif name in _SPEED:
        TRAINER_TOKENS_PER_S.labels(kind=_SPEED[name]).set(value)
    elif name == "mfu":
        TRAINER_MFU.set(value)
    for prefix, gauge in _BY_PREFIX.items():
        if name.startswith(prefix):
            gauge(name.removeprefix(prefix)).set(value)

"""What a step says about itself: one JSON line in metrics.jsonl, the gauges, one log line."""

import json
import logging
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from rookery.metrics import (
    GROUP_AGE,
    LEARNING,
    TRAINER_LAST_STEP,
    TRAINER_STEP_S,
    TRAINER_TOKENS,
    TRAINER_VERSION,
)
from rookery.trace import Outcome, TraceGroup
from services.trainer.advantages import zero_variance
from services.trainer.step import StepResult

logger = logging.getLogger(__name__)

UNREADABLE = {Outcome.NO_BOX, Outcome.TRUNCATED, Outcome.EMPTY_BOX, Outcome.TOO_LONG, Outcome.UNPARSABLE}
"""Outcomes without a readable move in a box."""

_GAUGES = {
    "reward",
    "legal_rate",
    "box_rate",
    "regret",
    "entropy",
    "grad_norm",
    "ratio_max",
    "kl_behaviour",
    "clip_fraction_low",
    "clip_fraction_high",
    "mismatch_age0_max",
    "mismatch_age0_mean",
    "ess",
    "kl_reference",
    "kl_penalty",
    "kl_coefficient",
    "zero_variance_groups",
    "zero_variance_share",
    "collapsed_steps",
}


class Report:
    """Appends to `metrics.jsonl` of a run folder. Use as a context manager."""

    def __init__(self, run_dir: Path) -> None:
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / "metrics.jsonl"
        self._file = self._path.open("a", buffering=1)

    def recover(self, row: Mapping[str, Any] | None) -> None:
        """Writes the row of a step that was committed and then killed before it was written."""
        if row and row["step"] > _last_step(self._path):
            self._write({**row, "recovered": True})

    def step(self, row: Mapping[str, Any], *, phases_s: Mapping[str, float], ages: Iterable[int]) -> None:
        """`row` is `describe_step`'s; `phases_s` are wall-clock seconds of the parts of the step, by name."""
        row = {**row, **{f"{name}_s": seconds for name, seconds in phases_s.items()}}
        row["step_s"] = sum(phases_s.values())
        self._write(row)
        self._export(row, ages=ages, phases_s=phases_s)
        logger.info(
            "step %d reward %.3f legal %.1f%% regret %.4f loss %.4f age %.1f wait %.2f s of %.2f s",
            row["step"], row["reward"], 100 * row["legal_rate"], row["regret"], row["loss"],
            row["age_mean"], phases_s["rollout_wait"], row["step_s"],
        )  # fmt: skip

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(strict(row), allow_nan=False) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _export(
        self, row: Mapping[str, float], *, ages: Iterable[int], phases_s: Mapping[str, float]
    ) -> None:
        for name in _GAUGES & row.keys():
            LEARNING.labels(statistic=name).set(row[name])
        for phase, seconds in phases_s.items():
            TRAINER_STEP_S.labels(phase=phase).observe(seconds)
        for age in ages:
            GROUP_AGE.observe(age)
        TRAINER_TOKENS.inc(row["tokens"])
        TRAINER_VERSION.set(row["version"])
        TRAINER_LAST_STEP.set(row["time"])


def describe_step(
    groups: list[TraceGroup], result: StepResult, *, version: int, dropped: Mapping[str, int]
) -> dict[str, Any]:
    """What is known of a step before its commit, which keeps it; `version` is the one it makes.

    `dropped` counts, by reason, the groups thrown away since the step before.
    """
    ages = ages_of(groups, version=version)
    return (
        {"time": time.time(), "step": version, "version": version}
        | describe(groups)
        | result.row()
        | {"age_mean": statistics.fmean(ages), "age_max": max(ages)}
        | {f"dropped_{reason}": count for reason, count in dropped.items()}
    )


def ages_of(groups: list[TraceGroup], *, version: int) -> list[int]:
    """How many versions behind each group was when `version` was made from it."""
    return [version - 1 - group.policy.number for group in groups]


def strict(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: a batch without any legal move has no regret."""
    return {key: None if value != value else value for key, value in row.items()}


def _last_step(path: Path) -> int:
    lines = path.read_text().splitlines()
    return int(json.loads(lines[-1])["step"]) if lines else 0


def describe(groups: list[TraceGroup]) -> dict[str, float]:
    """Statistics of a batch's verdicts: rates are over completions, regret over legal moves."""
    traces = [trace for group in groups for trace in group.traces]
    verdicts = [trace.verdict for trace in traces]
    regrets = [verdict.regret for verdict in verdicts if verdict.regret is not None]
    lengths = [len(trace.completion.token_ids) for trace in traces]
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
        "completion_length": statistics.fmean(lengths),
        "generation_s": statistics.fmean(group.generation_s for group in groups),
        "reward_s": statistics.fmean(group.reward_s for group in groups),
    }

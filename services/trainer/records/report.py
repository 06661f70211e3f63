"""Reports each step: one JSON line in metrics.jsonl, the gauges, and one log line."""

import json
import logging
import math
import os
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.trace import Outcome, TraceGroup
from services.trainer.batches.advantages import zero_variance
from services.trainer.records.diagnostics import components, lengths
from services.trainer.records.exported import export
from services.trainer.records.tasks import by_task, shown
from services.trainer.records.tracking import Tracker
from services.trainer.step import StepResult

logger = logging.getLogger(__name__)

UNREADABLE = {Outcome.NO_BOX, Outcome.TRUNCATED, Outcome.EMPTY_BOX, Outcome.TOO_LONG, Outcome.UNPARSABLE}
"""Outcomes without a readable move in a box."""


class Report:
    """Appends to `metrics.jsonl` of a run folder. Use it as a context manager."""

    def __init__(self, run_dir: Path, tracker: Tracker = Tracker()) -> None:  # noqa: B008 - without state
        self._tracker = tracker
        run_dir.mkdir(parents=True, exist_ok=True)
        self._path = run_dir / METRICS_FILE
        _cut_torn_line(self._path)
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

    def step(self, row: Mapping[str, Any], *, phases_s: Mapping[str, float], ages: Iterable[int]) -> None:
        """Reports a step. `row` is from `describe_step`; `phases_s` are wall-clock seconds by phase."""
        row = {**self._with_best(row), **{f"{name}_s": seconds for name, seconds in phases_s.items()}}
        row["step_s"] = sum(phases_s.values())
        row["generated_tokens_per_s"] = row["completions"] * row["completion_length"] / row["step_s"]
        self._write(row)
        export(row, ages=ages, phases_s=phases_s)
        self._tracker.log(row)
        logger.info(
            "step %d reward %.3f (best %.3f)%s legal %.1f%% regret %.4f loss %.4f age %.1f "
            "wait %.2f s of %.2f s, %.0f tokens/s, MFU %.1f%%, %.0f MiB",
            row["step"], row["reward"], row["reward_best"], shown(row),
            100 * row["legal_rate"], row["regret"], row["loss"],
            row["age_mean"], phases_s["rollout_wait"], row["step_s"],
            row["tokens_per_s"], 100 * row["mfu"], row.get("cuda_peak_mib", row["resident_peak_mib"]),
        )  # fmt: skip

    def _with_best(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `row` with the best mean reward of any batch so far."""
        self._best = max(self._best, row["reward"])
        return {**row, "reward_best": self._best}

    def _write(self, row: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(strict(row), allow_nan=False) + "\n")
        self._last = row["step"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def describe_step(
    groups: list[TraceGroup], result: StepResult, *, version: int, dropped: Mapping[str, int]
) -> dict[str, Any]:
    """Returns the row of a step before its commit, which stores it. `version` is the one that it makes.

    `dropped` counts, by reason, the groups dropped since the previous step.
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
    """Returns how many versions behind each group was when `version` was trained on it."""
    return [version - 1 - group.policy.number for group in groups]


def strict(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces NaN (the regret of a batch without legal moves) and infinity with None: JSON has neither."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def _cut_torn_line(path: Path) -> None:
    """Deletes an incomplete last line, so that the next row does not become part of it."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


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

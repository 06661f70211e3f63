"""Reports a step: its statistics as a line of metrics.jsonl, in Prometheus, in MLflow, and as a log line.

The importance ratios and advantages of its tokens go to a file of their own. Version names and step numbers
never become labels of metrics.
"""

import gzip
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from prometheus_client import Gauge

from rookery import metrics
from rookery.config.trainer import TrainerSettings
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.trace import TraceGroup, policy_name
from services.trainer.batches.rows import FiguresByTurn
from services.trainer.records.describe import BEST_MOVES, COMPONENT, GROUPS, MOVES, RESULTS
from services.trainer.records.memory import MIB
from services.trainer.records.tracking import Tracker

logger = logging.getLogger(__name__)


def json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces NaN (the regret of a batch without legal moves) and infinity with None: JSON has neither."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


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
    "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual", "mask_fraction", "mismatch_max",
    "mismatch_mean",
    "zero_variance_groups", "zero_variance_share", "collapsed_steps",
    "identical_answers", "distinct_candidates", "piece_distance",
    "episode_turns", "episode_turns_max", "calls_per_move",
    "completion_length", "completion_length_p95", "completion_length_max",
    "reward_p", "reward_a", "perfect_p", "perfect_a",
}  # fmt: skip
"""Exported as `rookery_learning{statistic=...}` if the step has them, as are the results of games
(`won_engine`)."""

KEPT_STATISTICS = {"kl_reference"}
"""Measured every few steps, so `/metrics` keeps its last value, as it does the results of games. Other
statistics that a step does not have are removed from it."""

BY_AGE = "kl_behaviour_age"


_MEMORY = {"resident_mib": "resident", "resident_peak_mib": "resident_peak", "cuda_peak_mib": "cuda_peak"}
_BY_PREFIX: dict[str, Callable[[str], Gauge]] = {
    COMPONENT: lambda name: metrics.REWARD_COMPONENT.labels(component=name),
    MOVES: lambda piece: metrics.MOVES_BY_PIECE.labels(by="policy", piece=piece),
    BEST_MOVES: lambda piece: metrics.MOVES_BY_PIECE.labels(by="engine", piece=piece),
    BY_AGE: lambda age: metrics.KL_BY_AGE.labels(age=age),
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
        export_metrics(row, ages=ages, phases_s=phases_s)
        self._tracker.log(row)
        figures = {
            "peak_mib": row.get("cuda_peak_mib", row["resident_peak_mib"]),
            "tasks": task_counts(row),
            "legal": 100 * row["legal_rate"],
            "wait_s": phases_s["rollout_wait"],
            "mfu": 100 * row["mfu"],
        }
        logger.info(
            "step %(step)d reward %(reward).3f (best %(reward_best).3f)%(tasks)s legal %(legal).1f%% "
            "regret %(regret).4f loss %(loss).4f age %(age_mean).1f wait %(wait_s).2f s of %(step_s).2f s, "
            "%(tokens_per_s).0f tokens/s, MFU %(mfu).1f%%, %(peak_mib).0f MiB",
            {**row, **figures},
        )

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


def export_metrics(row: Mapping[str, float], *, ages: Iterable[int], phases_s: Mapping[str, float]) -> None:
    """Sets every gauge for which `row` has a value. Removes `STATISTICS` that it does not have."""
    for name in STATISTICS - KEPT_STATISTICS - row.keys():
        with suppress(KeyError):
            metrics.LEARNING.remove(name)
    metrics.KL_BY_AGE.clear()
    for name, value in row.items():
        _set_gauges(name, value)
    for phase, seconds in phases_s.items():
        metrics.TRAINER_STEP_S.labels(phase=phase).observe(seconds)
    for age in ages:
        metrics.GROUP_AGE.observe(age)
    metrics.TRAINER_TOKENS.inc(row["tokens"])
    metrics.TRAINER_VERSION.set(row["version"])
    metrics.TRAINER_LAST_STEP.set(row["time"])


def _set_gauges(name: str, value: float) -> None:
    if name in STATISTICS or name.partition("_")[0] in RESULTS:
        metrics.LEARNING.labels(statistic=name).set(value)
    elif name in _MEMORY:
        metrics.TRAINER_MEMORY.labels(kind=_MEMORY[name]).set(value * MIB)
    elif name in _SPEED:
        metrics.TRAINER_TOKENS_PER_S.labels(kind=_SPEED[name]).set(value)
    elif name == "mfu":
        metrics.TRAINER_MFU.set(value)
    for prefix, gauge in _BY_PREFIX.items():
        if name.startswith(prefix):
            gauge(name.removeprefix(prefix)).set(value)


def write_token_figures(
    settings: TrainerSettings, groups: Sequence[TraceGroup], figures: FiguresByTurn, *, version: int
) -> None:
    """Writes the importance ratios and advantages of a step's tokens for the viewer.

    Each line of ratios/policy-v000042.jsonl.gz is a group, `{"group": ID, "ratios": [[1.0, 0.97, ...], null,
    ...], "advantages": [[0.5, -1.2, ...], null, ...]}`: a list for each answer, in the order of the archive,
    and null for an answer that carried no loss. Deletes the oldest files beyond `ratios_mb` MiB in total; the
    newest stays, however large. With 0, none is written. If the disk fails, the error is logged, because only
    the viewer reads these files.
    """
    if not settings.ratios_mb:
        return
    folder = settings.run_dir / "ratios"
    temporary = folder / ".ratios.tmp"
    try:
        folder.mkdir(exist_ok=True)
        with gzip.open(temporary, "wt", compresslevel=1) as file:
            for group in groups:
                answers = [figures.get(id) for id in group.turn_ids]
                line = {
                    "group": group.id,
                    "ratios": [answer and [round(ratio, 4) for ratio in answer.ratios] for answer in answers],
                    "advantages": [answer and [round(a, 4) for a in answer.advantages] for answer in answers],
                }
                file.write(json.dumps(line) + "\n")
        newest = temporary.replace(folder / f"{policy_name(version)}.jsonl.gz")
        bytes_left = settings.ratios_mb * MIB
        for path in sorted(folder.glob("policy-v*"), reverse=True):
            bytes_left -= path.stat().st_size
            if bytes_left < 0 and path != newest:
                path.unlink()
    except OSError as error:
        logger.error("ratios and advantages of step %d are not kept: %s", version, error)

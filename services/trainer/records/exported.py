"""Exports a step's row as Prometheus metrics. Version names and step numbers never become labels."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from rookery.metrics import (
    GROUP_AGE,
    KL_BY_AGE,
    LEARNING,
    REWARD_COMPONENT,
    TRAINER_LAST_STEP,
    TRAINER_MEMORY,
    TRAINER_MFU,
    TRAINER_STEP_S,
    TRAINER_TOKENS,
    TRAINER_TOKENS_PER_S,
    TRAINER_VERSION,
)
from services.trainer.records.diagnostics import COMPONENT
from services.trainer.records.memory import MIB

STATISTICS = {
    "reward", "reward_std", "legal_rate", "box_rate", "regret", "loss", "entropy", "grad_norm", "lr",
    "ratio_max", "ess", "kl_behaviour", "kl_reference", "kl_penalty", "kl_coefficient",
    "value_loss", "value_clip_fraction", "explained_variance",
    "clip_fraction_low", "clip_fraction_high", "clip_fraction_dual", "mismatch_max", "mismatch_mean",
    "zero_variance_groups", "zero_variance_share", "collapsed_steps",
    "completion_length", "completion_length_p95", "completion_length_max",
}  # fmt: skip
"""Exported as `rookery_learning{statistic=...}` if the step has them."""

MEASURED_BY_CHANCE = {"mismatch_max", "mismatch_mean"}
"""Statistics that a step may lack. Their old value is then removed. (The KL to the base, which is measured
every few steps, keeps its last value.)"""

BY_AGE = "kl_behaviour_age"

_MEMORY = {"resident_mib": "resident", "resident_peak_mib": "resident_peak", "cuda_peak_mib": "cuda_peak"}
_SPEED = {"tokens_per_s": "trained", "generated_tokens_per_s": "generated"}


def export(row: Mapping[str, float], *, ages: Iterable[int], phases_s: Mapping[str, float]) -> None:
    """Sets every gauge that `row` has a figure for. Removes the mismatch if it was not measured."""
    for name in MEASURED_BY_CHANCE - row.keys():
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
    elif name.startswith(COMPONENT):
        REWARD_COMPONENT.labels(component=name.removeprefix(COMPONENT)).set(value)
    elif name.startswith(BY_AGE):
        KL_BY_AGE.labels(age=name.removeprefix(BY_AGE)).set(value)
    elif name in _MEMORY:
        TRAINER_MEMORY.labels(kind=_MEMORY[name]).set(value * MIB)
    elif name in _SPEED:
        TRAINER_TOKENS_PER_S.labels(kind=_SPEED[name]).set(value)
    elif name == "mfu":
        TRAINER_MFU.set(value)

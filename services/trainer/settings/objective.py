"""Which objective the policy learns by, and the numbers of it."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rookery.settings import RunSettings
from services.trainer.settings.ppo import PpoSettings
from services.trainer.settings.scoped import ScopedSettings, When

logger = logging.getLogger(__name__)

ObjectiveName = Literal["grpo", "dr-grpo", "dapo", "cispo", "gspo", "reinforce", "ppo"]
Baseline = Literal["group-mean", "leave-one-out", "ema", "adaptive"]
LossWeights = Literal["token", "sequence", "constant"]
KlKind = Literal["none", "k1", "k2", "k3", "forward", "reverse", "symmetric"]
KlSchedule = Literal["fixed", "warmup", "adaptive", "smooth"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "dr-grpo": {"normalise": False, "loss_weights": "constant"},
    "dapo": {"dynamic_sampling": True},
    "cispo": {"ratio_cap": 5.0},
    "gspo": {"clip_low": 0.03, "clip_high": 0.04, "loss_weights": "sequence"},
}
"""What an objective's paper sets otherwise than GRPO; a setting given by name wins over it.

Sources: dr-grpo arXiv 2503.20783, dapo 2503.14476; cispo's cap is that of ScaleRL (2510.13786), for
MiniMax-M1 (2506.13585) names none. gspo's paper (2507.18071, section 5.1) clips at 3e-4 and 4e-4, within one
batch of rollouts; groups of earlier versions lie farther off: README.md has the measurement.
"""


_CLIPPING = When("objective", ("grpo", "dr-grpo", "dapo", "gspo", "ppo"))
_OF_GROUPS = When("objective", ("grpo", "dr-grpo", "dapo", "cispo", "gspo", "reinforce"))
_PENALISED = When("kl", ("k1", "k2", "k3", "forward", "reverse", "symmetric"))
_PPO = PpoSettings.model_fields.keys() - RunSettings.model_fields.keys()

_NARROW_GSPO_CLIP = 0.003
"""Of groups one version old most completions lie outside of such a range."""
_WIDE_GSPO_CLIP = 0.2
"""Ratios of whole completions hardly ever leave such a range."""


class ObjectiveSettings(ScopedSettings, PpoSettings):
    """The policy-gradient objective: surrogate, advantages, weights of the loss, KL to the base."""

    reading: ClassVar[Mapping[str, When]] = {
        "clip_low": _CLIPPING,
        "clip_high": _CLIPPING,
        "dual_clip": _CLIPPING,
        "ratio_cap": When("objective", ("cispo", "reinforce")),
        "baseline": _OF_GROUPS,
        "normalise": _OF_GROUPS,
        "baseline_decay": When("baseline", ("ema", "adaptive")),
        "loss_constant": When("loss_weights", ("constant",)),
        # Under the other baselines groups of equal rewards teach something too.
        "dynamic_sampling": When("baseline", ("group-mean", "leave-one-out")),
        "dynamic_sampling_limit": When("dynamic_sampling", (True,)),
        "kl_coefficient": _PENALISED,
        "kl_schedule": _PENALISED,
        "kl_warmup_steps": When("kl_schedule", ("warmup",)),
        "kl_target": When("kl_schedule", ("adaptive", "smooth")),
        "kl_report_every": When("kl", ("none",)),
        **dict.fromkeys(sorted(_PPO), When("objective", ("ppo",))),
    }

    moved: ClassVar[frozenset[str]] = frozenset(name for defaults in DEFAULTS.values() for name in defaults)

    objective: ObjectiveName = "grpo"
    """Surrogate loss; it also sets the defaults of the settings below that its paper sets."""
    clip_low: PositiveFloat = 0.2
    """grpo, dr-grpo, dapo, gspo, ppo: importance ratios are clipped to [1 - clip_low, 1 + clip_high]."""
    clip_high: PositiveFloat = 0.28
    """See clip_low."""
    dual_clip: NonNegativeFloat = 3.0
    """grpo, dr-grpo, dapo, gspo, ppo: the most that a ratio counts where the advantage is negative, so that
    no stale token outweighs the batch; above 1, or 0 for no bound."""
    ratio_cap: PositiveFloat = 2.0
    """cispo, reinforce: importance ratios are cut off above this."""
    baseline: Baseline = "group-mean"
    """What is subtracted from a reward to make an advantage."""
    baseline_decay: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Of the moving averages behind the baselines ema and adaptive, a step."""
    normalise: bool = True
    """Divide advantages by the standard deviation of the rewards."""
    loss_weights: LossWeights = "token"
    """Every token counts the same; every sequence does; or a constant divides, whatever the lengths are."""
    loss_constant: NonNegativeInt = 0
    """Tokens a completion for the weights `constant`; 0 takes the rollouts' token limit."""
    mask_truncated: bool = True
    """Completions cut at the token limit carry no loss."""
    dynamic_sampling: bool = False
    """Drop groups whose rewards are all equal and wait for others."""
    dynamic_sampling_limit: PositiveInt = 4
    """Batches' worth of groups to drop for one batch at most; what then comes is trained on."""

    kl: KlKind = "none"
    """Penalty on leaving the base model; forward is D(policy || base), reverse D(base || policy)."""
    kl_coefficient: PositiveFloat = 0.02
    """Weight of the penalty; where the schedules adaptive and smooth begin."""
    kl_schedule: KlSchedule = "fixed"
    """How the coefficient moves: not at all, up to its value, or after kl_target."""
    kl_warmup_steps: PositiveInt = 100
    """Steps in which the schedule warmup reaches the coefficient."""
    kl_target: PositiveFloat = 0.05
    """D(policy || base) in nats a token that the schedules adaptive and smooth aim at."""
    kl_report_every: NonNegativeInt = 10
    """Steps between measurements of D(policy || base) when there is no penalty; 0 never measures."""

    collapse_share: float = Field(default=0.9, gt=0.0, le=1.0)
    """Alarm when at least this share of the groups has rewards that are all equal ..."""
    collapse_steps: PositiveInt = 10
    """... for so many steps on end."""

    def measures_kl(self, step: int) -> bool:
        """Whether step `step`, counted from 0, scores the reference too."""
        return self.kl != "none" or (self.kl_report_every > 0 and step % self.kl_report_every == 0)

    @classmethod
    def own_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The objective's."""
        return DEFAULTS.get(str(values.get("objective", "grpo")), {})

    @classmethod
    def of_preset(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """Under another objective than the preset's, its numbers for that one do not count."""
        theirs = values.get("objective", "grpo")
        if stronger.get("objective", theirs) == theirs:
            return dict(values)
        own = cls.moved.union(name for name, when in cls.reading.items() if when.setting == "objective")
        return {name: value for name, value in values.items() if name not in own}

    @model_validator(mode="after")
    def _dual_clip_is_a_bound(self) -> Self:
        if 0.0 < self.dual_clip <= 1.0:
            raise ValueError(f"--dual-clip {self.dual_clip:g}: more than 1, or 0 for none")
        return self

    @model_validator(mode="after")
    def _gspo_clips(self) -> Self:
        widest = max(self.clip_low, self.clip_high)
        if self.objective == "gspo" and not _NARROW_GSPO_CLIP < widest <= _WIDE_GSPO_CLIP:
            logger.warning(
                "--objective gspo clips ratios of whole completions at %g: %s",
                widest,
                "it hardly ever clips"
                if widest > _WIDE_GSPO_CLIP
                else "of groups that are a version old it drops most",
            )
        return self

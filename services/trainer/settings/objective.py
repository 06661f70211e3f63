"""Which objective the policy learns by, and the numbers of it."""

from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from services.trainer.settings.ppo import PpoSettings

ObjectiveName = Literal["grpo", "dr-grpo", "dapo", "cispo", "gspo", "reinforce", "ppo"]
Baseline = Literal["group-mean", "leave-one-out", "ema", "adaptive"]
LossWeights = Literal["token", "sequence", "constant"]
KlKind = Literal["none", "k1", "k2", "k3", "forward", "reverse", "symmetric"]
KlSchedule = Literal["fixed", "warmup", "adaptive", "smooth"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "dr-grpo": {"normalise": False, "loss_weights": "constant"},
    "dapo": {"dynamic_sampling": True},
    "cispo": {"ratio_cap": 5.0},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4, "loss_weights": "sequence"},
}
"""What an objective's paper sets otherwise than GRPO; a setting given by name wins over it.

Sources: dr-grpo arXiv 2503.20783, dapo 2503.14476, gspo 2507.18071 (section 5.1); cispo's cap is that of
ScaleRL (2510.13786), for MiniMax-M1 (2506.13585) names none.
"""


class ObjectiveSettings(PpoSettings):
    """The policy-gradient objective: surrogate, advantages, weights of the loss, KL to the base."""

    objective: ObjectiveName = "grpo"
    """Surrogate loss; it also sets the defaults of the settings below that its paper sets."""
    clip_low: PositiveFloat = 0.2
    """grpo, dr-grpo, dapo, gspo, ppo: importance ratios are clipped to [1 - clip_low, 1 + clip_high]."""
    clip_high: PositiveFloat = 0.28
    """See clip_low."""
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

    @model_validator(mode="before")
    @classmethod
    def _objectives_own_defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {**DEFAULTS.get(values.get("objective", "grpo"), {}), **values}

    @model_validator(mode="after")
    def _schedule_needs_a_penalty(self) -> Self:
        if self.kl == "none" and self.kl_schedule != "fixed":
            raise ValueError(f"--kl-schedule {self.kl_schedule} has nothing to schedule with --kl none")
        return self

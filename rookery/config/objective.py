"""Settings of the policy-gradient objective."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rookery.config.conditions import ConditionalSettings, When
from rookery.settings import Settings

ObjectiveName = Literal["grpo", "dr-grpo", "dapo", "cispo", "gspo", "reinforce", "ppo"]
Baseline = Literal["none", "group-mean", "leave-one-out", "ema", "adaptive"]
LossWeights = Literal["token", "sequence", "constant"]
KlKind = Literal["none", "k1", "k2", "k3", "policy_reference", "reference_policy", "symmetric"]
KlSchedule = Literal["fixed", "warmup", "adaptive", "smooth"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "dr-grpo": {"normalise": False, "loss_weights": "constant"},
    "dapo": {"dynamic_sampling": True},
    "cispo": {"ratio_cap": 5.0},
    "gspo": {"clip_low": 0.03, "clip_high": 0.04, "loss_weights": "sequence"},
    "ppo": {"baseline": "none"},
}
"""The defaults of each objective that differ from GRPO's. Settings given by the user take precedence.

Sources: dr-grpo arXiv 2503.20783, dapo 2503.14476. cispo's cap is that of ScaleRL (2510.13786), because
MiniMax-M1 (2506.13585) gives none. gspo's paper (2507.18071, section 5.1) clips at 3e-4 and 4e-4, within one
batch of rollouts. Groups of earlier versions have larger ratios; README.md has the measurement.
"""

_CLIPPING = When("objective", ("grpo", "dr-grpo", "dapo", "gspo", "ppo"))
_PENALISED = When("kl", ("k1", "k2", "k3", "policy_reference", "reference_policy", "symmetric"))

KL_ALIASES = {"forward": "policy_reference", "reverse": "reference_policy"}
"""RookWorld's names of the divergences, still accepted. Earlier versions recorded them."""


class KlSettings(Settings, help_group="kl"):
    """The KL penalty to the base model."""

    kl: Annotated[KlKind, BeforeValidator(lambda value: KL_ALIASES.get(str(value), value))] = "none"
    """KL penalty to the base model. policy_reference is D(policy || base), reference_policy is
    D(base || policy), symmetric their mean. The older names forward and reverse mean the first two."""
    kl_coefficient: PositiveFloat = 0.02
    """Weight of the KL penalty. The initial weight for the schedules adaptive and smooth."""
    kl_schedule: KlSchedule = "fixed"
    """Schedule of the coefficient: fixed, warmup (rises to its value), adaptive or smooth (see kl_target)."""
    kl_warmup_steps: PositiveInt = 100
    """Steps until --kl-schedule warmup reaches the coefficient."""
    kl_target: PositiveFloat = 0.05
    """Target of D(policy || base) for the schedules adaptive and smooth, in nats per token."""
    kl_report_every: NonNegativeInt = 10
    """Steps between measurements of D(policy || base) if there is no penalty. 0 turns them off."""

    def measures_kl(self, step: int) -> bool:
        """Whether step `step`, counted from 0, also scores the reference model."""
        return self.kl != "none" or (self.kl_report_every > 0 and step % self.kl_report_every == 0)


class EntropySettings(Settings, help_group="entropy"):
    """The entropy bonus, which keeps the policy from giving the same answer every time."""

    entropy_coefficient: NonNegativeFloat = 0.0
    """Weight of the entropy of the next token, in nats. With a target, the initial weight."""
    entropy_target: NonNegativeFloat = 0.0
    """Adapt the weight so that the mean entropy stays above this, in nats per token. 0 for no target."""
    entropy_rate: PositiveFloat = 0.05
    """How fast the weight adapts: its change per step and nat between the target and the entropy."""


class PpoSettings(Settings, help_group="ppo, with --objective ppo"):
    """Settings of PPO, which learns a baseline for each token: generalised advantage estimation.

    With `baseline`, the rewards are those of a group less its baseline, so that both count.
    """

    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """Discount factor per token."""
    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """Lambda of generalised advantage estimation, from 0 (rely on the values) to 1 (on the rewards)."""
    whiten: bool = True
    """Normalise the advantages of a batch to mean 0 and standard deviation 1."""
    value_clip: NonNegativeFloat = 0.2
    """How far values may move from those before the step. 0 for no limit."""
    value_coefficient: PositiveFloat = 0.5
    """Weight of the value loss."""
    ppo_epochs: PositiveInt = 1
    """Passes over each batch."""
    ppo_mini_batches: PositiveInt = 1
    """Optimizer steps per pass. The groups are shuffled for each pass."""


class ObjectiveSettings(
    ConditionalSettings, PpoSettings, KlSettings, EntropySettings, help_group="objective"
):
    """The policy-gradient objective: surrogate, advantages, weights of the loss, KL to the base, entropy."""

    conditions: ClassVar[Mapping[str, When]] = {
        "clip_low": _CLIPPING,
        "clip_high": _CLIPPING,
        "dual_clip": _CLIPPING,
        "ratio_cap": When("objective", ("cispo", "reinforce")),
        "normalise": When("baseline", but=("none",)),
        "sigma_floor": When("normalise", (True,)),
        "baseline_decay": When("baseline", ("ema", "adaptive")),
        # GSPO has one ratio for a completion, whose gradient would average the advantages of its tokens.
        "process_rewards": When("objective", but=("ppo", "gspo")),
        "loss_constant": When("loss_weights", ("constant",)),
        # With the other baselines, groups of equal rewards have a gradient too.
        "dynamic_sampling": When("baseline", ("group-mean", "leave-one-out")),
        "dynamic_sampling_limit": When("dynamic_sampling", (True,)),
        "kl_coefficient": _PENALISED,
        "kl_schedule": _PENALISED,
        "kl_warmup_steps": When("kl_schedule", ("warmup",)),
        "kl_target": When("kl_schedule", ("adaptive", "smooth")),
        "kl_report_every": When("kl", ("none",)),
        "entropy_rate": When("entropy_target", but=(0.0,)),
        **dict.fromkeys(PpoSettings.model_fields, When("objective", ("ppo",))),
    }

    dependent: ClassVar[frozenset[str]] = frozenset(
        name for defaults in DEFAULTS.values() for name in defaults
    )

    objective: ObjectiveName = "grpo"
    """Surrogate loss. It also changes the defaults of some settings below to those of its paper."""
    clip_low: PositiveFloat = 0.2
    """grpo, dr-grpo, dapo, gspo, ppo: importance ratios are clipped to [1 - clip_low, 1 + clip_high]."""
    clip_high: PositiveFloat = 0.28
    """See clip_low."""
    dual_clip: NonNegativeFloat = 3.0
    """grpo, dr-grpo, dapo, gspo, ppo: upper bound of the importance ratio if the advantage is negative, so
    that no stale token dominates the batch. Above 1, or 0 for no bound."""
    ratio_cap: PositiveFloat = 2.0
    """cispo, reinforce: upper bound of the importance ratio."""
    token_mask_low: NonNegativeFloat = 0.0
    """Tokens have no loss if their importance ratio is below this or above token_mask_high. IcePop's are 0.5
    and 5. 0 for no such end."""
    token_mask_high: NonNegativeFloat = 0.0
    """See token_mask_low."""
    sequence_mask_low: NonNegativeFloat = 0.0
    """Completions have no loss if the geometric mean of their tokens' ratios is below this or above
    sequence_mask_high, such as 0.99 and 1.01. 0 for no such end."""
    sequence_mask_high: NonNegativeFloat = 0.0
    """See sequence_mask_low."""
    baseline: Baseline = "group-mean"
    """Baseline that is subtracted from a reward to get the advantage. For ppo, which has a critic, the
    default is none; with group-mean, GAE is computed from the rewards that GRPO learns from."""
    baseline_decay: float = Field(default=0.9, ge=0.0, lt=1.0)
    """Decay per step of the moving averages of the baselines ema and adaptive."""
    normalise: bool = True
    """Divide advantages by the standard deviation of the rewards."""
    turn_rewards: Literal["sum", "mean"] = "sum"
    """Return of the verdicts of an episode's turns. Their sum grows with the number of turns, their mean does
    not. What the environment pays, such as a game's result, is added up in both."""
    sigma_floor: NonNegativeFloat = 0.0
    """Divide by at least this, so that noise is not amplified. 0.05 fits rewards of 1,000 nodes."""
    process_rewards: bool = False
    """Tokens of a move that the reasoning names learn from that move's own reward, not from the answer's,
    those of a value that it states from the value's error, and those of a sentence from its truth or
    influence. The reward's scheme must have candidates, values, truth or influence."""
    loss_weights: LossWeights = "token"
    """Weights of the loss: equal per token, equal per sequence, or the sum divided by a constant."""
    loss_constant: NonNegativeInt = 0
    """Tokens per completion for --loss-weights constant. 0 uses the rollouts' token limit."""
    mask_truncated: bool = True
    """Exclude completions that were cut at the token limit from the loss."""
    dynamic_sampling: bool = False
    """Drop groups whose rewards are all equal, and wait for others."""
    dynamic_sampling_limit: PositiveInt = 4
    """Maximum number of groups to drop for one batch, in batches. Later groups are trained on."""

    collapse_share: float = Field(default=0.9, gt=0.0, le=1.0)
    """Warn if at least this share of the groups has rewards that are all equal ..."""
    collapse_steps: PositiveInt = 10
    """... for this many steps in a row."""

    @classmethod
    def dependent_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The defaults of the objective, from `DEFAULTS`."""
        return DEFAULTS.get(str(values.get("objective", "grpo")), {})

    @classmethod
    def of_preset(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """Ignores the values that a preset gives for its own objective if another objective was chosen."""
        objective = values.get("objective", "grpo")
        if stronger.get("objective", objective) == objective:
            return dict(values)
        names = cls.dependent.union(
            name for name, when in cls.conditions.items() if when.setting == "objective" and when.among
        )
        return {name: value for name, value in values.items() if name not in names}

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> Self:
        if 0.0 < self.dual_clip <= 1.0:
            raise ValueError(f"dual_clip={self.dual_clip:g}: must be above 1, or 0 for no bound")
        for mask in ("token_mask", "sequence_mask"):
            low, high = getattr(self, f"{mask}_low"), getattr(self, f"{mask}_high")
            if low >= 1.0 or 0.0 < high <= 1.0:
                raise ValueError(
                    f"{mask}_low={low:g}, {mask}_high={high:g}: 1 must be between them (0: no such end)"
                )
        return self

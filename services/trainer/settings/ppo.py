"""Settings of PPO, which learns a baseline for each token instead of using the group's mean."""

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rookery.settings import RunSettings


class PpoSettings(RunSettings):
    """Settings used only with `--objective ppo`. It also uses settings of `objective`."""

    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """ppo: discount factor per token."""
    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """ppo: lambda of generalised advantage estimation, from 0 (rely on the values) to 1 (on the rewards)."""
    whiten: bool = True
    """ppo: normalise the advantages of a batch to mean 0 and standard deviation 1."""
    value_clip: NonNegativeFloat = 0.2
    """ppo: how far values may move from those before the step. 0 for no limit."""
    value_coefficient: PositiveFloat = 0.5
    """ppo: weight of the value loss."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """ppo: weight of the entropy bonus."""
    ppo_epochs: PositiveInt = 1
    """ppo: passes over each batch."""
    ppo_mini_batches: PositiveInt = 1
    """ppo: optimizer steps per pass. The groups are shuffled for each pass."""

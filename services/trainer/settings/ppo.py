"""Settings of PPO: a learned baseline for every token instead of the group's mean."""

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rookery.settings import RunSettings


class PpoSettings(RunSettings):
    """Read with `--objective ppo` alone; others count there, too: see `objective`."""

    gamma: float = Field(default=1.0, gt=0.0, le=1.0)
    """ppo: discount a token."""
    gae_lambda: float = Field(default=0.95, ge=0.0, le=1.0)
    """ppo: between the values' word (0) and the rewards' (1)."""
    whiten: bool = True
    """ppo: advantages of a batch get mean 0 and deviation 1."""
    value_clip: NonNegativeFloat = 0.2
    """ppo: values may move so far from those of before the step; 0 lets them."""
    value_coefficient: PositiveFloat = 0.5
    """ppo: weight of the value loss."""
    entropy_coefficient: NonNegativeFloat = 0.0
    """ppo: weight of the entropy bonus."""
    ppo_epochs: PositiveInt = 1
    """ppo: times that a batch is gone through."""
    ppo_mini_batches: PositiveInt = 1
    """ppo: optimizer steps of each time; groups are dealt out anew."""

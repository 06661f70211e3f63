"""What a rollouts process may be told."""

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import SettingsConfigDict

from rookery.prompt import STYLES
from rookery.settings import Port, PresetSettings, RunSettings
from rookery.trace import Sampling


class RolloutsSettings(RunSettings, PresetSettings):
    """Turns positions of a run into scored groups of completions."""

    model_config = SettingsConfigDict(env_prefix="ROLLOUTS_")

    host: str = "0.0.0.0"
    """Address of the probes and metrics."""
    port: Port = 8004
    """Port of the probes and metrics."""
    inference_urls: str = "http://127.0.0.1:8000"
    """Inference servers, separated by commas; each group goes to the least busy one."""
    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC target of the reward service; `dns:///` spreads the load over its replicas."""
    group_size: int = Field(default=8, ge=2)
    """Completions of each position. The whole run must agree on it."""
    batch_groups: PositiveInt = 32
    """Groups the trainer takes a step. The whole run must agree on it."""
    staleness: NonNegativeInt = 2
    """Steps that generation may run ahead of the trainer. The whole run must agree on it."""
    max_inflight: PositiveInt = 64
    """Groups generated or scored at once."""
    style: str = "mover-squares"
    """How a position is shown to the model."""
    temperature: PositiveFloat = 1.0
    """Nothing else shapes the sampling, so that importance ratios exist."""
    max_tokens: PositiveInt = 64
    """Longest completion, in tokens."""
    state_max_tokens: NonNegativeInt = 0
    """Longest answer to RookWorld's task A; 0: as of any other."""
    seed: int = 0
    """With the group it fixes the seed of every completion."""
    accept_reward_version: str = ""
    """Reward version that the run may change to; without it, another one than the run's is refused."""
    consumer: str = Field(default="rollouts", pattern=r"^[A-Za-z0-9._-]+$")
    """Stable name of this process: it takes up what it held when it last died. One per replica."""

    @field_validator("style")
    @classmethod
    def _known(cls, style: str) -> str:
        if style not in STYLES:
            raise ValueError(f"choose from {', '.join(sorted(STYLES))}")
        return style

    @field_validator("inference_urls")
    @classmethod
    def _some(cls, urls: str) -> str:
        if not all(url.strip().startswith(("http://", "https://")) for url in urls.split(",")):
            raise ValueError("give one or more http:// URLs separated by commas")
        return urls

    @property
    def urls(self) -> tuple[str, ...]:
        """The inference servers."""
        return tuple(url.strip() for url in self.inference_urls.split(","))

    @property
    def sampling(self) -> Sampling:
        """How completions are drawn."""
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)

    @property
    def terms(self) -> dict[str, int]:
        """What rollouts and trainer must agree on."""
        return {
            "group_size": self.group_size,
            "batch_groups": self.batch_groups,
            "staleness": self.staleness,
        }

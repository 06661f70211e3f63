"""Settings of the rollouts."""

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from rookery.access import AccessSettings
from rookery.prompt import StyleName
from rookery.replicas import split_urls
from rookery.settings import Port, PresetSettings, RunSettings
from rookery.trace import Sampling


class RolloutsSettings(RunSettings, PresetSettings, AccessSettings, env_prefix="ROLLOUTS_"):
    """Turns the positions of a run into scored groups of completions."""

    host: str = "127.0.0.1"
    """Address for probes and metrics."""
    port: Port = 8004
    """Port for probes and metrics."""
    inference_urls: str = "http://127.0.0.1:8000"
    """URLs of the inference servers, separated by commas. Each group goes to the least busy one. `dns:///NAME:PORT`
    stands for all addresses of the name, which is looked up again every few seconds."""
    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC target of the reward service. `dns:///` spreads the load over its replicas."""
    group_size: int = Field(default=8, ge=2)
    """Completions per position. The same for the whole run."""
    batch_groups: PositiveInt = 32
    """Groups per training step. The same for the whole run."""
    staleness: NonNegativeInt = 2
    """Training steps that generation may run ahead. The same for the whole run."""
    just_in_time: bool = True
    """Start groups only early enough for the trainer not to wait. If false: as early as staleness allows."""
    max_inflight: PositiveInt = 64
    """Groups generated or scored at the same time."""
    style: StyleName = "mover-squares"
    """Prompt style: how a position is shown to the model."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature. There is no top-p or top-k: importance ratios need the full distribution."""
    max_tokens: PositiveInt = 64
    """Longest completion, in tokens."""
    state_max_tokens: NonNegativeInt = 0
    """Longest answer to RookWorld's task A, in tokens; 0 means max_tokens."""
    influence_share: float = Field(default=0.07, ge=0, le=1)
    """Share of the groups in which the influence of sentences is measured, if the scheme has `influence`.
    Measuring a group takes some 2.6 times as long as generating it (`python -m bench.influence`)."""
    seed: int = 0
    """Seed of the run. Each completion's seed is derived from it and the group's id."""
    accept_reward_version: str = ""
    """Reward version that the run may change to. By default, any version but the run's is refused."""
    consumer: str = Field(default="rollouts", pattern=r"^[A-Za-z0-9._-]+$")
    """Stable name of this process, by which it resumes its positions after a restart. One per replica."""

    @field_validator("inference_urls")
    @classmethod
    def _at_least_one_url(cls, urls: str) -> str:
        if not split_urls(urls):
            raise ValueError("give one or more http:// URLs separated by commas")
        return urls

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, max_tokens=self.max_tokens)

    @property
    def terms(self) -> dict[str, int]:
        """The settings that must be the same in the rollouts and the trainer."""
        return {"group_size": self.group_size, "batch_groups": self.batch_groups, "staleness": self.staleness}

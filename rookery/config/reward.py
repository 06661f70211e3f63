"""Settings of the reward service: flags, `REWARD_*` variables or the `[reward]` table of a TOML file."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from rookery.access import AccessSettings
from rookery.devices import usable_cores
from rookery.errors import InvalidInput
from rookery.schemes import DEFAULT, find_scheme
from rookery.settings import HttpUrl, Port, PresetSettings, RedisUrl
from rookery.winprob import LICHESS_K


class RewardSettings(PresetSettings, AccessSettings, env_prefix="REWARD_"):
    """Nodes, hash, k, win model and scheme change the reward and are part of `reward_version`."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Port = 8080
    """HTTP port; 0 picks a free one."""
    grpc_port: Port = 50051
    """gRPC port; 0 picks a free one."""
    nodes: int = Field(default=1000, ge=1, le=100_000_000)
    """Nodes per search. 1,000 take about a millisecond and see a lost piece; 100,000 judge like a master."""
    engines: int = Field(default_factory=usable_cores, ge=1, le=1024)
    """Stockfish processes, one thread each. Default: one per core."""
    engine_path: Path | None = None
    """The Stockfish binary. Default: `stockfish` on the PATH, then where Debian puts it."""
    hash_mb: int = Field(default=1, ge=1, le=65536)
    """MiB of hash table per engine. It is cleared before each search, which takes longer the larger it is."""
    k: float = Field(default=LICHESS_K, gt=0, le=0.1)
    """Steepness of the win probability per centipawn; 0.002 suits weak players."""
    win_model: Literal["lichess", "wdl"] = "lichess"
    """Win probability from the score (lichess) or from the engine's estimate of wins and draws (wdl)."""
    scheme: str = DEFAULT
    """Scheme for requests that name none: delta, best, accuracy, minmax, model, or a sum of them."""
    queue: int = Field(default=4096, ge=1)
    """Searches that may wait for an engine. If more would wait, callers get a 503."""
    deadline_s: float = Field(default=10.0, gt=0)
    """Seconds until a search counts as hung and its engine is replaced; at least 1 s per 20,000 nodes."""
    schemes: str = ""
    """Your own reward functions as schemes, with commas: module:function, name=URL. See the README."""
    redis_url: RedisUrl = ""
    """Redis where replicas share their searches, such as redis://localhost:6379. Default: none."""
    model_url: HttpUrl = ""
    """URL of a reward model (`rookery serve reward-model`), for the scheme `model`. Default: none."""

    @model_validator(mode="after")
    def _scheme_is_known(self) -> Self:
        if self.schemes:
            return self  # the scorer knows, once it has loaded them
        try:
            scheme = find_scheme(self.scheme)
        except InvalidInput as error:
            raise ValueError(f"scheme: {error}") from error
        if "model" in scheme.uses and not self.model_url:
            raise ValueError(
                f"scheme {self.scheme!r} needs a reward model: set model_url, or give `rookery up` its "
                "directory (--reward-model)"
            )
        return self

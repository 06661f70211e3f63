"""Settings of `evaluate` and `curve`."""

from pathlib import Path

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.settings import Settings


class EvaluateSettings(Settings):
    """Compare two policies on held-out positions and write report.json, report.html, learning_curve.png."""

    model_config = SettingsConfigDict(env_prefix="ARENA_")

    inference_url: str = "http://127.0.0.1:8000"
    """URL of the inference server that serves both policies."""
    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC address of the reward service."""
    data_url: str | None = None
    """URL of a data service with held-out positions. Give either this or --positions."""
    positions: Path | None = None
    """JSONL file with one position per line."""
    exclude: Path | None = None
    """JSONL file of positions to leave out, such as those the policies were trained on."""
    before: str
    """Name under which the earlier policy is served, such as policy-v000000."""
    after: str
    """Name under which the later policy is served."""
    style: str = "mover-squares"
    """Name of the prompt style."""
    count: int = Field(default=500, ge=1)
    """Number of positions."""
    samples: int = Field(default=4, ge=1, le=64)
    """Sampled answers per position, in addition to the greedy one."""
    max_tokens: int = Field(default=32, ge=1)
    """Most tokens of an answer."""
    seed: int = Field(default=0, ge=0)
    """Seed of the drawn positions, the sampled answers and the bootstrap."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Positions asked at the same time."""
    out: Path
    """Run folder. The reports are written there; its metrics.jsonl, if any, gives the learning curve."""

    @model_validator(mode="after")
    def _one_source(self) -> "EvaluateSettings":
        if (self.positions is None) == (self.data_url is None):
            raise ValueError("give exactly one of --positions and --data-url")
        return self


class CurveSettings(Settings):
    """Draw the learning curve of a run from its metrics.jsonl."""

    model_config = SettingsConfigDict(env_prefix="ARENA_CURVE_")

    run_dir: CliPositionalArg[Path]
    """Run folder with a metrics.jsonl. learning_curve.png is written there."""

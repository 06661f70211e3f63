"""Settings of the arena's two commands."""

from pathlib import Path

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.settings import Settings


class EvaluateSettings(Settings):
    """Compare two policies on held-out positions; writes report.json, report.html, learning_curve.png."""

    model_config = SettingsConfigDict(env_prefix="ARENA_")

    inference_url: str = "http://127.0.0.1:8000"
    """Server that serves both policies."""
    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC address of the reward service."""
    data_url: str | None = None
    """Data service to take held-out positions from; or give --positions."""
    positions: Path | None = None
    """JSONL of positions, one a line."""
    exclude: Path | None = None
    """JSONL of positions the policies were trained on: never asked."""
    before: str
    """Served name of the earlier policy, as in policy-v000000."""
    after: str
    """Served name of the later policy."""
    style: str = "mover-squares"
    """Prompt style, by name."""
    count: int = Field(default=500, ge=1)
    """Positions to ask about."""
    samples: int = Field(default=4, ge=1, le=64)
    """Sampled answers to each position, beside the greedy one."""
    max_tokens: int = Field(default=32, ge=1)
    """Longest answer, in tokens."""
    seed: int = Field(default=0, ge=0)
    """Draws positions, answers and resamples."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Positions in flight."""
    out: Path
    """Run folder: its metrics.jsonl is drawn, the reports are written there."""

    @model_validator(mode="after")
    def _one_source(self) -> "EvaluateSettings":
        if (self.positions is None) == (self.data_url is None):
            raise ValueError("give exactly one of --positions and --data-url")
        return self


class CurveSettings(Settings):
    """Draw the learning curve of a run from its metrics.jsonl."""

    model_config = SettingsConfigDict(env_prefix="ARENA_CURVE_")

    run_dir: CliPositionalArg[Path]
    """Run folder; learning_curve.png is written there."""

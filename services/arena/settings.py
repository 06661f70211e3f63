"""Settings of the arena's commands: flags, `ARENA_*` variables or the `[arena]` table of a TOML file."""

from pathlib import Path

from pydantic import Field, model_validator
from pydantic_settings import CliPositionalArg, SettingsConfigDict

from rookery.settings import Settings, Specs


class EvaluateSettings(Settings):
    """Evaluate players on positions, puzzles and test suites, and write report.json and report.html.

    A player is written as a spec, such as http://127.0.0.1:8000#policy-v000150 or stockfish,nodes=100. The
    first one is the baseline of the others. An evaluation that was killed goes on where it was.
    """

    model_config = SettingsConfigDict(env_prefix="ARENA_")

    players: CliPositionalArg[Specs]
    """Specs of the players."""
    ask_only: bool = False
    """Only collect the answers: a later evaluation of more players with the same --out writes the report."""
    sections: str = "positions,reasoning"
    """Which sections, separated by commas: positions, reasoning, puzzles, suites, matches."""
    reward_target: str = "dns:///127.0.0.1:50051"
    """gRPC address of the reward service. Only for positions."""
    data_url: str | None = None
    """URL of a data service with held-out positions. Give either this or --positions."""
    positions: Path | None = None
    """JSONL file with one position per line."""
    exclude: Path | None = None
    """JSONL file of positions to leave out, such as those the policies were trained on."""
    count: int = Field(default=500, ge=1)
    """Number of positions."""
    samples: int = Field(default=4, ge=0, le=64)
    """Sampled answers per position, in addition to the greedy one."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Temperature of the sampled answers."""
    styles: bool = False
    """Ask language models in each of the position formats too."""
    puzzles: tuple[Path, ...] = ()
    """Files of puzzles: the Lichess CSV, or PGN whose games start at the solver's turn. Repeatable."""
    puzzle_count: int = Field(default=1000, ge=1)
    """Most puzzles of a file."""
    suites: tuple[Path, ...] = ()
    """Test suites in EPD with bm or am. Repeatable."""
    seed: int = Field(default=0, ge=0)
    """Seed of the drawn positions and puzzles, the sampled answers and the bootstrap."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """Questions asked at the same time."""
    out: Path
    """Folder of the answers and the report. A metrics.jsonl there gives the learning curve."""

    @property
    def asks(self) -> frozenset[str]:
        """The names of the sections."""
        return frozenset(self.sections.split(","))

    @model_validator(mode="after")
    def _sources(self) -> "EvaluateSettings":
        if unknown := self.asks - SECTIONS:
            raise ValueError(
                f"no section {', '.join(sorted(unknown))!r}: choose from {', '.join(sorted(SECTIONS))}"
            )
        if self.asks & {"positions", "reasoning"} and (self.positions is None) == (self.data_url is None):
            raise ValueError("give exactly one of --positions and --data-url")
        if "puzzles" in self.asks and not self.puzzles:
            raise ValueError("the section puzzles needs --puzzles")
        if "suites" in self.asks and not self.suites:
            raise ValueError("the section suites needs --suites")
        return self


SECTIONS = frozenset({"positions", "reasoning", "puzzles", "suites", "matches"})


class CurveSettings(Settings):
    """Draw the learning curve of a run from its metrics.jsonl."""

    model_config = SettingsConfigDict(env_prefix="ARENA_CURVE_")

    run_dir: CliPositionalArg[Path]
    """Run folder with a metrics.jsonl. learning_curve.png is written there."""

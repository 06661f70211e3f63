"""What `rookery up` and `rookery demo` may be told.

Only what several services must agree on, or what a first run is likely to change, has a flag of its
own; everything else goes to its service by `--set` or by the TOML file.
"""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from pydantic_settings import SettingsConfigDict

from rookery.prompt import STYLES
from rookery.settings import PresetSettings, RedisUrl

SERVICES = ("feed", "archive", "reward", "trainer", "inference", "rollouts", "data")
"""Who can be named in `--set`."""

_OVERRIDE = re.compile(rf"({'|'.join(SERVICES)})\.[a-z][a-z0-9_]*=.*")


class UpSettings(PresetSettings):
    """Run every part of Rookery on this machine until --steps, --minutes or Ctrl-C.

    Precedence: flags, then UP_... variables, then the [up] table of the TOML file that ROOKERY_CONFIG
    names, then --preset; that file's other tables ([trainer], [reward], ...) and the services' own
    variables (TRAINER_..., REWARD_...) reach them too.
    """

    model_config = SettingsConfigDict(env_prefix="UP_")

    model: str = "models/rook-tiny"
    """Model to start from: a directory, or a Hugging Face id."""
    source: Path = Path("samples/lichess.pgn.zst")
    """Games to draw positions from: .pgn, .pgn.zst, .gz or .bz2."""
    run: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """Name of the run. An existing one is resumed; a new name is made up when none is given."""
    runs_dir: Path = Path("runs")
    """Folder that holds a folder for each run."""
    redis_url: RedisUrl | None = None
    """Redis to use; with a password, give it as ROOKERY_REDIS_URL. Without one an own server is started, its
    data in the run's folder."""
    steps: PositiveInt | None = None
    """Stop after this many training steps, counted from the run's beginning."""
    minutes: PositiveFloat | None = None
    """Stop after this many minutes of training."""
    from_version: NonNegativeInt | None = None
    """Go back to this version of the run and train on from it; later versions are given up."""
    group_size: int = Field(default=8, ge=2)
    """Completions of each position."""
    batch_groups: PositiveInt = 32
    """Positions a training step."""
    staleness: NonNegativeInt = 2
    """Steps that generation may run ahead of training."""
    max_tokens: PositiveInt = 32
    """Longest completion, in tokens."""
    task: Literal["move", "rookworld"] = "move"
    """What is asked about a position: a move, or RookWorld's lines, P: and A: mixed, as raw text."""
    style: str = "mover-squares"
    """How a position is shown to the model that is asked for a move."""
    nodes: PositiveInt = 1000
    """Stockfish nodes a search."""
    engines: PositiveInt | None = None
    """Stockfish processes. Default: one per core."""
    archive: bool = True
    """Keep every group as Parquet in the run's folder, for `rookery rescore` and whoever asks later."""
    seed: NonNegativeInt = 0
    """Order of the positions, sampling and training."""
    inference_device: str = "auto"
    """`cpu`, or the index of the GPU that serves. auto: the first GPU there is, else the CPU."""
    trainer_device: str = "auto"
    """`cpu`, or the index of the GPU that trains. auto: the second GPU, else the first, else the CPU."""
    set: tuple[str, ...] = ()
    """SERVICE.SETTING=VALUE, repeatable, as in trainer.lr=5e-4 or reward.port=8081."""

    @property
    def shown_style(self) -> str:
        """The style of the prompts: RookWorld's lines have their own."""
        return "rookworld" if self.task == "rookworld" else self.style

    @field_validator("style")
    @classmethod
    def _known_style(cls, style: str) -> str:
        if style not in STYLES:
            raise ValueError(f"choose from {', '.join(sorted(STYLES))}")
        return style

    @field_validator("set")
    @classmethod
    def _assignments(cls, assignments: tuple[str, ...]) -> tuple[str, ...]:
        for assignment in assignments:
            if not _OVERRIDE.fullmatch(assignment):
                raise ValueError(
                    f"{assignment!r} is not SERVICE.SETTING=VALUE for one of {', '.join(SERVICES)}"
                )
        return assignments

    @field_validator("inference_device", "trainer_device")
    @classmethod
    def _device(cls, device: str) -> str:
        if device not in ("auto", "cpu") and not device.isdigit():
            raise ValueError("give auto, cpu or the index of a GPU")
        return device


class DemoSettings(UpSettings):
    """Train on the sample games for a few minutes, then compare the policy with where it began.

    Writes report.json, report.html and learning_curve.png into the run's folder. With --task rookworld or a
    GPT-2 the report is of the training alone, its first steps beside its last, without report.html.
    """

    model_config = SettingsConfigDict(env_prefix="DEMO_")

    steps: PositiveInt | None = 150
    """Training steps."""
    minutes: PositiveFloat | None = 10.0
    """Stop training after this many minutes even if steps are left."""
    eval_positions: PositiveInt = 400
    """Held-out positions to compare the two policies on."""
    eval_samples: PositiveInt = 4
    """Sampled answers to each of them, beside the greedy one."""

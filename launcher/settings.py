"""The settings of `rookery up` and `rookery demo`.

Only settings that several services share, or that a first run is likely to change, have a flag of their own.
All other settings of a service are given with `--set` or in the TOML file.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)

from launcher.services import SERVICES
from rookery.access import AccessSettings
from rookery.config.data import SAMPLE
from rookery.devices import Devices, ServerDevices
from rookery.errors import QUOTED_CHARS, SetupError
from rookery.files import expanded
from rookery.prompt import StyleName
from rookery.remote import FolderPath, PathOrUrl, is_url, shipped
from rookery.settings import HIGHEST_PORT, Assignments, PresetSettings, RedisUrl

SETTINGS_FILE = "settings.json"
"""In the folder of a run, what it was started with last."""

_ASSIGNABLE = [name for name in SERVICES if name != "data"]
"""The services of a run. Its feed reads the games itself, without the data service."""
_OVERRIDE = re.compile(rf"({'|'.join(_ASSIGNABLE)})\.[a-z][a-z0-9_]*=.*")


class UpSettings(PresetSettings, AccessSettings, env_prefix="UP_"):
    """Run all services on this machine until --steps, --minutes or Ctrl-C.

    Precedence: flags, then UP_... variables, then the [up] table of the TOML file named by ROOKERY_CONFIG,
    then --preset. The services also read their own tables of that file ([trainer], [reward], ...) and their
    own variables (TRAINER_..., REWARD_...).
    """

    model: PathOrUrl = "models/rook-tiny"
    """Model to start from: a directory, a Hugging Face id, or the URL of a folder, as s3://bucket/sft/model."""
    source: PathOrUrl = SAMPLE
    """Games to draw positions from: a file (.pgn, .pgn.zst, .gz or .bz2) or its URL. Or `generated`:
    positions of openings and random moves. Or, for --task rookworld, a file of P: and A: lines with their
    answers: .txt, .jsonl or .parquet."""
    max_positions: NonNegativeInt = 0
    """Train on so many different positions, again and again. 0: ever new ones."""
    runs_dir: FolderPath = Path("runs")
    """Folder with one folder for each run."""
    run: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")
    """Name of the run, or its folder in --runs-dir. An existing run is resumed. Default: a new name."""
    redis_url: RedisUrl | None = None
    """Redis to use; if the URL has a password, set ROOKERY_REDIS_URL instead. Default: start a Redis that
    keeps its data in the run's folder."""
    steps: PositiveInt | None = None
    """Stop after this many training steps, counted from the start of the run."""
    minutes: PositiveFloat | None = None
    """Stop after this many minutes of training."""
    from_version: NonNegativeInt | None = None
    """Go back to this version of the run and continue training from it. Later versions are discarded."""
    group_size: int = Field(default=8, ge=2)
    """Completions per position."""
    batch_groups: PositiveInt = 32
    """Positions per training step."""
    staleness: NonNegativeInt = 2
    """How many steps generation may run ahead of training."""
    max_tokens: PositiveInt | None = None
    """Maximum length of a completion, in tokens. Default: as the model's manifest has it, else 32 for short
    answers, and 256 to 1,024 for a model with a chat template."""
    task: Literal["move", "rookworld"] = "move"
    """What the model is asked: `move` for a move, `rookworld` for a mix of RookWorld's P: and A: lines."""
    style: StyleName | None = None
    """Prompt style of the positions, for --task move. Default: that of the model's manifest; for a model with
    a chat template and no manifest, fen-legal-san."""
    thinking: bool | None = None
    """Whether a model that can think, such as Qwen3, does. Default: as its chat template has it."""
    nodes: PositiveInt = 1000
    """Stockfish nodes per search."""
    reward_model: FolderPath | None = None
    """Reward model to serve, a directory that `rookery reward-model` wrote. Choose how it counts with --set
    reward.scheme=model, or a sum such as delta+0.5*model."""
    engines: PositiveInt | None = None
    """Stockfish processes. Default: one per core."""
    archive: bool = True
    """Keep every group as Parquet in the run's folder, for example for `rookery rescore`."""
    evaluate_every: NonNegativeInt = 0
    """Evaluate version 0 and every so many versions while the run trains: strength.jsonl. 0: never."""
    evaluate_positions: PositiveInt = 200
    """Held-out positions of --evaluate-every."""
    view: bool | None = None
    """Serve the viewer: a web page with the run's answers and curves. Default: if the extra `viewer` is
    installed."""
    seed: NonNegativeInt = 0
    """Seed of the order of the positions, of sampling and of training."""
    inference_device: ServerDevices = "auto"
    """`cpu`, or the GPU for inference, or several that share the model: 0,1. Each is an index, as in
    CUDA_VISIBLE_DEVICES or nvidia-smi, or an id (GPU-..., MIG-...). auto: the first GPU, or the CPU if there
    is none."""
    trainer_device: Devices = "auto"
    """`cpu`, or the GPU for training, or several: 1,2,3. auto: the second GPU, else the first, which then
    serves and trains in turns, else the CPU."""
    set: Assignments = ()
    """SERVICE.SETTING=VALUE, repeatable; for example trainer.lr=5e-4 or reward.port=8081."""
    _kept: frozenset[str] = PrivateAttr(default=frozenset())
    """The assignments of `set` that this command does not give: the run had them before."""

    @property
    def generated(self) -> bool:
        """Whether positions are generated, so that `source` is no file."""
        return self.source == "generated"

    @property
    def flags_to_find_it(self) -> str:
        """The run's name for another command line, with its folder if that is not the default."""
        default = type(self).model_fields["runs_dir"].default
        return shlex.join([self.run, *(["--runs-dir", str(self.runs_dir)] * (self.runs_dir != default))])

    @property
    def command_to_go_on(self) -> str:
        """The command that continues the run, up to the same step."""
        steps = (
            "" if self.steps in (None, type(self).model_fields["steps"].default) else f" --steps {self.steps}"
        )
        return f"rookery {self.table()} --run {self.flags_to_find_it}{steps}"

    @property
    def feed_source(self) -> str:
        """`source` as the feed reads it: absolute, if it is a path."""
        return self.source if self.generated or is_url(self.source) else str(shipped(self.source).resolve())

    @property
    def games(self) -> str:
        """The games that held-out positions are drawn from: the sample games if `source` has none."""
        lines = self.task == "rookworld" and not {".txt", ".jsonl", ".parquet"}.isdisjoint(
            Path(self.source).suffixes
        )
        return SAMPLE if self.generated or lines else self.source

    @property
    def shown_style(self) -> str | None:
        """The prompt style of the rollouts. RookWorld's lines have a style of their own."""
        return "rookworld" if self.task == "rookworld" else self.style

    @field_validator("run", mode="before")
    @classmethod
    def _name(cls, run: Any, info: ValidationInfo) -> Any:
        """`NAME` of `runs/NAME`."""
        folder, runs_dir = Path(expanded(str(run))), info.data.get("runs_dir", Path())
        return folder.name if folder.parent.resolve() == runs_dir.resolve() else run

    @field_validator("set")
    @classmethod
    def _assignments(cls, assignments: tuple[str, ...]) -> tuple[str, ...]:
        for assignment in assignments:
            if not _OVERRIDE.fullmatch(assignment):
                raise ValueError(
                    f"{assignment[:QUOTED_CHARS]!r} is not SERVICE.SETTING=VALUE for one of "
                    f"{', '.join(_ASSIGNABLE)}"
                )
        return assignments


class DemoSettings(UpSettings, env_prefix="DEMO_"):
    """Train on the sample games for a few minutes, then compare the last policy with the first.

    Writes report.json, report.html and learning_curve.png to the run's folder. Without --preset and --model,
    the preset is rook-small.
    """

    steps: PositiveInt | None = 60
    """Training steps."""
    minutes: PositiveFloat | None = 8.0
    """How long all of it may take, about. A slow machine trains fewer steps, but 30, and evaluates on fewer
    positions and openings, but 200 and 10. It says so."""
    eval_positions: PositiveInt = 1000
    """Held-out positions to compare the two policies on; at most as many mates in one."""
    eval_samples: PositiveInt = 1
    """Sampled answers per held-out position, in addition to the greedy one."""
    eval_pairs: NonNegativeInt = 30
    """Openings of the matches of the last policy with the first, each with both colours. 0: no matches."""
    view: bool = False
    """Serve the viewer during the run. `rookery view` shows the run at any time."""

    @classmethod
    def default_preset(cls, stronger: Mapping[str, Any]) -> str | None:
        """Its settings were chosen for its own model, so another model has none. A run that is there has
        settings of its own."""
        name = Path(str(stronger.get("run", ""))).name
        is_there = name and Path(stronger.get("runs_dir", "runs"), name, SETTINGS_FILE).exists()
        return None if is_there or "model" in stronger else "rook-small"


class Overrides:
    """The settings of each service that the user gave with `--set`."""

    def __init__(self, assignments: Iterable[str]) -> None:
        self._values: dict[str, dict[str, str]] = {}
        for assignment in assignments:
            target, value = assignment.split("=", 1)
            service, key = target.split(".", 1)
            self._values.setdefault(service, {})[key] = value
        self._unassigned: dict[str, dict[str, Any]] = {}

    def values(self, service: str) -> dict[str, str]:
        """The overrides of a service, except its ports (see `port`)."""
        values = self._values.get(service, {})
        return {key: value for key, value in values.items() if key not in ("port", "grpc_port")}

    def port(self, service: str, key: str) -> tuple[int | None, str]:
        """The port that the user set for a service, or None, and how to set it, for error messages. Raises
        `SetupError` if the value is not a port."""
        kind = SERVICES[service].settings_class
        setting = f"--set {service}.{key}=PORT or {kind.variable(key)}"
        if service not in self._unassigned:
            self._unassigned[service] = kind.values_without_flags()
        value = self._values.get(service, {}).get(key) or self._unassigned[service].get(key)
        if value is None:
            return None, setting
        if not (str(value).isdecimal() and int(value) <= HIGHEST_PORT):
            raise SetupError(f"{value!r} is not a port ({setting})")
        return int(value), setting

"""Finds runs by name or folder, and groups those that differ only in their seed."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.config.objective import KL_ALIASES
from rookery.errors import InvalidInput, NotFound
from rookery.plots.steps import METRICS_FILE, PREFIX, Step, read_metrics
from rookery.remote import find_run

INCIDENTAL = {
    "seed", "run", "runs_dir", "run_dir", "out", "redis_url", "steps", "minutes", "max_steps",
    "inference_urls", "host", "port", "keep", "threads", "preset", "mlflow", "report_to", "store",
    "adapter_store", "device", "inference_device", "trainer_device", "view",
}  # fmt: skip
"""Settings in which two runs of one configuration may differ."""

REPORT_FILE = "report.json"


@dataclass(frozen=True, slots=True)
class Run:
    """The recorded steps of a run, the last one with the figures of its evaluation, if the run has a report.
    `settings` is empty if its folder has no settings file."""

    name: str
    folder: Path
    steps: tuple[Step, ...]
    settings: dict[str, Any]

    @property
    def seed(self) -> Any:
        """The seed of the run; None if its folder does not say."""
        return next((v for k, v in sorted(self.settings.items()) if k.endswith(".seed")), None)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Runs that differ only in their seed."""

    name: str
    runs: tuple[Run, ...]


def find_runs(names: Sequence[str], *, runs_dir: Path) -> list[Run]:
    """The runs of these names in `runs_dir`, or with these folders. A folder of runs stands for all of them.
    Raises `SetupError` if there is no such run; `NotFound` if its folder has no metrics file; `InvalidInput`
    if a run has no step, cannot be read, or is named twice."""
    folders = [folder for name in names for folder in _folders(name, runs_dir)]
    for folder in folders:
        if folders.count(folder) > 1:
            raise InvalidInput(f"run {str(folder)!r} is named twice")
    return [_read(folder) for folder in folders]


def _folders(name: str, runs_dir: Path) -> list[Path]:
    folder = find_run(name, runs_dir=runs_dir).resolve()
    if (folder / METRICS_FILE).is_file():
        return [folder]
    if inside := sorted(path.parent for path in folder.glob(f"*/{METRICS_FILE}")):
        return inside
    raise NotFound(f"no {METRICS_FILE} in {str(folder)!r}, nor in a folder inside it")


def _read(folder: Path) -> Run:
    steps = read_metrics(folder / METRICS_FILE)
    if not steps:
        raise InvalidInput(f"{folder / METRICS_FILE} has no steps yet")
    steps[-1] |= _evaluation(folder / REPORT_FILE)
    return Run(folder.name, folder, tuple(steps), _settings(folder))


def _evaluation(report: Path) -> Step:
    """The held-out figures of the run's last policy in the demo's report, as `evaluation_NAME`. Empty if
    there is no report, or if it is that of a reward model."""
    try:
        sections = json.loads(report.read_text()).get("sections", {}).values() if report.exists() else ()
        metrics = {name: row for section in sections for name, row in section.get("metrics", {}).items()}
        players = {player for row in metrics.values() for player in row if player.startswith("policy-v")}
        last = max(players, default="")
        means = {name: row[last]["mean"] for name, row in metrics.items() if last in row}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{report}: not a report: {error!r}") from error
    return {f"{PREFIX}{name}": float(mean) for name, mean in means.items() if mean is not None}


def _settings(folder: Path) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    # settings.json is of `rookery up`; the trainer, sft, etc. write one TOML file each.
    for path in (*folder.glob("settings.json"), *sorted(folder.glob("*.toml"))):
        try:
            table = (tomllib if path.suffix == ".toml" else json).loads(path.read_text())
        except ValueError as error:
            raise InvalidInput(f"{path}: {error}") from error
        if not isinstance(table, dict):
            raise InvalidInput(f"{path}: not a JSON object: {str(table)[:120]!r}")
        for key, value in table.items():
            inner = value if isinstance(value, dict) else {key: value}
            settings |= {f"{path.stem}.{name}": _current(name, setting) for name, setting in inner.items()}
    return settings


def _current(name: str, value: Any) -> Any:
    """The value of a setting, with the present name of a divergence."""
    if name == "set":  # assignments such as `trainer.kl=forward`
        parts = [assignment.partition("=") for assignment in value]
        named = [(key, key.rpartition(".")[2], text) for key, _, text in parts]
        return [f"{key}={_current(own, text)}" for key, own, text in named if own not in INCIDENTAL]
    return KL_ALIASES.get(value, value) if name == "kl" else value


def group_seeds(runs: Sequence[Run]) -> list[Configuration]:
    """Groups runs whose settings are equal except for the `INCIDENTAL` ones, such as the seed. The groups are
    in the order of their first runs. A run without settings is a group of its own."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        compared = {k: v for k, v in run.settings.items() if k.split(".")[-1] not in INCIDENTAL}
        signature = json.dumps(compared, sort_keys=True, default=str) if compared else str(run.folder)
        groups.setdefault(signature, []).append(run)
    return [
        Configuration(group[0].name + (f" ({len(group)} seeds)" if len(group) > 1 else ""), tuple(group))
        for group in groups.values()
    ]


def ungrouped(runs: Sequence[Run]) -> list[Configuration]:
    """Each run as its own configuration."""
    return [Configuration(run.name, (run,)) for run in runs]

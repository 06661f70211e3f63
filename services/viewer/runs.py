"""The folders of runs: metrics, settings, evaluations, commits, the files of the archive. Only reads.

If a run is in a store, the files that are read here are first copied to this disk.
"""

import gzip
import json
import os
import re
import shlex
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.errors import NotFound, RookeryError
from rookery.files import object_or_empty
from rookery.folder_lock import is_locked
from rookery.plots.panels import OVERVIEW, PANELS, STRENGTH, Panel, choose, label_of
from rookery.plots.steps import METRICS_FILE, Step, keys_of, read_metrics, series, strength_steps
from rookery.remote import is_url
from rookery.streams import DEAD_FILE
from rookery.trace import policy_name
from services.viewer.store import Stamp, Store, stamp_of

ANSWERS_FILE = "answers.jsonl"
"""The answers of an evaluation or a battery."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ARCHIVE_FILE = re.compile(r"(\d+)-(\d+)_.*\.parquet")
_MILESTONE = 100
"""The trainer keeps every hundredth version. A ledger has 8,192 groups, so these and the newest have all
groups, unless a step takes more than 81."""

_CHANGES = ("reward", "legal_rate", "regret", "entropy", "zero_variance_share")
"""Figures of a step of which an overview says how they changed."""

_LATEST_S = 1e11
"""Later times than this, in the year 5138, are none."""

_TAIL_BYTES = 1 << 16
"""Many times the length of a step's line."""

_COPIED_AT_ONCE = re.compile(r"[^/]+\.(json|jsonl|toml)|settings/reward\.toml|adapters/[^/]+/state\.json")
"""The files of a run's folder that are copied from a store at once. Archive and ratios follow one by one."""

_UNREADABLE = (RookeryError, OSError, EOFError, ValueError, TypeError, RecursionError, zlib.error)
"""A file of figures that is missing or damaged, or whose store does not answer: it is left out."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run on this disk. All Parquet files below `archive`, which may not exist, are the run's. Both folders
    may be local copies of stores."""

    name: str
    path: Path
    archive: Path
    store: Store | None = None
    archive_store: Store | None = None

    def metrics(self) -> list[Step]:
        """The steps of its trainer; none before the first."""
        with suppress(NotFound):
            return read_metrics(self.path / METRICS_FILE)
        return []

    def last_step(self) -> Step:
        """The newest step, read from the end of the file; empty before the first."""
        try:
            with (self.path / METRICS_FILE).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().split(b"\n")
            return dict(json.loads(lines[-2])) if len(lines) > 1 else {}
        except _UNREADABLE:
            return {}

    def course(self) -> dict[str, Any]:
        """Whether the run trains, how far it came, the change from its first steps to its last ones, and the
        command that goes on with it. `state` is running, ended, interrupted (before its last step), stopped
        (a run without one) or unknown."""
        steps, settings = self.metrics(), self.read_json("settings.json")
        goal = settings.get("steps")
        goal = goal if isinstance(goal, int) and goal > 0 else None
        done = int(steps[-1].get("step", 0)) if steps else 0
        ended = goal is not None and done >= goal
        local = bool(settings) and not self.store
        running = local and is_locked(self.path)
        command = ""
        if local and not running:
            command = f"rookery {'demo' if 'eval_positions' in settings else 'up'} --run {self.name}"
            if self.path.parent != Path("runs"):
                command += f" --runs-dir {shlex.quote(str(self.path.parent.resolve()))}"
            if goal:
                command += f" --steps {2 * goal if ended else goal}"
        share = max(1, len(steps) // 10)
        stopped = ("ended" if ended else "interrupted" if goal else "stopped") if local else "unknown"
        return {
            "state": "running" if running else stopped,
            "step": done,
            "goal": goal,
            "first_step_at": steps[0].get("time") if steps else None,
            "go_on": command,
            "averaged": share,
            "change": {key: [_mean(steps[:share], key), _mean(steps[-share:], key)] for key in _CHANGES},
            "last_steps": steps[:-6:-1],
        }

    def manifest(self) -> dict[str, Any]:
        """The run's id, which it keeps where its folder is renamed or copied, and its first and newest start:
        `time`, `command`, `commit` (empty outside a checkout) and `version`. Empty if it has none."""
        manifest = self.read_json("run.json")
        starts = manifest.get("starts")
        starts = [start for start in starts if isinstance(start, dict)] if isinstance(starts, list) else []
        id = manifest.get("id")
        if not (isinstance(id, str) and starts):
            return {}
        first, last = map(_start, (starts[0], starts[-1]))
        return {"id": id, "starts": len(starts), "first_start": first, "last_start": last}

    def curves(self, *, all: bool = False) -> dict[str, Any]:
        """The panels of `rookery plot`: of training, `all` or the main ones, and of versions' strength."""
        return {
            "training": _panels(self.metrics(), PANELS if all else OVERVIEW),
            "strength": _panels(list(strength_steps(self.path)), STRENGTH),
        }

    def read_json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder; empty if there is none, or half of one."""
        return object_or_empty(self.path / name)

    @property
    def streams_name(self) -> str:
        """Its name in Redis: that which it had when it was started, also if its folder was renamed."""
        recorded = self.read_json("endpoints.json").get("run")
        return recorded if isinstance(recorded, str) and _NAME.fullmatch(recorded) else self.name

    def trainer_settings(self) -> dict[str, Any] | None:
        """What the trainer was started with; None if unknown, as of an archive without its run."""
        return _toml_table(self.path / "trainer.toml", "trainer")

    def scheme(self) -> str:
        """That of the reward; empty if unknown."""
        return str((_toml_table(self.path / "settings" / "reward.toml", "reward") or {}).get("scheme", ""))

    def service_url(self, name: str) -> str:
        """The address of a service, as `rookery up` chose it; empty unless the run is up. The ports of a run
        that has ended may be another run's."""
        if not is_locked(self.path):
            return ""
        probe = str(self.read_json("endpoints.json").get("probes", {}).get(name, ""))
        return probe.removesuffix("/readyz")

    def update(self) -> dict[Path, Stamp]:
        """The files of the archive, in the order of their first entry. Files of other names are left out.

        Of a run in a store, copies the other files that are new, and lists those of the archive.

        Raises:
            SetupError, Unavailable: the store refuses, or does not answer.
        """
        for path in self.store.files(self.name) if self.store else ():
            if _COPIED_AT_ONCE.fullmatch(path.relative_to(self.path).as_posix()):
                self.fetch(path)
        if self.archive_store:
            below = self.archive.relative_to(self.archive_store.folder).parts[0]
            stamps = self.archive_store.files(below)
        else:
            stamps = {
                path: stamp
                for path in self.archive.glob("**/date=*/*.parquet")
                if (stamp := stamp_of(path)) is not None
            }
        matches = [
            (_ARCHIVE_FILE.fullmatch(path.name), path) for path in stamps if self.archive in path.parents
        ]
        ordered = sorted((int(match[1]), int(match[2]), path) for match, path in matches if match)
        return {path: stamps[path] for *_, path in ordered}

    def dead_file(self) -> Path | None:
        """The file of the archive with the run's dead letters, as it is now; None if there is none.

        Raises:
            SetupError, Unavailable: the store refuses, or does not answer.
        """
        inside = (
            self.archive
            if self.archive.name.startswith("run=")
            else self.archive / f"run={self.streams_name}"
        )
        path = inside / DEAD_FILE
        if self.archive_store:
            listed = self.archive_store.files(path.relative_to(self.archive_store.folder).parts[0])
            if path not in listed:
                return None
            self.archive_store.fetch(path)
        return path if path.exists() else None

    def fetch(self, path: Path) -> None:
        """Copies a file from its store, unless it is here already, or the run is not in a store."""
        for store in (self.store, self.archive_store):
            if store and store.folder in path.parents:
                store.fetch(path)
                return

    def token_figures(
        self, version: int | None, group: str, *, answers: int
    ) -> dict[str, list[list[float] | None]]:
        """`ratios` and `advantages` of the tokens of a group's answers in the step that made `version`.

        Lists of None where there is no list of `answers` entries: without a version, where the file is
        unreadable, and for advantages if an earlier version of Rookery wrote it.
        """
        unknown: list[list[float] | None] = [None] * answers
        line = self._line_of_figures(version, group) if version else {}
        lists = {name: line.get(name) for name in ("ratios", "advantages")}
        return {
            name: values if isinstance(values, list) and len(values) == answers else unknown
            for name, values in lists.items()
        }

    def _line_of_figures(self, version: int, group: str) -> dict[str, Any]:
        path = self.path / "ratios" / f"{policy_name(version)}.jsonl.gz"
        with suppress(*_UNREADABLE):
            self.fetch(path)
            with gzip.open(path, "rt") as file:
                for line in file:
                    if group in line and (record := dict(json.loads(line))).get("group") == group:
                        return record
        return {}

    def versions(self) -> list[int]:
        """The versions whose weights are on this disk, oldest first."""
        weights = self.path.glob("adapters/policy-v*/*model.safetensors*")
        numbers = {path.parent.name.removeprefix("policy-v") for path in weights}
        return sorted(int(number) for number in numbers if number.isdecimal())

    def newest_commit(self) -> Path | None:
        """The state of the newest version on disk."""
        return max(self.path.glob("adapters/policy-v*/state.json"), default=None)

    def trained(self) -> dict[str, int]:
        """The version that each trained group went into, by group id: from the ledgers of the commits."""
        abandoned = self._abandoned()
        states = (state for state in self._states() if state.get("number") not in abandoned)
        return self._versions_by_group(states, abandoned)

    def trained_in_vain(self) -> dict[str, int]:
        """The same for the versions that --from-version discarded, as far as they are still on disk."""
        abandoned = self._abandoned()
        folder = self.path / "adapters"
        states = (object_or_empty(folder / policy_name(version) / "state.json") for version in abandoned)
        versions = self._versions_by_group(states, abandoned)
        return {id: version for id, version in versions.items() if version in abandoned}

    def _versions_by_group(self, states: Iterable[dict[str, Any]], abandoned: range) -> dict[str, int]:
        groups_of = {
            int(step["version"]): int(step["groups"]) for step in self.metrics() if "version" in step
        }
        versions: dict[str, int] = {}
        for state in states:
            version, ledger = int(state.get("number", 0)), list(state.get("ledger", ()))
            while ledger and (version in groups_of or (abandoned and version == abandoned.stop)):
                if version not in groups_of:  # a copy, with the ledger of the version that it goes back to
                    version = abandoned.start - 1
                    continue
                count = groups_of[version]
                versions |= {entry.partition(":")[0]: version for entry in ledger[-count:]}
                version, ledger = version - 1, ledger[:-count]
        return versions

    def _abandoned(self) -> range:
        """The versions that the last --from-version discarded: up to its copy, which no step made."""
        newest = self.newest_commit()
        state = object_or_empty(newest) if newest else {}
        target = state.get("went_back_to")
        if target is None:
            return range(0)
        step_versions = {step.get("version") for step in self.metrics()}
        later = range(int(target) + 1, int(state["number"]) + 1)
        return range(
            later.start, next((version for version in later if version not in step_versions), later.start)
        )

    def dropped(self) -> dict[str, int]:
        """Groups that the trainer dropped, by reason, at the newest commit."""
        newest = self.newest_commit()
        counts = object_or_empty(newest).get("dropped", {}) if newest else {}
        return {reason: int(count) for reason, count in counts.items() if count}

    def _states(self) -> Iterator[dict[str, Any]]:
        files = sorted(self.path.glob("adapters/policy-v*/state.json"))
        for file in files:
            if file == files[-1] or int(file.parent.name.removeprefix("policy-v")) % _MILESTONE == 0:
                yield object_or_empty(file)


class Runs:
    """All runs below a folder, and those of an archive that is elsewhere. Both may be URLs."""

    def __init__(self, folder: Path | str, archive: Path | str | None = None) -> None:
        self.place = str(folder)
        self._store = Store(self.place) if is_url(self.place) else None
        self._archive_store = Store(str(archive)) if is_url(str(archive)) else None
        self.folder = self._store.folder if self._store else Path(folder)
        self.archive = (
            self._archive_store.folder if self._archive_store else Path(archive) if archive else None
        )

    def names(self) -> list[str]:
        """The names of the runs, newest first. Those in a store that were never opened come last.

        Raises:
            SetupError, Unavailable: a store refuses, or does not answer.
        """
        paths = {path.name: path for path in self.folder.glob("*") if _is_run(path)}
        if self._store:
            paths = {name: self.folder / name for name in self._store.names()}
        if self._archive_store:
            stored = self._archive_store.names()
            places = [self._archive_store.folder / name for name in stored if name.startswith("run=")]
        else:
            places = list(self.archive.glob("run=*")) if self.archive else []
        for path in places:
            paths.setdefault(path.name.removeprefix("run="), path)
        # By its folder's name, because who renames a run leaves the folders below as they are.
        for path in self.folder.glob("*/archive/run=*") if self.archive is None else ():
            paths.setdefault(path.parents[1].name, path)
        return sorted(filter(_NAME.fullmatch, paths), key=lambda name: -(stamp_of(paths[name]) or (0, 0))[1])

    def find(self, name: str) -> RunFolder:
        """The run of that name.

        Raises:
            NotFound: there is none.
            SetupError, Unavailable: as `names`.
        """
        run = self.at(name)
        if not _NAME.fullmatch(name) or not (
            run.path.is_dir() or run.archive.is_dir() or name in self.names()
        ):
            raise NotFound(f"no run {name[:80]!r} in {self.place!r}")
        return run

    def at(self, name: str) -> RunFolder:
        """The run of that name. Does not check that there is one."""
        path = self.folder / name
        archive = self.archive / f"run={name}" if self.archive else path / "archive"
        return RunFolder(
            name, path, archive, self._store, self._archive_store if self.archive else self._store
        )


def _start(recorded: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says of a start, as far as it has the right types."""
    time = recorded.get("time")
    known = isinstance(time, int | float) and 0 <= time < _LATEST_S
    texts = {name: recorded.get(name) for name in ("command", "commit", "version")}
    return {"time": time if known else None} | {
        name: text[:2000] if isinstance(text, str) else "" for name, text in texts.items()
    }


def _is_run(path: Path) -> bool:
    """Whether a folder has a training or, as a battery, answers to questions."""
    return (path / METRICS_FILE).exists() or (path / ANSWERS_FILE).exists()


def _mean(steps: Sequence[Step], key: str) -> float | None:
    values = [step[key] for step in steps if key in step]
    return sum(values) / len(values) if values else None


def _toml_table(path: Path, name: str) -> dict[str, Any] | None:
    """A table of a TOML file; None if it cannot be read."""
    try:
        return dict(tomllib.loads(path.read_text()).get(name, {}))
    except _UNREADABLE:
        return None


def _panels(steps: list[Step], panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels that have data, each with its series. Dotted ones are references."""
    if not steps:
        return []
    return [
        {
            "title": panel.title,
            "low": panel.low,
            "high": panel.high,
            "series": [
                {"key": key, "label": label_of(key), "dotted": key in panel.references, "x": x, "y": y}
                for key in (*panel.keys, *panel.references)
                for x, y in (series(steps, key),)
            ],
        }
        for panel in choose(keys_of(steps), panels=panels)
    ]

"""The folders of runs: metrics, settings, evaluations, commits, the files of the archive. Only reads."""

import fcntl
import json
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.errors import NotFound
from rookery.plots.steps import METRICS_FILE, Step, read_metrics
from rookery.plots.strength import strength_steps

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ARCHIVE_FILE = re.compile(r"(\d+)-(\d+)_.*\.parquet")
_MILESTONE = 100
"""The trainer keeps every hundredth version. A ledger has 8,192 groups, so these and the newest have all
groups, unless a step takes more than 81."""

_TAIL_BYTES = 1 << 16
"""Many times the length of a step's line."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run on this disk. `archive` is the folder of its Parquet files, which may not exist."""

    name: str
    path: Path
    archive: Path

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
        except (OSError, ValueError):
            return {}

    def strength(self) -> list[Step]:
        """The versions that were evaluated while it trained."""
        return list(strength_steps(self.path))

    def read_json(self, name: str) -> dict[str, Any]:
        """A JSON file of the folder; empty if there is none, or half of one."""
        return _object(self.path / name)

    def trainer_settings(self) -> dict[str, Any]:
        """What the trainer was started with; empty if unknown."""
        try:
            settings = tomllib.loads((self.path / "trainer.toml").read_text())
        except (OSError, ValueError):
            return {}
        return dict(settings.get("trainer", {}))

    def service_url(self, name: str) -> str:
        """The address of a service, as `rookery up` chose it; empty unless the run is up.

        The ports of a run that has ended may be another run's.
        """
        if not self._is_up():
            return ""
        probe = str(self.read_json("endpoints.json").get("probes", {}).get(name, ""))
        return probe.removesuffix("/readyz")

    def _is_up(self) -> bool:
        """Whether a process holds the lock of the run."""
        try:
            with (self.path / "lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def archive_files(self) -> list[Path]:
        """The files of the archive, in the order of their first entry. Files of other names are left out."""
        named = [(_ARCHIVE_FILE.fullmatch(path.name), path) for path in self.archive.glob("date=*/*.parquet")]
        return [path for *_, path in sorted((int(m[1]), int(m[2]), path) for m, path in named if m)]

    def newest_commit(self) -> Path | None:
        """The state of the newest version on disk."""
        return max(self.path.glob("adapters/policy-v*/state.json"), default=None)

    def trained(self) -> dict[str, int]:
        """The version that each trained group went into, by group id: from the ledgers of the commits."""
        groups_of = {
            int(step["version"]): int(step["groups"]) for step in self.metrics() if "version" in step
        }
        found: dict[str, int] = {}
        for state in self._states():
            version, ledger = int(state.get("number", 0)), list(state.get("ledger", ()))
            while ledger and (count := groups_of.get(version, 0)):
                found |= {entry.partition(":")[0]: version for entry in ledger[-count:]}
                version, ledger = version - 1, ledger[:-count]
        return found

    def dropped(self) -> dict[str, int]:
        """Groups that the trainer dropped, by reason, at the newest commit."""
        newest = self.newest_commit()
        counts = _object(newest).get("dropped", {}) if newest else {}
        return {reason: int(count) for reason, count in counts.items() if count}

    def _states(self) -> Iterator[dict[str, Any]]:
        files = sorted(self.path.glob("adapters/policy-v*/state.json"))
        for file in files:
            if file == files[-1] or int(file.parent.name.removeprefix("policy-v")) % _MILESTONE == 0:
                yield _object(file)


@dataclass(frozen=True, slots=True)
class Runs:
    """All runs below a folder, and those of an archive that is elsewhere."""

    folder: Path
    archive: Path | None = None

    def names(self) -> list[str]:
        """The names of the runs, newest first."""
        found = {path.name: path for path in self.folder.glob("*") if (path / METRICS_FILE).exists()}
        for path in [*self.folder.glob("*/archive/run=*"), *(self.archive or self.folder).glob("run=*")]:
            found.setdefault(path.name.removeprefix("run="), path)
        return sorted(filter(_NAME.fullmatch, found), key=lambda name: -found[name].stat().st_mtime)

    def find(self, name: str) -> RunFolder:
        """The run of that name.

        Raises:
            NotFound: there is none.
        """
        path = self.folder / name
        archive = (self.archive or path / "archive") / f"run={name}"
        if not _NAME.fullmatch(name) or not (path.is_dir() or archive.is_dir()):
            raise NotFound(f"no run {name[:80]!r} in {str(self.folder)!r}")
        return RunFolder(name, path, archive)


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}

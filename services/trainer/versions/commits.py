"""Commits: one immutable directory per version, with everything that is needed to resume.

    adapters/policy-v000042/
        adapter_model.safetensors  adapter_config.json   what vLLM loads: an adapter,
        model.safetensors  config.json  tokenizer.json   or a whole model
        canary.json                                      what a server should answer with it: `rookery.canary`
        optimizer.safetensors                            Adam's moments
        state.json                                       step, ledger, sha256, settings, running state
        SHA256SUMS                                       of every other file: `sha256sum --check SHA256SUMS`

A version exists once its directory has its final name; its files were synced before. Directories with any
other name are not versions.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from rookery.errors import SetupError
from rookery.failpoints import reach
from rookery.files import sync
from rookery.folder_lock import locked
from rookery.trace import PolicyVersion, policy_name
from services.trainer.versions.files import Content, file_sha256, make_folder, sync_files, write_file

STATE_VERSION = 3

_SERVED = ("model.safetensors", "adapter_model.safetensors")
"""The file whose SHA-256 identifies the version: the first that exists, because a whole model is served."""

_LEDGER_SIZE = 8192
"""Entries of the ledger, one per group: far more than Redis delivers again after it lost a second."""

_MILESTONE = 100

OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class Commit:
    """A durable version."""

    version: PolicyVersion
    folder: Path
    ledger: tuple[str, ...]
    row: Mapping[str, Any] | None = None
    """The figures of the step that made it."""
    running_state: Mapping[str, Any] | None = None
    """See `RunningState.as_json`; in the file it is named learner."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The run's count of dropped groups by reason at this commit: see `intake`."""
    went_back_to: int | None = None
    """The version that the run last went back to, if any."""

    @classmethod
    def of(cls, folder: Path, state: Mapping[str, Any]) -> Self:
        """The version in a folder with this `state.json`."""
        return cls(
            PolicyVersion(state["number"], state["sha256"]),
            folder,
            tuple(state["ledger"]),
            row=state["row"],
            running_state=state["learner"],
            dropped=state["dropped"],
            went_back_to=state["went_back_to"],
        )


@contextmanager
def sole_writer(root: Path) -> Iterator[None]:
    """Locks `root` for one trainer. Redis rejects a second trainer's writes; this lock protects the files.
    Raises `SetupError` if another trainer on this machine writes there, or the folder cannot be made."""
    make_folder(root, setting="--run-dir with")
    with locked(root, command="trainer"):
        yield


def folders(root: Path) -> dict[int, Path]:
    """Returns the directory of every version by its number, ascending."""
    matches = ((re.fullmatch(r"policy-v(\d+)", path.name), path) for path in root.glob("policy-v*"))
    versions = {int(match[1]): path for match, path in matches if match and path.is_dir()}
    return {number: path for number, path in sorted(versions.items()) if path.name == policy_name(number)}


def write(
    root: Path,
    *,
    number: int,
    files: Mapping[str, Content],
    ledger: tuple[str, ...],
    fingerprint: Mapping[str, str],
    row: Mapping[str, Any] | None = None,
    running_state: Mapping[str, Any] | None = None,
    dropped: Mapping[str, int] | None = None,
    went_back_to: int | None = None,
) -> Commit:
    """Commits version `number`: write, sync, rename, sync the parent. Raises `SetupError` if the version
    exists already."""
    final = root / policy_name(number)
    temporary = root / f".{policy_name(number)}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    sums = {name: write_file(temporary / name, content) for name, content in files.items()}
    state = {
        "state_version": STATE_VERSION,
        "number": number,
        "sha256": next(sums[name] for name in _SERVED if name in sums),
        "ledger": ledger[-_LEDGER_SIZE:],
        "fingerprint": dict(fingerprint),
        "row": row,
        "learner": running_state,
        "dropped": dict(dropped or {}),
        "went_back_to": went_back_to,
    }
    sums[STATE] = write_file(temporary / STATE, json.dumps(state, allow_nan=False).encode())
    lines = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(sums.items()))
    (temporary / SUMS).write_text(lines)
    sync_files(temporary)
    if final.exists():
        # A restart resumes from the newest version, so one trainer never makes a version twice.
        raise SetupError(f"{final} exists already: two trainers write to one run folder")
    reach("commit.written")
    temporary.rename(final)
    reach("commit.renamed")
    sync(root)
    return Commit.of(final, state)


def to_resume(
    root: Path, *, fingerprint: Mapping[str, str], from_version: int | None = None
) -> Commit | None:
    """Returns the commit to resume from: `from_version` if given, else the newest; None if there is none.

    If the run has already gone back to `from_version`, it is the newest. So a trainer that is started again
    with the same flags goes back only once. Raises `SetupError` if it is missing, damaged, or was made with
    other settings, which the message names.
    """
    versions = folders(root)
    if from_version is None or (versions and _has_gone_back(versions, to=from_version)):
        return _read(versions, max(versions), fingerprint) if versions else None
    if from_version not in versions:
        names = ", ".join(map(str, versions)) or "none"
        raise SetupError(f"--from-version {from_version}: {root} holds the versions {names}")
    return _read(versions, from_version, fingerprint, without_moments=True)


def committed(root: Path, number: int | None = None) -> tuple[Path, dict[str, Any]]:
    """Returns the folder and the state of version `number`, by default the newest. Raises `SetupError` if
    there is no such version, or its files differ from what was committed."""
    versions = folders(root)
    if not versions:
        raise SetupError(f"no run in {root.parent}: {root} has no version")
    folder = versions.get(next(reversed(versions)) if number is None else number)
    if folder is None:
        raise SetupError(f"no version {number} in {root.parent}: it has {', '.join(map(str, versions))}")
    state = _state(folder)
    _check_files(folder, without_moments=True)
    served = next((folder / name for name in _SERVED if (folder / name).is_file()), None)
    if served is None or file_sha256(served) != state["sha256"]:
        raise _DamagedError(f"{folder} has other weights than {STATE} names")
    return folder, state


def _has_gone_back(versions: Mapping[int, Path], *, to: int) -> bool:
    """Returns whether the newest undamaged version was made after the run went back to `to`."""
    for folder in reversed(list(versions.values())):
        try:
            _check_files(folder)
            return bool(_state(folder)["went_back_to"] == to)
        except SetupError:
            continue
    return False


def _read(
    versions: Mapping[int, Path],
    number: int,
    fingerprint: Mapping[str, str],
    *,
    without_moments: bool = False,
) -> Commit:
    folder = versions[number]
    try:
        state = _state(folder)
        _check_fingerprint(folder, state, fingerprint)
        _check_files(folder, without_moments=without_moments)
    except _DamagedError as error:
        earlier = max((version for version in versions if version < number), default=None)
        advice = (
            "" if earlier is None else f", or continue from the version before with --from-version {earlier}"
        )
        raise SetupError(f"{error}; restore it{advice}") from error
    if state["number"] != number:
        raise SetupError(f"{folder / STATE} is of version {state['number']}: the folder was renamed")
    return Commit.of(folder, state)


class _DamagedError(SetupError):
    """A version's files differ from what was committed."""


def _state(folder: Path) -> dict[str, Any]:
    path = folder / STATE
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
        version = state["state_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _DamagedError(f"{path}: {error!r}") from error
    if version != STATE_VERSION:
        raise SetupError(f"{folder} has the format {version!r}, not this trainer's {STATE_VERSION}")
    return state


def _check_fingerprint(folder: Path, state: Mapping[str, Any], fingerprint: Mapping[str, str]) -> None:
    saved = dict(state["fingerprint"])
    if saved.get("base") in ("fp32", "bf16"):  # of releases that refused another precision
        del saved["base"]
    changed = [
        f"{key} was {saved.get(key)!r}, is {value!r}"
        for key, value in {**dict.fromkeys(saved), **fingerprint}.items()
        if saved.get(key) != value
    ]
    if changed:
        raise SetupError(f"cannot resume {folder}: {'; '.join(changed)}")


def _check_files(folder: Path, *, without_moments: bool = False) -> None:
    """Compares every file with its SHA-256. Old versions have no optimizer state any more: see `prune`."""
    try:
        lines = (folder / SUMS).read_text().splitlines()
        sums = {name: sha256 for sha256, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError) as error:
        raise _DamagedError(f"{folder / SUMS}: {error!r}") from error
    if OPTIMIZER not in sums and not without_moments:
        raise _DamagedError(f"{folder} was committed without {OPTIMIZER}")
    for name, committed in sums.items():
        path = folder / name
        if without_moments and name == OPTIMIZER and not path.exists():
            continue
        try:
            actual = file_sha256(path)
        except OSError as error:
            raise _DamagedError(f"{path}: {error.strerror}") from error
        if actual != committed:
            raise _DamagedError(f"{path} is damaged: its SHA-256 is {actual}, committed was {committed}")


def served_files(folder: Path) -> list[Path]:
    """The files of a version that a server may read, `SHA256SUMS` last. Links are left out."""
    home = folder.parent.resolve() / folder.name
    files = {path.name for path in folder.iterdir() if path.is_file() and path.resolve() == home / path.name}
    return [
        folder / name for name in sorted(files - {OPTIMIZER, STATE}, key=lambda name: (name == SUMS, name))
    ]


def prune(root: Path, *, newest: int, keep: int) -> None:
    """Deletes what is no longer needed: old optimizer states, then old adapters.

    A served adapter must never disappear: vLLM reads an evicted one from disk again, and crashes without it.
    So `keep` is far more than the servers' slots. Version 0 and every 100th version stay. Versions that a
    killed process or a larger `keep` left behind are deleted too.
    """
    for number, folder in folders(root).items():
        if number <= newest - keep and number % _MILESTONE:
            shutil.rmtree(folder, ignore_errors=True)
        elif number <= newest - 2:
            (folder / OPTIMIZER).unlink(missing_ok=True)

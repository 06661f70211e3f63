"""Commits: one immutable directory a version, with all that resuming needs.

    adapters/policy-v000042/
        adapter_model.safetensors  adapter_config.json   what vLLM loads: an adapter,
        model.safetensors  config.json  tokenizer.json   or a whole model
        optimizer.safetensors                            Adam's moments
        state.json                                       step, ledger, sha256, settings, learner

A version exists once its directory has its final name; everything in it was synced before.
"""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rookery.errors import SetupError
from rookery.trace import PolicyVersion, policy_name
from services.trainer.versions.durable import made, sync_files, sync_folder

STATE_VERSION = 2

_SERVED = ("model.safetensors", "adapter_model.safetensors")
"""Whose SHA-256 is the version's: where a commit has a whole model, that is what is served."""

_LEDGER_SIZE = 8192
"""Entries of the ledger, one a group: far more than one batch, for a Redis that lost its last second."""

_MILESTONE = 100

OPTIMIZER = "optimizer.safetensors"

_GO_BACK = "restore it, or move the folder away to go on from the version before, if Redis knows no newer one"


@dataclass(frozen=True, slots=True)
class Commit:
    """A durable version."""

    version: PolicyVersion
    folder: Path
    ledger: tuple[str, ...]
    row: Mapping[str, Any] | None = None
    """What the step that made it measured."""
    learner: Mapping[str, Any] | None = None
    """What learning remembers beside weights and moments: see `learner`."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The run's account of dropped groups by reason, as it stood: see `intake`."""


@contextmanager
def sole_writer(root: Path) -> Iterator[None]:
    """Holds `root` for one trainer: Redis refuses a second one's words, this refuses its files.

    Raises:
        SetupError: another trainer on this machine writes there, or it cannot be made.
    """
    made(root, setting="--run-dir with")
    with (root / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SetupError(
                f"another trainer writes to {root}: stop it, or choose another --run-dir"
            ) from error
        yield


def write(
    root: Path,
    *,
    number: int,
    files: Mapping[str, bytes],
    ledger: tuple[str, ...],
    fingerprint: Mapping[str, str],
    row: Mapping[str, Any] | None = None,
    learner: Mapping[str, Any] | None = None,
    dropped: Mapping[str, int] | None = None,
) -> Commit:
    """Makes version `number` durable: write, sync, rename, sync the parent."""
    final = root / policy_name(number)
    temporary = root / f".{policy_name(number)}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    served = next(files[name] for name in _SERVED if name in files)
    version = PolicyVersion(number, hashlib.sha256(served).hexdigest())
    ledger = ledger[-_LEDGER_SIZE:]
    state = {
        "state_version": STATE_VERSION,
        "number": number,
        "sha256": version.sha256,
        "ledger": ledger,
        "fingerprint": dict(fingerprint),
        "row": row,
        "learner": learner,
        "dropped": dict(dropped or {}),
    }
    for name, data in {**files, "state.json": json.dumps(state, allow_nan=False).encode()}.items():
        (temporary / name).write_bytes(data)
    sync_files(temporary)
    if final.exists():
        # A version that was committed but never acknowledged is not made twice: see `latest`.
        raise SetupError(f"{final} exists already: two trainers write to one run folder")
    temporary.rename(final)
    sync_folder(root)
    return Commit(version, final, ledger, row, learner, dict(dropped or {}))


def latest(root: Path, *, fingerprint: Mapping[str, str]) -> Commit | None:
    """The newest committed version.

    Raises:
        SetupError: it is damaged, or was made with other settings, which are named.
    """
    folders = sorted(root.glob("policy-v*"))
    if not folders:
        return None
    folder = folders[-1]
    state = _state(folder)
    changed = [
        f"{key} was {state['fingerprint'].get(key)!r}, is {value!r}"
        for key, value in {**dict.fromkeys(state["fingerprint"]), **fingerprint}.items()
        if state["fingerprint"].get(key) != value
    ]
    if changed:
        raise SetupError(f"cannot resume {folder}: {'; '.join(changed)}")
    _check_files(folder, state["sha256"])
    version = PolicyVersion(state["number"], state["sha256"])
    return Commit(version, folder, tuple(state["ledger"]), state["row"], state["learner"], state["dropped"])


def _state(folder: Path) -> dict[str, Any]:
    path = folder / "state.json"
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
        version = state["state_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{path}: {error!r}; {_GO_BACK}") from error
    if version != STATE_VERSION:
        raise SetupError(f"cannot resume {folder}: its format is {version!r}, this trainer's {STATE_VERSION}")
    return state


def _check_files(folder: Path, sha256: str) -> None:
    served = next((folder / name for name in _SERVED if (folder / name).exists()), None)
    if served is None:
        raise SetupError(f"{folder} lacks its weights ({' or '.join(_SERVED)}); {_GO_BACK}")
    with served.open("rb") as weights:
        found = hashlib.file_digest(weights, "sha256").hexdigest()
    if found != sha256:
        raise SetupError(f"{served} is damaged: its SHA-256 is {found}, committed was {sha256}; {_GO_BACK}")
    if not (folder / OPTIMIZER).exists():
        raise SetupError(f"{folder} lacks {OPTIMIZER}; {_GO_BACK}")


def prune(root: Path, *, newest: int, keep: int) -> None:
    """Deletes what nobody can name any more: old optimizer states, then old adapters.

    A served adapter must never vanish: vLLM re-reads an evicted one from disk, and dies without it.
    `keep` therefore exceeds the servers' slots by far; version 0 and milestones stay. What a kill or a larger
    `keep` left goes too.
    """
    for folder in root.glob("policy-v*"):
        number = int(folder.name.removeprefix("policy-v"))
        if number <= newest - keep and number % _MILESTONE:
            shutil.rmtree(folder, ignore_errors=True)
        elif number <= newest - 2:
            (folder / OPTIMIZER).unlink(missing_ok=True)

"""The folder of a run: its name, settings, held-out positions and the addresses of its services."""

import json
import os
import random
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from launcher.settings import SETTINGS_FILE, UpSettings
from rookery import __version__
from rookery.errors import SetupError, validation_message
from rookery.files import object_or_empty, read_object, replace_file
from rookery.masking import mask_setting, mask_values
from rookery.mlflow_run import git_commit
from rookery.model_defaults import model_defaults
from rookery.origins import Origins

S = TypeVar("S", bound=UpSettings)

ENDPOINTS_FILE = "endpoints.json"
HELD_OUT_FILE = "heldout.jsonl"
MANIFEST_FILE = "run.json"
"""In the folder of a run, its id and its starts."""
_STARTS = 100
"""The most starts that a manifest keeps: the first one and the newest ones."""

_ADJECTIVES = "bold brisk calm clever daring eager frank keen lively patient quick sharp steady swift wise"
_NOUNS = "bishop castle endgame fianchetto file gambit king knight opening pawn queen rank rook tempo"


def new_run_id() -> str:
    """A new name that sorts by time, for example `20260401-1530-keen-knight`."""
    words = random.choice(_ADJECTIVES.split()), random.choice(_NOUNS.split())
    return "-".join((time.strftime("%Y%m%d-%H%M"), *words))


def settle_settings(requested: S) -> S:
    """The settings of the run. A resumed run keeps its settings, except for those given now.

    A new run has the style and the length of answers of its model, unless they are given.

    Each assignment in `set` is kept until the same setting is assigned again, and ignored while others leave
    it without effect. A run without a name gets a new one. Raises `SetupError` if the settings file of the
    run cannot be read, or has a wrong value; or the model is not here, or nothing tells its style.
    """
    stored = _stored_settings(requested)
    if not stored:
        requested = requested.model_copy(update=_of_model(requested))
    if not requested.run:
        return requested.model_copy(update={"run": new_run_id()})
    explicit = requested.model_dump(include=requested.model_fields_set, mode="json")
    assigned = {text.partition("=")[0]: text for text in (*stored.get("set", ()), *explicit.get("set", ()))}
    try:
        settled = type(requested).model_validate({**stored, **explicit, "set": tuple(assigned.values())})
    except ValidationError as error:
        path = requested.runs_dir / requested.run / SETTINGS_FILE
        raise SetupError(f"{str(path)!r}: {validation_message(error.errors())}") from error
    settled._kept = frozenset(assigned.values()) - frozenset(explicit.get("set", ()))
    return settled


def _of_model(requested: UpSettings) -> dict[str, Any]:
    """The settings that are not given and that the model has."""
    missing = [name for name in ("style", "max_tokens") if getattr(requested, name) is None]
    if not missing:
        return {}
    defaults = model_defaults(requested.model, style=requested.shown_style, download=True)
    if requested.shown_style is None and defaults.style is None:
        raise SetupError(
            f"{requested.model!r} has neither a manifest that names its prompt style nor a chat template: "
            "choose a --style, such as game-san for a model of games, or fen-legal-san"
        )
    return {name: getattr(defaults, name) for name in missing}


def kept_origins(requested: UpSettings) -> Origins:
    """The origin (`run NAME`) of each setting that a resumed run keeps."""
    return dict.fromkeys(_stored_settings(requested), f"run {requested.run}")


def _stored_settings(requested: UpSettings) -> dict[str, Any]:
    """The stored settings of the run to resume; empty for a new run."""
    if not requested.run:
        return {}
    stored = stored_settings(requested.runs_dir / requested.run)
    not_kept = {"steps", "minutes", "from_version"}  # how long to go on, and whether to go back first
    return {k: v for k, v in stored.items() if k in type(requested).model_fields and k not in not_kept}


def stored_settings(run_dir: Path) -> dict[str, Any]:
    """The settings that a run was started with last; empty if there are none. Raises `SetupError` if the file
    cannot be read."""
    path = run_dir / SETTINGS_FILE
    return read_object(path) if path.exists() else {}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces a file atomically. Only the current user can read the new file."""
    fresh = path.with_suffix(".tmp")
    fresh.unlink(missing_ok=True)  # left by a killed process, perhaps with another file mode
    with open(fresh, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(json.dumps(value, indent=2) + "\n")
    fresh.replace(path)


def write_held_out(path: Path, *, source: str, count: int, seed: int) -> Path:
    """Writes positions of the held-out games of `source`, which no feed uses, and returns the file. Raises
    `SetupError` if `rookery data sample` failed; the message quotes it."""
    command = [sys.executable, "-m", "chess_datasets", "sample", "--source", source]
    command += ["--split", "heldout", "--distinct", "--count", str(count), "--seed", str(seed)]
    # In a group of its own: only this process handles Ctrl-C.
    done = subprocess.run(command, capture_output=True, text=True, check=False, process_group=0)
    if done.returncode:
        message = done.stderr.strip().removeprefix("error: ")
        raise SetupError(f"no held-out positions: {message} (--source, or fewer positions)")
    replace_file(path, done.stdout.encode())  # an evaluation that goes on may be reading it
    return path


def recorded_name(run_dir: Path) -> str:
    """The name under which Redis knows the run of a folder since its first start; empty for a new run."""
    name = object_or_empty(run_dir / ENDPOINTS_FILE).get("run")
    return name if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) else ""


def record_start(run_dir: Path) -> None:
    """Adds a start to the run's manifest: when, by which command, of which commit and version of Rookery. The
    first one gives the run its id, which it keeps where its folder is renamed or copied."""
    manifest = object_or_empty(run_dir / MANIFEST_FILE)
    words = [mask_values(mask_setting(word)) for word in sys.argv[1:]]
    start = {
        "time": time.time(),
        "command": shlex.join(["rookery", *words]),
        "commit": git_commit(),
        "version": __version__,
    }
    starts = manifest.get("starts")
    starts = starts if isinstance(starts, list) else []
    starts = [*starts[:1], *starts[1:][2 - _STARTS :]]
    id = manifest.get("id")
    id = id if isinstance(id, str) and id else secrets.token_hex(8)
    write_json(run_dir / MANIFEST_FILE, {"id": id, "starts": [*starts, start]})


def latest_endpoints(runs_dir: Path) -> Path | None:
    """The most recent endpoints file of all runs, or None."""
    files = sorted(runs_dir.glob(f"*/{ENDPOINTS_FILE}"), key=lambda path: path.stat().st_mtime)
    return files[-1] if files else None

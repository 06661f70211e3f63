"""Files that others read while they are written, or that must survive a power cut; JSON objects; paths
below the home."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rookery.errors import QUOTED_CHARS, SetupError

P = TypeVar("P", str, Path)


def expanded(path: P) -> P:
    """The path with ~/ expanded, which shells leave in `--out=~/runs`; as it is if there is no home."""
    if str(path).startswith("~/"):
        with suppress(RuntimeError):
            return type(path)(Path(path).expanduser())
    return path


def replace_file(path: Path, content: bytes) -> None:
    """Replaces the file atomically: writes `content` to a temporary file beside `path`, then renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Syncs a file, or the entries of a folder, so that files created, renamed or deleted in it stay so."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises `SetupError` if there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise SetupError(f"{path}: {error}") from error
    if not isinstance(value, dict):
        raise SetupError(f"{path}: {value!r:.{QUOTED_CHARS}} is not a JSON object")
    return value


def object_or_empty(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none, or it is damaged."""
    try:
        return read_object(path)
    except SetupError:
        return {}

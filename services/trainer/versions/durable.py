"""Files that outlive a power cut: what is renamed into place has reached the disk before."""

import os
from pathlib import Path

from rookery.errors import SetupError


def made(folder: Path, *, setting: str) -> Path:
    """The folder, made where it is missing.

    Raises:
        SetupError: it cannot be; `setting` is what named it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"{setting} {folder}: {error.strerror}") from error
    return folder


def sync_folder(folder: Path) -> None:
    """Names in a folder: what was made, renamed or deleted in it."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_files(folder: Path) -> None:
    """Every file of a folder without folders in it, and their names."""
    for path in folder.iterdir():
        _sync(path, os.O_RDONLY)
    sync_folder(folder)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

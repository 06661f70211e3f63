"""Files that survive a power cut: they are synced to disk before they are renamed into place."""

import os
from pathlib import Path

from rookery.errors import SetupError


def made(folder: Path, *, setting: str) -> Path:
    """Returns the folder; makes it if it is missing.

    Raises:
        SetupError: it cannot be made. `setting` is the name of the setting, for the message.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"{setting} {folder}: {error.strerror}") from error
    return folder


def sync_folder(folder: Path) -> None:
    """Syncs the entries of a folder: what was made, renamed or deleted in it."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_files(folder: Path) -> None:
    """Syncs every file of a folder, then its entries. The folder must not contain folders."""
    for path in folder.iterdir():
        _sync(path, os.O_RDONLY)
    sync_folder(folder)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

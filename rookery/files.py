"""Files that other processes read while they are written, or that must survive a power cut."""

import os
from pathlib import Path


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

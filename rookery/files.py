"""Files that other processes read while they are written."""

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

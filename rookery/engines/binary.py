"""Finds Stockfish on this machine."""

import os
import shutil
from pathlib import Path

from rookery.errors import SetupError

_USUAL_PLACES = ("/usr/games", "/usr/local/games", "/usr/local/bin", "/opt/homebrew/bin")


def find_engine(path: Path | None, *, setting: str) -> Path:
    """The Stockfish binary: `path` if given, else the first on the PATH or in the usual directories.

    Raises:
        SetupError: there is none; the message names `setting` or says how to install Stockfish.
    """
    if path is not None:
        if not os.access(path, os.X_OK) or path.is_dir():
            raise SetupError(f"{setting} is no program: {str(path)!r}")
        return path
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_USUAL_PLACES))
    if found := shutil.which("stockfish", path=places):
        return Path(found)
    raise SetupError(
        "no Stockfish on this machine: type `sudo apt-get install stockfish` (Debian, Ubuntu) or "
        f"`brew install stockfish` (macOS), or set {setting} to the binary"
    )

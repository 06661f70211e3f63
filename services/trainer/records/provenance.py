"""What made a run: Rookery's version, and the commit where it runs from a repository."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import rookery

_ROOT = Path(rookery.__file__).parents[1]


def tags() -> Mapping[str, str]:
    """Tags for MLflow, which knows the name of the commit's."""
    commit = _commit()
    return {
        "rookery.version": rookery.__version__,
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }


def _commit() -> str:
    """Ends in `-dirty` where files have changed since; empty without a repository of Rookery's own."""
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()

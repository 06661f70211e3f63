"""The code that made a run: Rookery's version, and the git commit if it runs from a repository."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import rookery

_ROOT = Path(rookery.__file__).parents[1]


def tags() -> Mapping[str, str]:
    """Returns tags for MLflow. `mlflow.source.git.commit` is a name that MLflow itself uses."""
    commit = _commit()
    return {
        "rookery.version": rookery.__version__,
        **({"mlflow.source.git.commit": commit} if commit else {}),
    }


def _commit() -> str:
    """Returns the commit, with `-dirty` if files have changed since; empty outside Rookery's repository."""
    if not (_ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()

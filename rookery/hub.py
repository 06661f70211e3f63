"""Finds the files of a model: a directory, or a snapshot of a Hugging Face id.

The Hub's cache is read directly. `huggingface_hub` is needed only to download.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from rookery.errors import SetupError

CONFIG_FILE = "config.json"
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"

_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.safetensors")
_OTHERS = ("*/*", "consolidated*")
"""Copies of the same weights in formats of other programs."""


def model_folder(model: str) -> Path:
    """The directory of `model`: the path itself, or the snapshot of that id, downloaded if needed.

    Raises:
        SetupError: it is neither a model directory nor an id that can be downloaded.
    """
    folder = Path(model)
    if (folder / CONFIG_FILE).is_file():
        return folder
    if not _is_id(model):
        raise SetupError(f"no model in {model!r} (--model): it has no {CONFIG_FILE}")
    return cached(model) or _fetched(model)


def cached(model: str) -> Path | None:
    """The cached snapshot of the id's main revision; None if its configuration or a weight is missing."""
    repository = cache_dir() / f"models--{model.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    snapshot = repository / "snapshots" / revision
    names = [CONFIG_FILE, *_weights(snapshot)]
    return snapshot if all((snapshot / name).is_file() for name in names) else None


def _fetched(model: str) -> Path:
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, allow_patterns=list(_FILES), ignore_patterns=list(_OTHERS)))
    except (ImportError, OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise SetupError(
            f"no model {model!r} (--model): it is no directory, it is not in {cache_dir()}, and Hugging Face "
            f"did not provide it ({why}); on a machine with a network: hf download {model}"
        ) from error


def cache_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The cache directory of huggingface_hub, from its environment variables in their order of precedence."""
    if own := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return Path(own).expanduser()
    general = environment.get("XDG_CACHE_HOME") or "~/.cache"
    home = environment.get("HF_HOME") or f"{general}/huggingface"
    return Path(home).expanduser() / "hub"


def _is_id(model: str) -> bool:
    """Whether `model` looks like an `owner/name` id and not like a path."""
    path = Path(model)
    return not (path.is_absolute() or path.exists() or path.parent.is_dir()) and model.count("/") == 1


def _weights(snapshot: Path) -> list[str]:
    """The names of the weight files: one file, or those that the index lists."""
    try:
        return sorted(set(json.loads((snapshot / _INDEX).read_text())["weight_map"].values()))
    except FileNotFoundError:
        return [_WEIGHTS]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise SetupError(f"{snapshot / _INDEX}: {error!r}") from error

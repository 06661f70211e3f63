"""The training data of `sft`, `reward-model` and `dpo`: chats and pairs, from files and URLs."""

from pathlib import Path

from rookery.remote import local_file
from services.trainer.versions.files import read_object

_MANIFEST = "manifest.json"


def local_path(place: str) -> Path:
    """Returns a path unchanged, or the local copy of a URL such as `s3://bucket/x.parquet` and its manifest.
    Raises `SetupError` if there is no such file, or its protocol is not supported; `Unavailable` if the store
    does not answer."""
    return local_file(place, _MANIFEST)


def data_manifest(place: str) -> Path:
    """Returns the path of the manifest that `rookery data` writes beside a file. It need not exist."""
    return local_path(place).with_name(_MANIFEST)


def data_style(place: str) -> str:
    """Returns the prompt style of the data, from their manifest; empty if it names none. Raises
    `InvalidInput` if the manifest is damaged."""
    path = data_manifest(place)
    manifest = read_object(path) if path.exists() else {}
    terms = manifest.get("settings") or manifest.get("terms", {})
    recipe = terms.get("recipe", terms)
    task = recipe.get("task", "engine-moves")  # the other tasks have prompts of their own
    return {"engine-moves": str(recipe.get("style", "")), "rookworld": "rookworld"}.get(task, "")

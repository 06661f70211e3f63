"""The training data of `sft`, `reward-model` and `dpo`: chats and pairs, from files and URLs."""

import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from rookery.errors import SetupError
from rookery.remote import cache_folder, is_url, open_store, store_faults
from services.trainer.versions.files import read_object

logger = logging.getLogger(__name__)


@cache
def local_path(place: str) -> Path:
    """Returns a path unchanged, or the local copy of a URL such as `s3://bucket/x.parquet`.

    Copies are in `$XDG_CACHE_HOME/rookery`, in a folder named by the store's identity of the file. A file
    that has changed has another identity and is copied again. Each process queries the store once. A
    `manifest.json` beside the remote file is copied too.

    Raises:
        SetupError: there is no such file, or its protocol is not supported.
        Unavailable: the store does not answer.
    """
    if not is_url(place):
        return Path(place)
    with store_faults(place):
        files, remote = open_store(place)
        folder, _, name = remote.rpartition("/")
        if "/" not in remote:
            raise SetupError(f"--data {place} names a bucket, but no file in it")
        copy: Path = cache_folder() / files.ukey(remote)[:32] / name
        if not copy.exists():
            logger.info("copying %s (%.1f MB) to %s", place, files.size(remote) / 1e6, copy)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                files.get_file(f"{folder}/manifest.json", str(copy.with_name("manifest.json")))
            part = copy.with_name(f".{name}.{os.getpid()}")
            files.get_file(remote, str(part))
            part.rename(copy)
    return copy


def data_manifest(place: str) -> Path:
    """Returns the path of the manifest that `rookery data` writes beside a file. It need not exist."""
    return local_path(place).with_name("manifest.json")


def data_style(place: str) -> str:
    """Returns the prompt style of the data, from their manifest; empty if it names none.

    Raises:
        InvalidInput: the manifest is damaged.
    """
    path = data_manifest(place)
    manifest = read_object(path) if path.exists() else {}
    terms = manifest.get("settings") or manifest.get("terms", {})
    recipe = terms.get("recipe", terms)
    task = recipe.get("task", "engine-moves")  # the other tasks have prompts of their own
    return {"engine-moves": str(recipe.get("style", "")), "rookworld": "rookworld"}.get(task, "")

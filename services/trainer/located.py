"""Where the files of a model are: a directory, or what the Hugging Face Hub has for an id."""

from pathlib import Path

from huggingface_hub import snapshot_download

from rookery.errors import SetupError
from rookery.hub import CONFIG_FILE, cached

_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.safetensors")
_OTHERS = ("*/*", "consolidated*")
"""The same weights once more, for other programs."""


def located(model: Path) -> Path:
    """The directory of a model: its own, or the snapshot of an id, which is fetched where it is not here.

    Raises:
        SetupError: it is no model directory, and nothing that can be fetched; the message says how to.
    """
    if (model / CONFIG_FILE).is_file():
        return model
    name = str(model)
    if model.is_absolute() or model.exists() or model.parent.is_dir():
        raise SetupError(f"no model in {name!r} (--model): it has no {CONFIG_FILE}")
    if (folder := cached(name)) is not None:
        return folder
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES), ignore_patterns=list(_OTHERS)))
    except (OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0]
        raise SetupError(
            f"no model {name!r} (--model): no directory, and not to be had from Hugging Face ({why}); "
            f"where there is a network: hf download {name} --local-dir models/{model.name}"
        ) from error

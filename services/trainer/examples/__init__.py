"""The training data of `sft`, `reward-model` and `dpo`: chats and pairs, from files and URLs."""

import math
from collections.abc import Sequence
from pathlib import Path

from rookery.errors import InvalidInput
from rookery.remote import local_file
from services.trainer.versions.files import read_object

_MANIFEST = "manifest.json"

MAX_LEFT_OUT = 0.1
"""Most of the examples that may be longer than --max-length."""


def local_path(place: str) -> Path:
    """Returns a path unchanged, or the local copy of a URL such as `s3://bucket/x.parquet` and its manifest.

    Raises:
        SetupError: there is no such file, or its protocol is not supported.
        Unavailable: the store does not answer.
    """
    return local_file(place, _MANIFEST)


def data_manifest(place: str) -> Path:
    """Returns the path of the manifest that `rookery data` writes beside a file. It need not exist."""
    return local_path(place).with_name(_MANIFEST)


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


def quantile(values: Sequence[int], share: float) -> int:
    """Returns the smallest of `values` that at least this share of them do not exceed.

    >>> [quantile([5, 1, 2, 4, 3], share) for share in (0.5, 0.8, 0.99)]
    [3, 4, 5]
    """
    return sorted(values)[math.ceil(share * len(values)) - 1]


def check_lengths(lengths: Sequence[int], *, max_length: int, path: Path) -> None:
    """Checks that most examples have at most `max_length` tokens.

    Raises:
        InvalidInput: more than `MAX_LEFT_OUT` of them are longer. The message has the lengths.
    """
    longer = sum(length > max_length for length in lengths)
    if longer > MAX_LEFT_OUT * len(lengths):
        half, most, nearly_all = (quantile(lengths, share) for share in (0.5, 0.9, 0.99))
        raise InvalidInput(
            f"{longer} of {len(lengths)} examples in {path} ({longer / len(lengths):.0%}) do not fit into "
            f"--max-length {max_length}. Half of them have at most {half} tokens, 90% at most {most}, 99% at "
            f"most {nearly_all}, the longest {max(lengths)}: --max-length {nearly_all} keeps 99%"
        )

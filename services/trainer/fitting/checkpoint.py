"""Checkpoints of a run on examples: trained weights and Adam's moments as safetensors, never pickle."""

import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from rookery.errors import InvalidInput
from services.trainer import optimizer as adam
from services.trainer.versions import files
from services.trainer.versions.files import read_object, sync_files, sync_folder

logger = logging.getLogger(__name__)

_NAMES = ("checkpoint", "checkpoint.old")

Weights = Mapping[str, torch.nn.Parameter]
"""The trained parameters, by name."""


def trained(model: torch.nn.Module) -> Weights:
    """Returns the parameters that are trained; tied ones once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def save(
    out: Path,
    weights: Weights,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    fingerprint: Mapping[str, str],
) -> None:
    """Writes the checkpoint of `step`. It is renamed into place when it is complete."""
    temporary, final, old = out / "checkpoint.tmp", out / "checkpoint", out / "checkpoint.old"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    save_file(tensors, temporary / "model.safetensors")
    files.write_file(temporary / adam.FILE, adam.dump(optimizer))
    (temporary / "state.json").write_text(json.dumps({"step": step, "fingerprint": dict(fingerprint)}))
    sync_files(temporary)
    # A kill between the two renames leaves the old checkpoint as checkpoint.old, where `restore` finds it.
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    temporary.rename(final)
    sync_folder(out)


def restore(
    out: Path, weights: Weights, optimizer: torch.optim.Optimizer, *, fingerprint: Mapping[str, str]
) -> int:
    """Loads the newest checkpoint and returns its step; 0 if there is none.

    Raises:
        InvalidInput: it is damaged, or was made with other settings, which the message names.
    """
    folder = next((out / name for name in _NAMES if (out / name).exists()), None)
    if folder is None:
        return 0
    state = read_object(folder / "state.json", "step", "fingerprint")
    then = state["fingerprint"]
    changed = [
        f"{name} was {then.get(name)!r}, is {fingerprint.get(name)!r}"
        for name in sorted({*then, *fingerprint})
        if then.get(name) != fingerprint.get(name)
    ]
    if changed:
        raise InvalidInput(
            f"{folder} was made with other settings ({'; '.join(changed)}): choose another --out or delete it"
        )
    with _readable(folder / "model.safetensors") as path, torch.no_grad():
        tensors = load_file(path)
        for name, weight in weights.items():
            weight.copy_(tensors[name])
    with _readable(folder / adam.FILE):
        adam.restore(optimizer, folder)
    logger.info("resumed from step %d of %s", state["step"], folder)
    return int(state["step"])


@contextmanager
def _readable(path: Path) -> Iterator[Path]:
    try:
        yield path
    except (OSError, SafetensorError, LookupError, RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"{path} is missing or damaged ({error}): delete {path.parent} to go on from the checkpoint "
            "before it, or from the beginning"
        ) from error


def clear(out: Path) -> None:
    """Deletes the checkpoints of a finished run."""
    for name in (*_NAMES, "checkpoint.tmp"):
        shutil.rmtree(out / name, ignore_errors=True)

"""Start and end of a run on examples: device, model and adapter, and the directory of the result."""

import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from rookery.errors import InvalidInput
from rookery.hub import model_folder
from services.trainer.distributed.placement import device_named
from services.trainer.examples.data_file import local, sha256
from services.trainer.fitting import checkpoint
from services.trainer.model.base_model import check_length
from services.trainer.model.lora import adapter_files, with_adapter
from services.trainer.settings import FitSettings
from services.trainer.versions import commits
from services.trainer.versions.files import make_folder, sync_files, sync_folder

logger = logging.getLogger(__name__)


def prepare(settings: FitSettings) -> Path:
    """Sets the seed and the number of threads, and returns the folder of the model to start from.

    Raises:
        InvalidInput: the run is already finished.
        SetupError: there is no such model, or the folder `out` cannot be made.
    """
    finished = make_folder(settings.out, setting="--out") / "model"
    if finished.exists():
        raise InvalidInput(f"{finished} exists: it is finished; choose another --out or delete it")
    folder = model_folder(str(settings.model))
    torch.manual_seed(settings.seed)
    disable_progress_bar()  # ours is in `log`
    if settings.threads:
        torch.set_num_threads(settings.threads)
    return folder


def fingerprint(settings: FitSettings) -> dict[str, str]:
    """Returns what must not change when a run resumes. For data it is the SHA-256, not the path."""
    places = {name: getattr(settings, name, None) for name in ("data", "eval_data")}
    files = {name: f"SHA-256 {sha256(local(place))}" for name, place in places.items() if place}
    return settings.fingerprint() | files


def base_dtype(settings: FitSettings) -> torch.dtype:
    """Returns the type of the base: bfloat16 if it is frozen, on a GPU, with `bf16`; otherwise float32."""
    frozen = settings.lora_rank and settings.bf16 and device_of(settings).type == "cuda"
    return torch.bfloat16 if frozen else torch.float32


def ready(model: Any, settings: FitSettings, *, trained_whole: tuple[str, ...] = ()) -> Any:
    """Returns the model on its device in training mode, with an adapter if the settings ask for one.

    Raises:
        SetupError: `max_length` is more than the model's positions, or `lora_targets` do not fit the model.
    """
    check_length(model, settings.max_length, name=f"--max-length {settings.max_length}")
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if settings.lora_rank:
        model = with_adapter(
            model,
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            targets=settings.lora_targets,
            trained_whole=trained_whole,
        )
    return model.to(device_of(settings)).train()


def device_of(settings: FitSettings) -> torch.device:
    """Returns the device of the run."""
    return device_named(settings.device)


def export(
    model: Any,
    tokenizer: Any,
    settings: FitSettings,
    *,
    beside: Callable[[Path], Mapping[str, bytes]] | None = None,
) -> Path:
    """Writes the model, with any adapter merged, to `model/` and returns that folder.

    The folder appears only when it is complete. `beside` gets the folder under its temporary name and returns
    further files for it. An adapter is also written as `adapters/policy-v000001`, for vLLM's `/reload`.
    """
    if settings.lora_rank:
        _commit_adapter(model, settings)
    final, temporary = settings.out / "model", settings.out / "model.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    whole = model.merge_and_unload() if settings.lora_rank else model
    whole.to(getattr(torch, settings.save_dtype)).save_pretrained(temporary)
    tokenizer.save_pretrained(temporary)
    for name, data in (beside(temporary) if beside else {}).items():
        (temporary / name).write_bytes(data)
    sync_files(temporary)
    temporary.rename(final)
    sync_folder(settings.out)
    checkpoint.clear(settings.out)
    logger.info("wrote %s", final)
    return final


def _commit_adapter(model: Any, settings: FitSettings) -> None:
    root = settings.out / "adapters"
    shutil.rmtree(root, ignore_errors=True)  # left by a run that was killed before it wrote the model
    commits.write(
        root,
        number=1,
        files=adapter_files(model, base_model=str(settings.model)),
        ledger=(),
        fingerprint=fingerprint(settings),
    )

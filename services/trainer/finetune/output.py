"""The output of `sft`, `dpo` and `reward-model`: metrics.jsonl, log lines, checkpoints, the exported model.

Checkpoints hold the trained weights and Adam's moments as safetensors, never pickle.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Self

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError
from safetensors.torch import load_file

from rookery import __version__
from rookery.config.finetune import FinetuneSettings
from rookery.errors import InvalidInput, RookeryError, changed_settings
from rookery.files import replace_file, sync
from rookery.hub import MANIFEST_FILE, identity, model_folder, prompt_style, read_manifest
from rookery.masking import mask_setting
from rookery.plots.steps import METRICS_FILE
from rookery.remote import upload
from services.trainer.distributed.process_group import is_rank_zero
from services.trainer.examples import data_style, local_path
from services.trainer.examples.survey import Survey
from services.trainer.model.lora import adapter_files
from services.trainer.training import optimizer as adam
from services.trainer.versions import commits
from services.trainer.versions.files import (
    StoredTensor,
    TensorFile,
    file_sha256,
    read_object,
    save_model,
    sync_files,
    write_file,
)

logger = logging.getLogger(__name__)

_LINE_EVERY = 50
"""Steps between log lines if no terminal shows the progress bar."""

_RESULTS = (METRICS_FILE, "report.json", "calibration.png", "adapters", "model")
"""What `--store` copies, as far as it exists."""

_CHECKPOINTS = ("checkpoint", "checkpoint.old")

Weights = Mapping[str, torch.nn.Parameter]
"""The trained parameters, by name."""


class MetricsLog:
    """Appends rows to `metrics.jsonl`. Rows after step `start`, from a killed run, are deleted first."""

    def __init__(self, name: str, out: Path, *, start: int, steps: int) -> None:
        self._steps = steps
        path = out / METRICS_FILE
        _delete_rows_after(path, start)
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._progress = Progress(*columns, TimeRemainingColumn())
        self._task = self._progress.add_task("", total=steps, completed=start)
        self._file = path.open("a", buffering=1)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._file.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Writes the row of one step and advances the progress bar."""
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._progress.update(self._task, advance=1, description=f"loss {row['loss']:.3f}")
        evaluated = {name: value for name, value in row.items() if name.startswith("eval_")}
        if evaluated or (not self._progress.console.is_terminal and row["step"] % _LINE_EVERY == 0):
            figures = ", ".join(f"{name} {value:.4f}" for name, value in evaluated.items())
            logger.info("step %d of %d: loss %.4f %s", row["step"], self._steps, row["loss"], figures)


def _delete_rows_after(path: Path, start: int) -> None:
    if not path.exists():
        return
    *lines, last = path.read_text().split("\n")  # after a kill the last line may be incomplete
    del last
    rows = [line for number, line in enumerate(lines, start=1) if _step_of(line, f"{path}:{number}") <= start]
    replace_file(path, "".join(f"{line}\n" for line in rows).encode())


def _step_of(line: str, place: str) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, LookupError, TypeError) as error:
        raise InvalidInput(f"{place}: not the row of a step: {line[:120]!r}") from error


def fingerprint(settings: FinetuneSettings) -> dict[str, str]:
    """Returns the settings that must not change when a run resumes. Data count by SHA-256, not by path."""
    places = {name: getattr(settings, name, None) for name in ("data", "eval_data")}
    hashes = {name: f"SHA-256 {file_sha256(local_path(place))}" for name, place in places.items() if place}
    return settings.fingerprint() | hashes


def trained_parameters(model: torch.nn.Module) -> Weights:
    """Returns the parameters that are trained; tied ones once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def save_checkpoint(
    out: Path,
    weights: Weights,
    optimizer: torch.optim.Optimizer,
    *,
    step: int,
    fingerprint: Mapping[str, str],
) -> None:
    """Writes the checkpoint of `step`. It is renamed into place when it is complete."""
    temporary, final, previous = out / "checkpoint.tmp", out / "checkpoint", out / "checkpoint.old"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    tensors = TensorFile({name: StoredTensor.of(weight) for name, weight in weights.items()})
    write_file(temporary / "model.safetensors", tensors)
    write_file(temporary / adam.FILE, adam.dump(optimizer))
    (temporary / "state.json").write_text(json.dumps({"step": step, "fingerprint": dict(fingerprint)}))
    sync_files(temporary)
    # A kill between the two renames leaves checkpoint.old, which `restore_checkpoint` finds.
    shutil.rmtree(previous, ignore_errors=True)
    if final.exists():
        final.rename(previous)
    temporary.rename(final)
    sync(out)


def check_resumable(settings: FinetuneSettings) -> None:
    """Raises `InvalidInput` if the newest checkpoint was made with other settings, which the message names,
    or is damaged."""
    if (folder := _newest_checkpoint(settings.out)) is None:
        return
    state = read_object(folder / "state.json", "step", "fingerprint")
    if changes := changed_settings(state["fingerprint"], fingerprint(settings)):
        raise InvalidInput(
            f"{folder} was made with other settings ({changes}): choose another --out or delete it"
        )


def _newest_checkpoint(out: Path) -> Path | None:
    return next((out / name for name in _CHECKPOINTS if (out / name).exists()), None)


def restore_checkpoint(out: Path, weights: Weights, optimizer: torch.optim.Optimizer) -> int:
    """Loads the newest checkpoint and returns its step; 0 if there is none. Raises `InvalidInput` if it is
    damaged."""
    if (folder := _newest_checkpoint(out)) is None:
        return 0
    state = read_object(folder / "state.json", "step", "fingerprint")
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
            f"{path} is missing or damaged ({error}): delete {path.parent} to resume from the checkpoint "
            "before it, or to start again"
        ) from error


def style_of(settings: FinetuneSettings) -> str | None:
    """Returns the prompt style of the data: `--style`, or that of their manifest, or of the base's. Players
    are asked in it. Logs a warning if none of them names one."""
    style: str | None = getattr(settings, "style", None) or data_style(settings.data)
    style = style or prompt_style(model_folder(str(settings.model)))
    if not style:
        logger.warning(
            "neither --style nor a manifest beside %s names the style of the prompts, so the manifest of the "
            "model will not, either",
            mask_setting(settings.data),
        )
    return style


def model_manifest(settings: FinetuneSettings, *, style: str | None, answers: Survey) -> dict[str, bytes]:
    """Returns the manifest of the trained model, by its file name. It has the prompt style, what the answers
    are like, the base, the data and the settings."""
    base = str(settings.model)
    manifest = {
        "style": style,
        "box": answers.box or read_manifest(model_folder(base)).get("box"),
        "answer_tokens": answers.answer_tokens,
        "base": str(mask_setting(identity(base))),
        "data": {"path": mask_setting(settings.data), "sha256": file_sha256(local_path(settings.data))},
        "trained": {name: mask_setting(value) for name, value in settings.fingerprint().items()},
        "made_with": {
            "rookery": __version__,
            **{name: installed(name) for name in ("torch", "transformers")},
        },
    }
    return {MANIFEST_FILE: json.dumps(manifest, indent=2).encode() + b"\n"}


def export_model(
    model: Any,
    tokenizer: Any,
    settings: FinetuneSettings,
    *,
    extra_files: Callable[[Path], Mapping[str, bytes]],
) -> Path:
    """Writes the model, with any adapter merged, to `model/` and returns that folder.

    The folder appears only when it is complete. `extra_files` gets the folder under its temporary name and
    returns further files for it. An adapter is also written as `adapters/policy-v000001`, for `/reload`. Of
    several processes, only rank 0 writes.
    """
    if not is_rank_zero():
        return settings.out / "model"
    if settings.lora_rank:
        root = settings.out / "adapters"
        shutil.rmtree(root, ignore_errors=True)  # left by a run that was killed before it wrote the model
        adapter = adapter_files(model, base_model=str(settings.model))
        adapter_fingerprint = fingerprint(settings)
        adapter_fingerprint["model"] = identity(adapter_fingerprint["model"])  # for `rookery merge`
        commits.write(root, number=1, files=adapter, ledger=(), fingerprint=adapter_fingerprint)
    final, temporary = settings.out / "model", settings.out / "model.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    merged = model.merge_and_unload() if settings.lora_rank else model
    save_model(merged.to(getattr(torch, settings.save_dtype)), temporary)
    tokenizer.save_pretrained(temporary)
    for name, data in extra_files(temporary).items():
        (temporary / name).write_bytes(data)
    sync_files(temporary)
    temporary.rename(final)
    sync(settings.out)
    for name in (*_CHECKPOINTS, "checkpoint.tmp"):
        shutil.rmtree(settings.out / name, ignore_errors=True)
    logger.info("wrote %s", final)
    if settings.store:
        try:
            upload(settings.out, _RESULTS, settings.store)
            logger.info("copied it to %s", settings.store)
        except RookeryError as error:  # the result on disk is whole
            logger.error("%s is not copied: %s", final, error)
    return final

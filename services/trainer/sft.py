"""Supervised fine-tuning: cross-entropy on the assistant's tokens. A policy must start somewhere.

Trains all weights. Resumes from its own checkpoint; writes a model
directory that vLLM and the trainer load.
"""

import contextlib
import json
import logging
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from rookery.errors import InvalidInput
from services.trainer import optimizer as adam
from services.trainer.examples import ChatFile, Example, batches
from services.trainer.settings import SftSettings

logger = logging.getLogger(__name__)

IGNORE = -100


def run(settings: SftSettings) -> Path:
    """Trains `settings.model` on `settings.data`; the directory of the result."""
    torch.manual_seed(settings.seed)
    disable_progress_bar()  # ours is below
    if settings.threads:
        torch.set_num_threads(settings.threads)
    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    model = _load(settings)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad],
        lr=settings.lr,
        betas=(0.9, 0.98),
        weight_decay=settings.weight_decay,
        fused=True,
    )
    if (settings.out / "model").exists():
        raise InvalidInput(
            f"{settings.out / 'model'} exists: it is finished; choose another --out or delete it"
        )
    settings.out.mkdir(parents=True, exist_ok=True)
    step = _restore(model, optimizer, settings)
    file = ChatFile(settings.data)
    examples = batches(
        file,
        tokenizer,
        batch_size=settings.batch_size,
        max_length=settings.max_length,
        seed=settings.seed,
        skip=step,
    )
    step_loss = torch.compile(sft_loss, dynamic=True) if settings.compile else sft_loss
    logger.info(
        "%d examples, %d steps of %d from step %d", len(file), settings.steps, settings.batch_size, step
    )
    with (
        _progress(settings.steps, step) as advance,
        (settings.out / "metrics.jsonl").open("a", buffering=1) as log,
    ):
        while step < settings.steps:
            started = time.perf_counter()
            ids_BT, labels_BT = collate(next(examples), pad_id=tokenizer.pad_token_id)
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * schedule(step, settings.steps, settings.warmup_steps)
            with _autocast(settings, model.device):
                loss = step_loss(model, ids_BT.to(model.device), labels_BT.to(model.device))
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
            if not torch.isfinite(norm):
                raise InvalidInput(
                    f"step {step}: loss {loss.item()} and gradient norm {norm.item()} are no numbers"
                )
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            row = {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "tokens": ids_BT.numel()}
            log.write(json.dumps(row | {"step_s": time.perf_counter() - started}) + "\n")
            advance(row)
            if step % settings.save_every == 0 and step < settings.steps:
                _save_checkpoint(model, optimizer, step, settings)
    return _export(model, tokenizer, settings)


def sft_loss(model: Any, ids_BT: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the labelled tokens.

    The head runs on labelled positions only, so the full logits [B, T, V] never exist.
    """
    hidden_BTD = model.model(input_ids=ids_BT, use_cache=False).last_hidden_state
    targets_BT = labels_BT[:, 1:]
    kept = targets_BT != IGNORE
    logits_NV = model.lm_head(hidden_BTD[:, :-1][kept])
    return F.cross_entropy(logits_NV.float(), targets_BT[kept])


def collate(examples: list[Example], *, pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded token ids and labels, both [B, T]; prompt and padding are labelled -100."""
    width = max(len(example.token_ids) for example in examples)
    ids_BT = torch.full((len(examples), width), pad_id)
    labels_BT = torch.full((len(examples), width), IGNORE)
    for row, example in enumerate(examples):
        tokens = torch.tensor(example.token_ids)
        ids_BT[row, : len(tokens)] = tokens
        labels_BT[row, example.prompt_length : len(tokens)] = tokens[example.prompt_length :]
    return ids_BT, labels_BT


def schedule(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then cosine down to a hundredth.

    >>> [round(schedule(s, 100, 10), 2) for s in (0, 9, 10, 55, 100)]
    [0.1, 1.0, 1.0, 0.51, 0.01]
    """
    if step < warmup:
        return (step + 1) / warmup
    fraction = (step - warmup) / max(1, steps - warmup)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))


def _load(settings: SftSettings) -> Any:
    model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=torch.float32)
    if settings.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    return model.train()


def _autocast(settings: SftSettings, device: torch.device) -> contextlib.AbstractContextManager[None]:
    context: contextlib.AbstractContextManager[None] = torch.autocast(
        device.type, dtype=torch.bfloat16, enabled=settings.bf16
    )
    return context


@contextlib.contextmanager
def _progress(steps: int, start: int) -> Iterator[Any]:
    columns = (TextColumn("sft"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task("", total=steps, completed=start)

        def advance(row: dict[str, float]) -> None:
            progress.update(task, advance=1, description=f"loss {row['loss']:.3f}")
            if not progress.console.is_terminal and row["step"] % 50 == 0:
                logger.info("step %d of %d: loss %.4f", row["step"], steps, row["loss"])

        yield advance


def _save_checkpoint(model: Any, optimizer: torch.optim.Optimizer, step: int, settings: SftSettings) -> None:
    """Weights and Adam moments as safetensors, renamed into place when complete."""
    final = settings.out / "checkpoint"
    temporary = settings.out / "checkpoint.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    save_file(_unique(model.state_dict()), temporary / "model.safetensors")
    (temporary / adam.FILE).write_bytes(adam.dump(optimizer))
    (temporary / "state.json").write_text(json.dumps({"step": step, "fingerprint": settings.fingerprint()}))
    # A kill between the two leaves the old one under its second name, where `_restore` finds it.
    old = settings.out / "checkpoint.old"
    shutil.rmtree(old, ignore_errors=True)
    if final.exists():
        final.rename(old)
    temporary.rename(final)


def _restore(model: Any, optimizer: torch.optim.Optimizer, settings: SftSettings) -> int:
    folder = settings.out / "checkpoint"
    if not folder.exists():
        folder = settings.out / "checkpoint.old"
    if not folder.exists():
        return 0
    state = json.loads((folder / "state.json").read_text())
    if state["fingerprint"] != settings.fingerprint():
        raise InvalidInput(
            f"{folder} was made with other settings ({state['fingerprint']}): "
            "choose another --out or delete it"
        )
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    adam.restore(optimizer, folder)
    logger.info("resumed from step %d of %s", state["step"], folder)
    return int(state["step"])


def _unique(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Drops tied copies: safetensors refuses shared storage, loading ties them again."""
    seen: set[int] = set()
    kept = {}
    for name, tensor in weights.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor.contiguous()
    return kept


def _export(model: Any, tokenizer: Any, settings: SftSettings) -> Path:
    out = settings.out / "model"
    model.to(getattr(torch, settings.save_dtype)).save_pretrained(out)
    tokenizer.save_pretrained(out)
    for name in ("checkpoint", "checkpoint.old"):
        shutil.rmtree(settings.out / name, ignore_errors=True)
    logger.info("wrote %s", out)
    return out

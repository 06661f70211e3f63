"""The training loop on examples, the same for every task: order, rows, gradient, Adam, evaluation.

A step's loss is a mean over the whole step, however it is split into micro-batches, so the gradient is that
of one pass. A stopped run resumes from its last checkpoint and ends with the same bytes as one that was not
stopped. Of several processes, each computes its share of the rows, and rank 0 writes. The gradients are
summed, so the result is that of one process, except for rounding.
"""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from transformers.utils.logging import disable_progress_bar

from rookery.config.finetune import FinetuneSettings
from rookery.errors import InvalidInput, SetupError
from rookery.hub import model_folder
from rookery.remote import open_store
from services.trainer.distributed.placement import computes_in_bf16, own_device
from services.trainer.distributed.process_group import join_processes
from services.trainer.examples.rows import (
    ExampleSource,
    TokenBatch,
    TokenizedExample,
    collate_examples,
    group_rows,
    shuffled_batches,
)
from services.trainer.finetune import output
from services.trainer.finetune.output import MetricsLog, trained_parameters
from services.trainer.finetune.task import FinetuneTask, Sums, compute, means, rows_of
from services.trainer.records.memory import StepMemory
from services.trainer.records.profile import (
    GIB,
    SHARES,
    computed,
    device_name,
    measure,
    save_choice,
    saved_choice,
)
from services.trainer.records.tracking import Tracker
from services.trainer.training import optimizer as adam
from services.trainer.versions.files import make_folder

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_STOP_MESSAGE = b"finishing this step; a second signal ends the run at once\n"

_MEASURED_TOKENS = 1024
"""Tokens of the forward pass that is measured to compute how many fit."""

F = TypeVar("F", bound=FinetuneSettings)


def start_run(settings: F) -> tuple[Path, F]:
    """Sets the seed and the number of threads. Returns the folder of the model to start from, and the
    settings with this process's device and a warm-up that ends. Raises `InvalidInput` if the run is already
    finished, or its checkpoint has other settings or data; `SetupError` if there is no such model, device or
    kind of store, or the folder `out` cannot be made."""
    settings = own_device(settings)
    finished = make_folder(settings.out, setting="--out") / "model"
    if finished.exists():
        raise InvalidInput(f"{finished} exists: it is finished; choose another --out or delete it")
    if settings.store:
        open_store(settings.store)  # raises now, not after the training
    if settings.warmup_steps > settings.steps:
        warmup = settings.steps // 10
        logger.warning(
            "--warmup-steps %d is more than --steps %d: the learning rate rises in %d steps",
            settings.warmup_steps, settings.steps, warmup,
        )  # fmt: skip
        settings = settings.model_copy(update={"warmup_steps": warmup})
    output.check_resumable(settings)
    folder = model_folder(str(settings.model))
    torch.manual_seed(settings.seed)
    disable_progress_bar()  # the run's own progress bar is in `output`
    if settings.threads:
        torch.set_num_threads(settings.threads)
    return folder, settings


def finetune(task: FinetuneTask[F], source: ExampleSource, tracker: Tracker) -> None:
    """Trains `task.model` on `source` for `steps` steps, together with the launcher's other processes.

    Raises:
        SetupError: the processes have different settings, data or checkpoints.
        InvalidInput: the checkpoint is damaged, or the gradient is not finite.
        SystemExit: a signal stopped the run, after the step was finished and its checkpoint written.
    """
    with join_processes(task.settings) as task.world:
        _train(task, source, tracker)


def _train(task: FinetuneTask[F], source: ExampleSource, tracker: Tracker) -> None:
    world, settings = task.world, task.settings
    weights = trained_parameters(task.model)
    identity = output.fingerprint(settings)
    task.micro_batch_tokens = settings.micro_batch_tokens or _fitting_tokens(task, source, identity)
    optimizer = _optimizer(task)
    step = output.restore_checkpoint(settings.out, weights, optimizer)
    if any(state != [step, identity] for state in world.gather([[step, identity]])):
        raise SetupError(f"the processes of {task.name} differ: they need the same flags, data and --out")
    sizes = f"{len(source)} examples, {sum(weight.numel() for weight in weights.values())} weights"
    steps = f"{settings.steps} steps of {settings.batch_size} from step {step}"
    logger.info("%s: %s, %s", task.name, sizes, steps)
    sums = torch.compile(task.sums, dynamic=True) if settings.compile else task.sums
    batches = shuffled_batches(source, batch_size=settings.batch_size, seed=settings.seed, skip=step)
    step_memory = StepMemory(next(task.model.parameters()).device)
    with _metrics_log(task, start=step) as log, graceful_stop() as stop:
        while step < settings.steps:
            started = time.perf_counter()
            with step_memory.step() as memory:
                measured = _step(task, sums, optimizer, next(batches), step=step)
            step += 1
            step_s = time.perf_counter() - started
            speed = {"step_s": step_s, "tokens_per_s": measured["tokens"] / step_s}
            row: dict[str, Any] = {"step": step, **measured, **speed, **memory}
            if step % settings.eval_every == 0 or step == settings.steps:
                row |= {f"eval_{name}": value for name, value in task.evaluate().items()}
            if log:
                log.write(row)
                tracker.log(row)
            signal_number = max(world.gather([stop.signal_number]))  # all stop after the same step
            due = step % settings.save_every == 0 or step == settings.steps or signal_number
            if log and due:
                output.save_checkpoint(settings.out, weights, optimizer, step=step, fingerprint=identity)
            if signal_number:
                # A process that ends makes its launcher stop the others: rank 0 must have saved by then.
                world.gather([step])
                logger.info(
                    "stopped after step %d of %d: the same command resumes from there", step, settings.steps
                )
                raise SystemExit(128 + signal_number)


def _optimizer(task: FinetuneTask[F]) -> torch.optim.Optimizer:
    settings = task.settings
    return adam.build(
        list(trained_parameters(task.model).values()),
        lr=settings.lr,
        bits=settings.adam_bits,
        betas=(0.9, 0.98),
        weight_decay=settings.weight_decay,
    )


def _fitting_tokens(task: FinetuneTask[F], source: ExampleSource, identity: Mapping[str, str]) -> int:
    """Returns how many tokens fit into a forward pass, measured with examples of the first step. A run that
    resumes on the same kind of device uses its earlier result."""
    settings, weights = task.settings, list(trained_parameters(task.model).values())
    device = weights[0].device
    in_bf16 = str(computes_in_bf16(settings.precision, device))
    share = str(SHARES[device.type])
    conditions = {**identity, "device": device_name(device), "in_bf16": in_bf16, "share": share}
    choice = saved_choice(settings.out, conditions=conditions)
    if choice is None:
        examples = next(shuffled_batches(source, batch_size=settings.batch_size, seed=settings.seed))
        rows = rows_of(task, examples, tokens=_MEASURED_TOKENS)
        batch = collate_examples(group_rows(rows, tokens=_MEASURED_TOKENS)[0], device=device)

        def step(optimizer: torch.optim.Optimizer, number: int) -> None:
            del number
            compute(task, task.sums, batch, weight=batch.ids_BT.numel(), learn=True)
            optimizer.step()
            optimizer.zero_grad()

        measured = measure(
            step,
            model=task.model,
            parameters=weights,
            optimizer=partial(_optimizer, task),
            positions=1,
            group=len(batch.end_K),
            row_tokens=batch.ids_BT.numel(),
        )
        least = min(task.world.gather([computed(measured, most=sys.maxsize).positions]))
        choice = measured.of(least)
        if not task.world.rank:
            save_choice(settings.out, conditions=conditions, choice=choice, profiles=[measured])
    logger.info(
        "at most %d tokens per forward pass, which %.2f GiB of memory allow (--micro-batch-tokens auto)",
        choice.tokens, choice.limit / GIB,
    )  # fmt: skip
    return choice.tokens


@contextmanager
def _metrics_log(task: FinetuneTask[F], *, start: int) -> Iterator[MetricsLog | None]:
    """Yields the log of rank 0, and None in the other processes."""
    if task.world.rank:
        yield None
        return
    out = task.settings.out
    task.settings.write_resolved(out)
    with MetricsLog(task.name, out, start=start, steps=task.settings.steps) as log:
        yield log


def _step(
    task: FinetuneTask[F],
    sums: Callable[[TokenBatch], Sums],
    optimizer: torch.optim.Optimizer,
    examples: Sequence[TokenizedExample],
    *,
    step: int,
) -> dict[str, float]:
    settings = task.settings
    lr = settings.lr * adam.lr_factor("cosine", step=step, steps=settings.steps, warmup=settings.warmup_steps)
    adam.set_lr(optimizer, lr)
    figures = means(task, sums, examples, learn=True)
    weights = list(trained_parameters(task.model).values())
    task.world.sum_gradients(weights)
    norm = torch.nn.utils.clip_grad_norm_(weights, settings.max_grad_norm)
    if not torch.isfinite(norm):
        raise InvalidInput(
            f"step {step}: loss {figures['loss']} and gradient norm {norm.item()} are not finite"
        )
    optimizer.step()
    optimizer.zero_grad()
    return figures | {"grad_norm": norm.item(), "lr": lr}


@dataclass(slots=True)
class StopRequest:
    """The signal that asked to stop; 0 if there was none."""

    signal_number: int = 0


@contextmanager
def graceful_stop() -> Iterator[StopRequest]:
    """Records the first signal inside the block. A second one has its default effect and ends the process."""
    stop = StopRequest()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        stop.signal_number = number
        for signal_number in _SIGNALS:
            signal.signal(signal_number, signal.SIG_DFL)
        os.write(2, _STOP_MESSAGE)  # not the logger: the interrupted code may hold its lock

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield stop
        return
    old_handlers = {signal_number: signal.signal(signal_number, note) for signal_number in _SIGNALS}
    try:
        yield stop
    finally:
        for signal_number, handler in old_handlers.items():
            signal.signal(signal_number, handler)

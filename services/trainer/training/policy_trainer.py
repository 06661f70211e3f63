"""The policy and its optimizer in every process of a trainer. Rank 0 sends commands; all others follow.

A command is JSON on its first line, then encoded groups. Never pickle.
"""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from rookery.canary import CANARY_FILE
from rookery.codec import decode_group, encode_group
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.trace import TraceGroup
from services.trainer.distributed.process_group import Follower, World
from services.trainer.model.policy import Policy
from services.trainer.training import optimizer as adam
from services.trainer.training.canary import CanaryScorer
from services.trainer.training.mismatch import mismatch
from services.trainer.training.step import RunningState, StepStats, train_step
from services.trainer.versions.files import Content, pieces

logger = logging.getLogger(__name__)

PER_PROCESS = frozenset(("device", "threads", "host", "port"))
"""Settings in which processes may differ. If `micro_batch_tokens` is measured, all use rank 0's value."""


class PolicyTrainer:
    """A policy with a new optimizer. Must be created in the thread that trains. With several processes, each
    call in rank 0 makes the followers do the same."""

    def __init__(self, settings: TrainerSettings, policy: Policy, world: World) -> None:
        if policy.device.type == "cuda":
            torch.cuda.set_device(policy.device)  # a thread does not inherit the device
        self.settings, self.policy, self.world = settings, policy, world
        self.optimizer = adam.build(
            policy.parameters, lr=settings.lr, bits=settings.adam_bits, offload=settings.offload
        )

    def load(self, folder: Path) -> None:
        """Loads the weights of a commit, and Adam's moments if they exist: old commits have none."""
        settings = self.settings.model_dump(mode="json")
        self.world.command(lambda: encode("load", folder=str(folder), settings=settings))
        _ = self._canary
        self.policy.load_version(folder)
        if (folder / adam.FILE).exists():
            adam.restore(self.optimizer, folder)

    def files(self) -> dict[str, Content]:
        """The contents of a commit's files, by file name. With sharding, all processes take part while rank 0
        writes the files."""
        if self.settings.sharding != "none":
            self.world.command(lambda: encode("files"))
        canary = {CANARY_FILE: self._canary.content(self.policy)} if self._canary else {}
        return {**self.policy.version_files(), **canary, adam.FILE: adam.dump(self.optimizer)}

    @cached_property
    def _canary(self) -> CanaryScorer | None:
        """Made before the first version is loaded or trained, because it scores the base."""
        return CanaryScorer.of_base(self.policy, str(self.settings.model))

    def train_step(
        self, groups: Sequence[TraceGroup], *, step: int, state: RunningState, dry_run: bool = False
    ) -> StepStats:
        """One step on a batch (see `step.train_step`). Before it, `mismatch` checks one group."""
        arguments = {"step": step, "state": state.as_json(), "dry_run": dry_run}
        self.world.command(lambda: encode("train_step", groups, **arguments))
        _ = self._canary
        self.optimizer.zero_grad(set_to_none=True)  # a failed step may have left gradients
        measured = {} if dry_run else mismatch(self.policy, groups, step=step, settings=self.settings)
        stats = train_step(
            self.policy,
            self.optimizer,
            groups,
            step=step,
            settings=self.settings,
            state=state,
            world=self.world,
            dry_run=dry_run,
        )
        return replace(stats, losses={**stats.losses, **measured})


def follow(
    settings: TrainerSettings, policy: Policy, world: Follower, *, stop_requested: threading.Event
) -> None:
    """The main loop of every process except rank 0: carries out rank 0's commands until it announces the end.
    Raises `SetupError` if this process has other settings than rank 0; `ArithmeticError` if its running state
    differs from rank 0's after the same batches; `Unavailable` if rank 0 is gone."""
    trainer = PolicyTrainer(settings, policy, world)
    expected: RunningState | None = None
    for data in world.commands(stop_requested):
        call, arguments, groups = decode(data)
        if call == "load":
            trainer.settings, expected = agreed(settings, arguments["settings"]), None
            trainer.load(Path(arguments["folder"]))
        elif call == "files":
            for content in trainer.files().values():
                for _ in pieces(content):
                    pass
        else:
            step, state = arguments["step"], RunningState.of(arguments["state"])
            # Only rank 0 knows which groups were dropped, and so the collapsed steps.
            if expected and replace(expected, collapsed_steps=state.collapsed_steps) != state:
                raise ArithmeticError(
                    f"step {step}: rank {world.rank} is in state {expected}, rank 0 in {state}"
                )
            stats = trainer.train_step(groups, step=step, state=state, dry_run=arguments["dry_run"])
            if not arguments["dry_run"]:
                expected = state.after(
                    groups, stats, step=step, zero_variance_share=0.0, settings=trainer.settings
                )
    logger.info("rank %d ends", world.rank)


def encode(call: str, groups: Sequence[TraceGroup] = (), **arguments: Any) -> bytes:
    """A command to call a method of `PolicyTrainer`, for the wire. Floats keep every bit."""
    parts = [encode_group(group) for group in groups]
    head = {"call": call, "arguments": arguments, "sizes": [len(part) for part in parts]}
    return json.dumps(head).encode() + b"\n" + b"".join(parts)


def decode(data: bytes) -> tuple[str, dict[str, Any], list[TraceGroup]]:
    """Decodes what `encode` returned: the method, its arguments and its groups."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    ends = zip(head["sizes"], accumulate(head["sizes"]), strict=True)
    return head["call"], head["arguments"], [decode_group(rest[end - size : end]) for size, end in ends]


def agreed(settings: TrainerSettings, rank_zero: Mapping[str, Any]) -> TrainerSettings:
    """Returns `settings` with the `micro_batch_tokens` that rank 0 measured. Raises `SetupError` if they
    differ from rank 0's. The message names the differences."""
    if not settings.micro_batch_tokens:
        settings = settings.model_copy(update={"micro_batch_tokens": rank_zero["micro_batch_tokens"]})
    local = settings.model_dump(mode="json")
    changed = [
        f"{name} is {local.get(name)!r}, rank 0 has {rank_zero.get(name)!r}"
        for name in sorted((local.keys() | rank_zero.keys()) - PER_PROCESS)
        if local.get(name) != rank_zero.get(name)
    ]
    if changed:
        raise SetupError(f"processes of one trainer differ: {'; '.join(changed)}")
    return settings

"""Training in several processes: rank 0 sends commands, and all other ranks carry them out.

A command is JSON on its first line, then encoded groups. Never pickle.
"""

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

from rookery.codec import decode_group, encode_group
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.trace import TraceGroup
from services.trainer.distributed.process_group import Follower
from services.trainer.model.policy import Policy
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState, StepStats
from services.trainer.versions.files import Content, pieces

logger = logging.getLogger(__name__)

PER_PROCESS = frozenset(("device", "threads", "host", "port"))
"""Settings in which processes may differ. If `micro_batch_tokens` is measured, all use rank 0's value."""


@dataclass(frozen=True, slots=True)
class LoadCommit:
    """Load the weights and moments of a commit and train with `settings`, which must be the same for all."""

    folder: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GatherFiles:
    """Take part in writing the files of a commit, which gathers sharded tensors from all processes."""


@dataclass(frozen=True, slots=True)
class TrainStep:
    """Train on a batch. `state` is `RunningState.as_json`. A dry run changes nothing."""

    step: int
    state: Mapping[str, Any]
    dropped_zero_variance: int
    groups: tuple[TraceGroup, ...]
    dry_run: bool = False


Command: TypeAlias = LoadCommit | GatherFiles | TrainStep


def encode(command: Command) -> bytes:
    """Encodes a command for the wire. Floats keep every bit."""
    values = {field.name: getattr(command, field.name) for field in fields(command)}
    groups = [encode_group(group) for group in values.pop("groups", ())]
    head = {"kind": type(command).__name__, "sizes": [len(group) for group in groups], **values}
    return json.dumps(head).encode() + b"\n" + b"".join(groups)


def decode(data: bytes) -> Command:
    """Decodes what `encode` returned."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    kind, sizes = head.pop("kind"), head.pop("sizes")
    if kind == "LoadCommit":
        return LoadCommit(**head)
    if kind == "GatherFiles":
        return GatherFiles()
    ends = zip(sizes, accumulate(sizes), strict=True)
    return TrainStep(groups=tuple(decode_group(rest[end - size : end]) for size, end in ends), **head)


@dataclass(frozen=True, slots=True)
class RankZeroTrainer:
    """Rank 0's trainer. Each call also makes the trainers of the other processes do the same."""

    local: PolicyTrainer

    def load_on_others(self, folder: Path) -> None:
        """Makes the other processes load a commit that rank 0 has loaded or written."""
        settings = self.local.settings
        self.local.world.command(lambda: encode(LoadCommit(str(folder), settings.model_dump(mode="json"))))

    def files(self) -> dict[str, Content]:
        """As `PolicyTrainer.files`. With sharding, all processes take part while rank 0 writes the files."""
        if self.local.settings.sharding != "none":
            self.local.world.command(lambda: encode(GatherFiles()))
        return self.local.files()

    def train_step(
        self,
        groups: Sequence[TraceGroup],
        *,
        step: int,
        state: RunningState,
        dropped_zero_variance: int,
        dry_run: bool = False,
    ) -> tuple[StepStats, RunningState]:
        """As `PolicyTrainer.train_step`."""
        command = TrainStep(step, state.as_json(), dropped_zero_variance, tuple(groups), dry_run)
        self.local.world.command(lambda: encode(command))
        return self.local.train_step(
            groups, step=step, state=state, dropped_zero_variance=dropped_zero_variance, dry_run=dry_run
        )


def follow(
    settings: TrainerSettings, policy: Policy, world: Follower, *, stop_requested: threading.Event
) -> None:
    """The main loop of every process except rank 0: carries out rank 0's commands until it announces the end.

    Raises:
        SetupError: this process has other settings than rank 0.
        ArithmeticError: its running state differs from rank 0's after the same batches.
        Unavailable: rank 0 is gone.
    """
    trainer = PolicyTrainer.of(settings, policy, world)
    local_state: RunningState | None = None
    for data in world.commands(stop_requested):
        command = decode(data)
        if isinstance(command, LoadCommit):
            settings = agreed(settings, command.settings)
            trainer = PolicyTrainer(settings, policy, trainer.optimizer, world)
            trainer.load(Path(command.folder))
            local_state = None
        elif isinstance(command, GatherFiles):
            for content in trainer.files().values():
                for _ in pieces(content):
                    pass
        else:
            state = RunningState.of(command.state)
            if local_state not in (None, state):
                raise ArithmeticError(
                    f"step {command.step}: rank {world.rank} is in state {local_state}, rank 0 in {state}"
                )
            _, new_state = trainer.train_step(
                command.groups,
                step=command.step,
                state=state,
                dropped_zero_variance=command.dropped_zero_variance,
                dry_run=command.dry_run,
            )
            local_state = local_state if command.dry_run else new_state
    logger.info("rank %d ends", world.rank)


def agreed(settings: TrainerSettings, rank_zero: Mapping[str, Any]) -> TrainerSettings:
    """Returns `settings` with the `micro_batch_tokens` that rank 0 measured.

    Raises:
        SetupError: they differ from rank 0's. The message names the differences.
    """
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

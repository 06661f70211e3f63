"""The policy and its optimizer in a training process: loads commits, trains, and provides a commit's files.

All processes have a `Trainee`. `Leader` is used by rank 0, and makes the other processes do the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rookery.trace import TraceGroup
from services.trainer import optimizer as adam
from services.trainer.distributed import orders
from services.trainer.distributed.world import World
from services.trainer.learner import Learner
from services.trainer.model.policy import Policy
from services.trainer.rescoring import mismatch
from services.trainer.settings import TrainerSettings
from services.trainer.step import StepResult, train_step
from services.trainer.versions.tensor_file import Content


@dataclass(frozen=True, slots=True)
class Trainee:
    """A policy with its optimizer. Must be created in the thread that trains."""

    settings: TrainerSettings
    policy: Policy
    optimizer: torch.optim.Optimizer
    world: World

    @classmethod
    def of(cls, settings: TrainerSettings, policy: Policy, world: World) -> "Trainee":
        """Creates a trainee with a new optimizer."""
        if policy.device.type == "cuda":
            torch.cuda.set_device(policy.device)  # a thread does not inherit the device
        optimizer = adam.build(
            policy.parameters, lr=settings.lr, bits=settings.adam_bits, offload=settings.offload
        )
        return cls(settings, policy, optimizer, world)

    def load(self, folder: Path) -> None:
        """Loads the weights of a commit, and Adam's moments if they exist: old commits have none."""
        self.policy.load_version(folder)
        if (folder / adam.FILE).exists():
            adam.restore(self.optimizer, folder)

    def files(self) -> dict[str, Content]:
        """The contents of a commit's files, by file name."""
        return {**self.policy.version_files(), adam.FILE: adam.dump(self.optimizer)}

    def learn(
        self,
        groups: Sequence[TraceGroup],
        *,
        step: int,
        learner: Learner,
        dropped_zero_variance: int,
        rehearsal: bool = False,
    ) -> tuple[StepResult, Learner]:
        """One step on a batch (see `step.train_step`). Before it, `rescoring.mismatch` checks one group."""
        self.optimizer.zero_grad(set_to_none=True)  # a failed step may have left gradients
        measured = {} if rehearsal else mismatch(self.policy, groups, step=step, settings=self.settings)
        result, learner = train_step(
            self.policy,
            self.optimizer,
            groups,
            step=step,
            settings=self.settings,
            learner=learner,
            dropped_zero_variance=dropped_zero_variance,
            world=self.world,
            rehearsal=rehearsal,
        )
        return replace(result, learning={**result.learning, **measured}), learner


@dataclass(frozen=True, slots=True)
class Leader:
    """Rank 0's trainee. Each call also makes the trainees of the other processes do the same."""

    own: Trainee

    def begin(self, folder: Path) -> None:
        """Makes the other processes load a commit that rank 0 has loaded or written."""
        self.own.world.call(
            lambda: orders.encode(orders.Begin(str(folder), self.own.settings.model_dump(mode="json")))
        )

    def files(self) -> dict[str, Content]:
        """As `Trainee.files`. With sharding, the other processes take part while rank 0 writes the files."""
        if self.own.settings.sharding != "none":
            self.own.world.call(lambda: orders.encode(orders.Files()))
        return self.own.files()

    def learn(
        self,
        groups: Sequence[TraceGroup],
        *,
        step: int,
        learner: Learner,
        dropped_zero_variance: int,
        rehearsal: bool = False,
    ) -> tuple[StepResult, Learner]:
        """As `Trainee.learn`."""
        told = orders.Step(step, learner.as_json(), dropped_zero_variance, tuple(groups), rehearsal)
        self.own.world.call(lambda: orders.encode(told))
        return self.own.learn(
            groups,
            step=step,
            learner=learner,
            dropped_zero_variance=dropped_zero_variance,
            rehearsal=rehearsal,
        )

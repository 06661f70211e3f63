"""A policy with what moves it, in every process the same: learning, loading a commit, the files of the next.

`Leader` is rank 0's: it has the others do the same at the same time.
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
    """Made in the thread that trains."""

    settings: TrainerSettings
    policy: Policy
    optimizer: torch.optim.Optimizer
    world: World

    @classmethod
    def of(cls, settings: TrainerSettings, policy: Policy, world: World) -> "Trainee":
        """With a new optimizer."""
        if policy.device.type == "cuda":
            torch.cuda.set_device(policy.device)  # threads do not inherit it
        optimizer = adam.build(
            policy.parameters, lr=settings.lr, bits=settings.adam_bits, offload=settings.offload
        )
        return cls(settings, policy, optimizer, world)

    def load(self, folder: Path) -> None:
        """Takes weights and moments of a commit; of old ones the moments are gone, and begin anew."""
        self.policy.load_version(folder)
        if (folder / adam.FILE).exists():
            adam.restore(self.optimizer, folder)

    def files(self) -> dict[str, Content]:
        """What a commit holds of it, by file name."""
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
        """One step on a batch: see `step.train_step`; before it, one group of it is scored once more."""
        self.optimizer.zero_grad(set_to_none=True)  # a step that failed leaves its gradients
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
    """Rank 0's trainee, and through it everybody's."""

    own: Trainee

    def begin(self, folder: Path) -> None:
        """Brings the others to a commit that rank 0 has loaded or made."""
        self.own.world.call(
            lambda: orders.encode(orders.Begin(str(folder), self.own.settings.model_dump(mode="json")))
        )

    def files(self) -> dict[str, Content]:
        """As `Trainee.files`. The others take part while rank 0 writes them, in their order."""
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

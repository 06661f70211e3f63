"""Measures the memory of training steps on synthetic groups of maximum length, with the run's objective."""

from dataclasses import dataclass

import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import (
    Completion,
    Message,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)
from services.trainer.model.policy import Policy
from services.trainer.records.profile import Profile, measure
from services.trainer.training import optimizer as adam
from services.trainer.training.step import RunningState, train_step


@dataclass(frozen=True, slots=True)
class GroupShape:
    """The shape of every group of a probe: completions, and tokens of the prompt and of each completion."""

    group: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def sequence_tokens(self) -> int:
        """The tokens of the prompt and one completion."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def row_tokens(self) -> int:
        return self.prompt_tokens + self.group * self.completion_tokens


def probe(policy: Policy, settings: TrainerSettings, shape: GroupShape, *, positions: int) -> Profile:
    """Runs the configuration with one forward pass per step and measures its memory."""
    row_tokens = shape.row_tokens
    settings = settings.model_copy(
        update={
            "micro_batch_tokens": positions * row_tokens,
            "row_tokens": row_tokens,
            "ppo_epochs": 1,
            "ppo_mini_batches": 1,  # all positions in one pass
        }
    )
    groups = [_group(number, shape) for number in range(positions)]

    def step(optimizer: torch.optim.Optimizer, number: int) -> None:
        train_step(policy, optimizer, groups, step=number, settings=settings, state=RunningState())

    return measure(
        step,
        model=policy.model,
        parameters=policy.parameters,
        optimizer=lambda: adam.build(
            policy.parameters, lr=settings.lr, bits=settings.adam_bits, offload=settings.offload
        ),
        positions=positions,
        group=shape.group,
        row_tokens=row_tokens,
    )


def _group(number: int, shape: GroupShape) -> TraceGroup:
    """Returns a group of the maximum length. Its rewards differ, so that it has a gradient."""
    fen = "8/8/8/8/8/8/8/8 w - - 0 1"
    tokens = shape.completion_tokens
    completion = Completion("", (1,) * tokens, (-1.0,) * tokens, "stop", 0)
    traces = tuple(
        Trace(
            f"{number}-{slot}",
            (Turn(completion, Verdict(float(slot), Outcome.LEGAL, reward_version="probe")),),
        )
        for slot in range(shape.group)
    )
    return TraceGroup(
        id=f"probe-{number}",
        run="probe",
        position=Position(f"probe-{number}", fen, 0, Phase.OPENING, "probe"),
        prompt=Prompt("probe", (Message("user", ""),), fen),
        prompt_token_ids=(1,) * shape.prompt_tokens,
        policy=PolicyVersion(0, "0" * 64),
        base_model="probe",
        sampling=Sampling(max_tokens=shape.completion_tokens),
        traces=traces,
        created_at=0.0,
    )

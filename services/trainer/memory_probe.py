"""Measures the memory of training steps on synthetic groups of maximum length, with the run's objective."""

from collections.abc import Iterable, Sequence
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
    tokens, prompt = shape.completion_tokens, (1,) * shape.prompt_tokens
    # The rewards of a group differ, so that it has a gradient.
    answers = [((1,) * tokens, (-1.0,) * tokens, float(slot)) for slot in range(shape.group)]
    groups = [synthetic_group(number, prompt, answers) for number in range(positions)]

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


def synthetic_group(
    number: int, prompt: Sequence[int], answers: Iterable[tuple[Sequence[int], Sequence[float], float]]
) -> TraceGroup:
    """A group of answers to a prompt: of each, its tokens, their log-probabilities and its reward."""
    fen = "8/8/8/8/8/8/8/8 w - - 0 1"
    traces = tuple(
        Trace(
            f"{number}-{slot}",
            (
                Turn(
                    Completion("", tuple(ids), tuple(logprobs), "stop", 0),
                    Verdict(reward, Outcome.LEGAL, reward_version="probe"),
                ),
            ),
        )
        for slot, (ids, logprobs, reward) in enumerate(answers)
    )
    return TraceGroup(
        id=f"probe-{number}",
        run="probe",
        position=Position(f"probe-{number}", fen, 0, Phase.OPENING, "probe"),
        prompt=Prompt("probe", (Message("user", ""),), fen),
        prompt_token_ids=tuple(prompt),
        policy=PolicyVersion(0, "0" * 64),
        base_model="probe",
        sampling=Sampling(),
        traces=traces,
        created_at=0.0,
    )

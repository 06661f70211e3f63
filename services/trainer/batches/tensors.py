"""Packs rows into one sequence of tokens. The completions of a prompt share it and never see each other.

Shapes: T input tokens and N completion tokens in the whole micro-batch; nothing is padded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from services.trainer.batches.batch import Row
from services.trainer.model.attention import Blocks, Stretch


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The inputs of one forward pass. Entry n of the N-vectors belongs to the n-th completion token.

    `predictor_N` is the position in the sequence whose hidden state predicts the token, `completion_N` the
    number of its completion, from 0, and `share_N` its share in the loss. `blocks` say which tokens each
    token attends to.
    """

    input_ids_1T: torch.Tensor
    position_ids_1T: torch.Tensor
    blocks: Blocks
    predictor_N: torch.Tensor
    targets_N: torch.Tensor
    behaviour_N: torch.Tensor
    advantages_N: torch.Tensor
    ages_N: torch.Tensor
    completion_N: torch.Tensor
    share_N: torch.Tensor
    temperature: float
    oldest: int
    """The largest of `ages_N`."""


def collate(rows: Sequence[Row], *, device: torch.device | str = "cpu") -> MicroBatch:
    """Builds the tensors of a micro-batch.

    Raises:
        ValueError: the rows have different temperatures, so their log-probabilities are not comparable.
    """
    temperatures = {row.temperature for row in rows}
    if len(temperatures) != 1:
        raise ValueError(f"one micro-batch holds temperatures {sorted(temperatures)}")
    ids: list[int] = []
    positions: list[int] = []
    predictor: list[int] = []
    stretches: list[Stretch] = []
    for row in rows:
        begin, prompt = len(ids), len(row.prompt_ids)
        ids += row.prompt_ids
        positions += range(prompt)
        stretches.append(Stretch(begin, prompt))
        for completion in row.completions:
            start, inputs = len(ids), len(completion.token_ids) - 1
            ids += completion.token_ids[:-1]
            positions += range(prompt, prompt + inputs)
            predictor += [begin + prompt - 1, *range(start, start + inputs)]
            if inputs:
                stretches.append(Stretch(start, inputs, begin, prompt))
    completions = [completion for row in rows for completion in row.completions]
    return MicroBatch(
        input_ids_1T=torch.tensor([ids], device=device),
        position_ids_1T=torch.tensor([positions], device=device),
        blocks=Blocks.of(stretches, device=device),
        predictor_N=torch.tensor(predictor, device=device),
        targets_N=torch.tensor([t for c in completions for t in c.token_ids], device=device),
        behaviour_N=torch.tensor([p for c in completions for p in c.logprobs], device=device),
        advantages_N=torch.tensor([c.advantage for c in completions for _ in c.token_ids], device=device),
        ages_N=torch.tensor([c.age for c in completions for _ in c.token_ids], device=device),
        completion_N=torch.tensor([i for i, c in enumerate(completions) for _ in c.token_ids], device=device),
        share_N=torch.tensor([c.share for c in completions for _ in c.token_ids], device=device),
        temperature=temperatures.pop(),
        oldest=max(c.age for c in completions),
    )

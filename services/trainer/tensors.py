"""Rows to tensors in which the completions of one prompt share it and never see each other.

Shapes: B rows, T input tokens of the longest row, N completion tokens of the whole micro-batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from services.trainer.batch import Row


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward pass. Entry n of the N-vectors belongs to the n-th completion token.

    `predictor_N` indexes the flattened [B * T] hidden state that predicts it; `completion_N` numbers the
    completions from 0; `share_N` is its share in the loss.
    """

    input_ids_BT: torch.Tensor
    position_ids_BT: torch.Tensor
    mask_B1TT: torch.Tensor
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
    """Tensors of a micro-batch.

    Raises:
        ValueError: rows of different temperatures, whose log-probabilities are not comparable.
    """
    temperatures = {row.temperature for row in rows}
    if len(temperatures) != 1:
        raise ValueError(f"one micro-batch holds temperatures {sorted(temperatures)}")
    width = max(row.length for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    positions = torch.zeros(len(rows), width, dtype=torch.long)
    # A token sees itself everywhere: a softmax over nothing would be NaN in the padding.
    mask = torch.eye(width, dtype=torch.bool).repeat(len(rows), 1, 1)
    predictor: list[int] = []
    for index, row in enumerate(rows):
        prompt = len(row.prompt_ids)
        ids[index, :prompt] = torch.tensor(row.prompt_ids)
        positions[index, :prompt] = torch.arange(prompt)
        mask[index, : row.length, :prompt] = True
        mask[index, :prompt, :prompt] = _causal(prompt)
        start = prompt
        for completion in row.completions:
            inputs = len(completion.token_ids) - 1
            end = start + inputs
            ids[index, start:end] = torch.tensor(completion.token_ids[:-1], dtype=torch.long)
            positions[index, start:end] = torch.arange(prompt, prompt + inputs)
            mask[index, start:end, start:end] = _causal(inputs)
            predictor += [index * width + prompt - 1, *range(index * width + start, index * width + end)]
            start = end
    completions = [completion for row in rows for completion in row.completions]
    return MicroBatch(
        input_ids_BT=ids.to(device),
        position_ids_BT=positions.to(device),
        mask_B1TT=mask[:, None].to(device),
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


def _causal(size: int) -> torch.Tensor:
    return torch.ones(size, size, dtype=torch.bool).tril()

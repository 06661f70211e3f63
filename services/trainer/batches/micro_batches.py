"""Splits rows between processes and into micro-batches, and packs a micro-batch into one sequence of tokens.

Completions of a prompt share it, and attend only to those that they go on from. There is no padding. Every
process has the whole batch and computes the same partition.

Shapes: T input tokens and N completion tokens in the whole micro-batch.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from services.trainer.attention import Blocks, Segment
from services.trainer.batches.rows import Row


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The inputs of one forward pass. Entry n of the N-vectors belongs to the n-th completion token.

    `predictor_N` is the position in the sequence whose hidden state predicts the token, `completion_N` the
    number of its completion, from 0, and `weight_N` its weight in the loss. `blocks` say which tokens each
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
    weight_N: torch.Tensor
    temperature: float
    oldest: int
    """The largest of `ages_N`."""


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One pass through the model. Its loss is multiplied by `weight`: 1, or 0 for an idle pass."""

    rows: list[Row]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Partition:
    """The forward passes of one process, and the micro-batches of all, by rank, without idle passes."""

    passes: list[ForwardPass]
    micro_batches: list[list[Row]]


def partition(
    rows: Sequence[Row], *, tokens: int, rank: int = 0, processes: int = 1, same_number: bool = False
) -> Partition:
    """Splits `rows` between processes, and each part into micro-batches of at most `tokens` tokens.

    `same_number` gives all processes the same number of passes, because sharded weights can be gathered only
    by all together. Idle passes use the shortest row.
    """
    by_rank = [micro_batches(share, tokens=tokens) for share in split_rows(rows, processes)]
    passes = [ForwardPass(micro_batch) for micro_batch in by_rank[rank]]
    if same_number and rows:
        idle = ForwardPass([min(rows, key=lambda row: row.length)], 0.0)
        passes += [idle] * (max(map(len, by_rank)) - len(passes))
    return Partition(passes, [micro_batch for batches in by_rank for micro_batch in batches])


def split_rows(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """Splits `rows` into parts with nearly equal tokens, each in the given order. Some may be empty.

    The longest rows come first, each goes to the part with the fewest tokens. The largest part is at most 4/3
    of the optimum (Graham 1969, LPT).
    """
    loads = [0] * parts
    part_of_row = [0] * len(rows)
    for index in sorted(range(len(rows)), key=lambda i: rows[i].length, reverse=True):
        smallest = loads.index(min(loads))
        part_of_row[index] = smallest
        loads[smallest] += rows[index].length
    return [
        [row for row, number in zip(rows, part_of_row, strict=True) if number == part]
        for part in range(parts)
    ]


def micro_batches(rows: Sequence[Row], *, tokens: int) -> list[list[Row]]:
    """Collects rows of the same temperature and similar length into micro-batches.

    A micro-batch has at most `tokens` tokens, or one row that is longer. 0 means no limit. Temperatures can
    differ because rollouts that restart with another temperature leave groups of the old one in the stream.
    """
    batches: list[list[Row]] = []
    room = 0
    for row in sorted(rows, key=lambda row: (row.temperature, row.length), reverse=True):
        if batches and row.temperature == batches[-1][0].temperature and row.length <= room:
            batches[-1].append(row)
        else:
            batches.append([row])
            room = tokens or sys.maxsize
        room -= row.length
    return batches


def collate(rows: Sequence[Row], *, device: torch.device | str = "cpu") -> MicroBatch:
    """Builds the tensors of a micro-batch. Raises `ValueError` if the rows have different temperatures, so
    their log-probabilities are not comparable."""
    temperatures = {row.temperature for row in rows}
    if len(temperatures) != 1:
        raise ValueError(f"one micro-batch holds temperatures {sorted(temperatures)}")
    ids: list[int] = []
    positions: list[int] = []
    predictor: list[int] = []
    segments: list[Segment] = []
    for row in rows:
        begin, prompt = len(ids), len(row.prompt_ids)
        ids += row.prompt_ids
        positions += range(prompt)
        segments.append(Segment(begin, prompt))
        for number, completion in enumerate(row.completions):
            if completion.context is None:
                start, before = len(ids), begin + prompt - 1
            else:
                ids += (row.completions[number - 1].token_ids[-1], *completion.context)
                before = len(ids) - 1
            predictor += [before, *range(len(ids), len(ids) + len(completion.token_ids) - 1)]
            ids += completion.token_ids[:-1]
            follows = row.completions[number + 1 :][:1]
            if follows and follows[0].context is not None:
                continue
            positions += range(prompt, prompt + len(ids) - start)
            if len(ids) > start:
                segments.append(Segment(start, len(ids) - start, begin, prompt))
    completions = [completion for row in rows for completion in row.completions]
    return MicroBatch(
        input_ids_1T=torch.tensor([ids], device=device),
        position_ids_1T=torch.tensor([positions], device=device),
        blocks=Blocks.of(segments, device=device),
        predictor_N=torch.tensor(predictor, device=device),
        targets_N=torch.tensor([t for c in completions for t in c.token_ids], device=device),
        behaviour_N=torch.tensor([p for c in completions for p in c.logprobs], device=device),
        advantages_N=torch.tensor(
            [a for c in completions for a in c.token_advantages or [c.advantage] * len(c.token_ids)],
            device=device,
        ),
        ages_N=torch.tensor([c.age for c in completions for _ in c.token_ids], device=device),
        completion_N=torch.tensor([i for i, c in enumerate(completions) for _ in c.token_ids], device=device),
        weight_N=torch.tensor([c.weight for c in completions for _ in c.token_ids], device=device),
        temperature=temperatures.pop(),
        oldest=max(c.age for c in completions),
    )

"""Packs examples into rows of tokens: answers share their prompt, and several examples may share a row.

An answer attends to its prompt and itself, and an example never to another. If plain causal attention would
allow more, the rows become one line of blocks (`attention`), without padding. Positions restart with
every example and, after its prompt, with every answer. So the results are those of each prompt with each
answer alone, however they are packed; only the work differs.

Shapes: B rows, T tokens of the longest row, K answers, N answer tokens.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from services.trainer.attention.blocks import Blocks, Segment
from services.trainer.examples.example import Example, SoftTargets


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The inputs of one forward pass. Entry n of the N-vectors is the n-th target, in answer `answer_N[n]`.

    An answer token is one target of weight 1. With a soft target it is one target for each token of the
    distribution, with its probability in `weights_N`. `predictor_N` indexes the hidden state, flattened
    [B * T], that predicts the target; `end_K` indexes the last token of each answer. The answers of an
    example are adjacent, and `gaps_K` repeats its gap for each. Without blocks, plain causal attention fits.
    """

    ids_BT: torch.Tensor
    positions_BT: torch.Tensor
    blocks: Blocks | None
    predictor_N: torch.Tensor
    targets_N: torch.Tensor
    weights_N: torch.Tensor
    answer_N: torch.Tensor
    end_K: torch.Tensor
    gaps_K: torch.Tensor


Row = list[Example]


def pack_rows(examples: Sequence[Example], *, row_tokens: int = 0) -> list[Row]:
    """Packs examples into rows of at most `row_tokens`, longest first, each into the first row with room.

    With 0, or if it is longer than `row_tokens`, an example has a row of its own.

    >>> three = [Example([1] * size, ([2],)) for size in (5, 2, 3)]
    >>> [[example.length for example in row] for row in pack_rows(three, row_tokens=7)]
    [[6], [4, 3]]
    """
    packed: list[Row] = []
    room: list[int] = []
    for example in sorted(examples, key=lambda example: example.length, reverse=True):
        place = next((i for i, free in enumerate(room) if example.length <= free), None)
        if place is None:
            packed.append([example])
            room.append(row_tokens - example.length)
        else:
            packed[place].append(example)
            room[place] -= example.length
    return packed


def micro_batches(rows: Sequence[Row], *, tokens: int) -> list[list[Row]]:
    """Groups rows of similar length, at most `tokens` padded tokens each (or one row); 0 means one batch."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=_length, reverse=True):
        if batches and (not tokens or _length(batches[-1][0]) * (len(batches[-1]) + 1) <= tokens):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def collate_examples(rows: Sequence[Row], *, device: torch.device | str = "cpu") -> TokenBatch:
    """Builds the tensors of a forward pass."""
    examples = tuple(chain(*rows))
    # Padding is on the right, where plain causal attention never looks.
    alone = all(len(row) == 1 and len(row[0].answers) == 1 for row in rows)
    lines: Sequence[Sequence[Example]] = rows if alone else [examples]
    width = max(map(_length, lines))
    ids = torch.zeros(len(lines), width, dtype=torch.long)
    # Positions of padding continue: transformers takes a restart for a packed sequence and makes a mask.
    positions = torch.arange(width).repeat(len(lines), 1)
    predictors, targets, weights, answers = array("q"), array("i"), array("f"), array("q")
    ends: list[int] = []
    segments: list[Segment] = []
    for index, line in enumerate(lines):
        start = 0
        for example in line:
            end, prompt = start + example.length, len(example.prompt_ids)
            shared = len(example.answers) > 1
            segments.append(Segment(start, prompt if shared else example.length))
            ids[index, start:end] = torch.tensor([*example.prompt_ids, *chain(*example.answers)])
            positions[index, start : start + prompt] = torch.arange(prompt)
            at, last = start + prompt, index * width + start + prompt - 1
            for answer in example.answers:
                positions[index, at : at + len(answer)] = torch.arange(prompt, prompt + len(answer))
                if shared and answer:
                    segments.append(Segment(at, len(answer), start, prompt))
                soft = example.soft_targets or SoftTargets.of(answer, {})
                first = index * width + at
                predictors.extend(first + place - 1 if place else last for place in soft.indices)
                targets.extend(soft.tokens)
                weights.extend(soft.weights)
                answers.extend([len(ends)] * len(soft.tokens))
                at += len(answer)
                ends.append(index * width + at - 1)
            start = end
    return TokenBatch(
        ids_BT=ids.to(device),
        positions_BT=positions.to(device),
        blocks=None if alone else Blocks.of(segments, device=device),
        predictor_N=torch.tensor(predictors, dtype=torch.long, device=device),
        targets_N=torch.tensor(targets, dtype=torch.long, device=device),
        weights_N=torch.tensor(weights, dtype=torch.float32, device=device),
        answer_N=torch.tensor(answers, dtype=torch.long, device=device),
        end_K=torch.tensor(ends, device=device),
        gaps_K=torch.tensor([example.gap for example in examples for _ in example.answers], device=device),
    )


def _length(row: Sequence[Example]) -> int:
    return sum(example.length for example in row)

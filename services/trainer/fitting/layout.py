"""Examples to rows of tokens: the answers of a prompt share it, several examples may share a row.

An answer sees its prompt and itself, an example nothing of another: rows in which that is less than all
before a token go through attention as one line of blocks (`model.attention`), without padding.
Positions restart with every example and, after its prompt, with every answer. So the numbers are those of
each prompt with each answer alone, however they are laid; only the work differs.

Shapes: B rows, T tokens of the longest row, K answers, N answer tokens.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import torch

from services.trainer.model.attention import Blocks, Stretch


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt and of its answers: one to imitate, or the chosen and the rejected.

    `gap` says how much better the chosen is, in win probability. `soft_targets` maps places in the only
    answer to distributions over token ids, which are learned there instead of the answer's own token.
    """

    prompt_ids: list[int]
    answers: tuple[list[int], ...]
    gap: float = 0.0
    soft_targets: Mapping[int, Mapping[int, float]] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Tokens in a row."""
        return len(self.prompt_ids) + self.answer_tokens

    @property
    def answer_tokens(self) -> int:
        """Tokens that may carry loss: never the prompt's."""
        return sum(len(answer) for answer in self.answers)


@dataclass(frozen=True, slots=True)
class Laid:
    """One forward pass. Entry n of the N-vectors belongs to the n-th target, in answer `answer_N[n]`.

    An answer token is one target of weight 1, or, with a soft target, one for each token of its distribution,
    of that probability in `weights_N`. `predictor_N` indexes the flattened [B * T] hidden state that predicts
    it, `end_K` the one at the last token of each answer. The answers of an example stand together, and
    `gaps_K` repeats its gap for each. Without blocks, plain causal attention is right.
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


def rows(examples: Sequence[Example], *, row_tokens: int = 0) -> list[Row]:
    """Examples in rows of at most `row_tokens`, first fit by falling length; 0: each in a row of its own.

    >>> three = [Example([1] * size, ([2],)) for size in (5, 2, 3)]
    >>> [[example.length for example in row] for row in rows(three, row_tokens=7)]
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
    """Rows of like length together, at most `tokens` padded tokens each (or one row); 0: all at once."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=_length, reverse=True):
        if batches and (not tokens or _length(batches[-1][0]) * (len(batches[-1]) + 1) <= tokens):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def lay(rows: Sequence[Row], *, device: torch.device | str = "cpu") -> Laid:
    """The tensors of a forward pass."""
    examples = tuple(chain(*rows))
    # Padding stands on the right, where plain causal attention never looks.
    alone = all(len(row) == 1 and len(row[0].answers) == 1 for row in rows)
    lines: Sequence[Sequence[Example]] = rows if alone else [examples]
    width = max(map(_length, lines))
    ids = torch.zeros(len(lines), width, dtype=torch.long)
    # Those of padding go on: transformers would draw a mask, taking restarts for packed sequences.
    positions = torch.arange(width).repeat(len(lines), 1)
    targets: list[tuple[int, int, float, int]] = []  # predictor, token, weight, answer
    ends: list[int] = []
    stretches: list[Stretch] = []
    for index, line in enumerate(lines):
        start = 0
        for example in line:
            end, prompt = start + example.length, len(example.prompt_ids)
            ids[index, start:end] = torch.tensor([*example.prompt_ids, *chain(*example.answers)])
            positions[index, start : start + prompt] = torch.arange(prompt)
            at, last = start + prompt, index * width + start + prompt - 1
            for answer in example.answers:
                positions[index, at : at + len(answer)] = torch.arange(prompt, prompt + len(answer))
                for place, token in enumerate(answer):
                    predictor = index * width + at + place - 1 if place else last
                    for target, weight in example.soft_targets.get(place, {token: 1.0}).items():
                        targets.append((predictor, target, weight, len(ends)))
                at += len(answer)
                ends.append(index * width + at - 1)
            stretches += _stretches(example, start)
            start = end
    predictors, tokens, weights, answers = zip(*targets, strict=True) if targets else ((), (), (), ())
    return Laid(
        ids_BT=ids.to(device),
        positions_BT=positions.to(device),
        blocks=None if alone else Blocks.of(stretches, device=device),
        predictor_N=torch.tensor(predictors, dtype=torch.long, device=device),
        targets_N=torch.tensor(tokens, dtype=torch.long, device=device),
        weights_N=torch.tensor(weights, dtype=torch.float32, device=device),
        answer_N=torch.tensor(answers, dtype=torch.long, device=device),
        end_K=torch.tensor(ends, device=device),
        gaps_K=torch.tensor([example.gap for example in examples for _ in example.answers], device=device),
    )


def _stretches(example: Example, start: int) -> Iterator[Stretch]:
    prompt = len(example.prompt_ids)
    if len(example.answers) == 1:
        yield Stretch(start, example.length)
        return
    yield Stretch(start, prompt)
    at = start + prompt
    for answer in example.answers:
        if answer:
            yield Stretch(at, len(answer), start, prompt)
        at += len(answer)


def _length(row: Sequence[Example]) -> int:
    return sum(example.length for example in row)

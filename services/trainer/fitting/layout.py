"""Examples to rows of tokens: the answers of a prompt share it, several examples may share a row.

Which tokens see which is a mask: an answer sees its prompt and itself, an example nothing of another.
Positions restart with every example and, after its prompt, with every answer. So the numbers are those of
each prompt with each answer alone, however they are laid; only the work differs.

Shapes: B rows, T tokens of the longest row, K answers, N answer tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch


@dataclass(frozen=True, slots=True)
class Example:
    """Token ids of a prompt and of its answers: one to imitate, or the chosen and the rejected.

    `gap` says how much better the chosen is, in win probability.
    """

    prompt_ids: list[int]
    answers: tuple[list[int], ...]
    gap: float = 0.0

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
    """One forward pass. Entry n of the N-vectors belongs to the n-th answer token, of answer `answer_N[n]`.

    `predictor_N` indexes the flattened [B * T] hidden state that predicts it, `end_K` the one at the last
    token of each answer. The answers of an example stand together, and `gaps_K` repeats its gap for each.
    Without a mask, plain causal attention is right.
    """

    ids_BT: torch.Tensor
    positions_BT: torch.Tensor
    mask_B1TT: torch.Tensor | None
    predictor_N: torch.Tensor
    targets_N: torch.Tensor
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
    width = max(_length(row) for row in rows)
    ids, positions, owners, answers = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(4))
    predictor: list[int] = []
    ends: list[int] = []
    for index, row in enumerate(rows):
        start = 0
        for number, example in enumerate(row, start=1):
            end, prompt = start + example.length, len(example.prompt_ids)
            ids[index, start:end] = torch.tensor([*example.prompt_ids, *chain(*example.answers)])
            owners[index, start:end] = number
            positions[index, start : start + prompt] = torch.arange(prompt)
            at, last = start + prompt, index * width + start + prompt - 1
            for which, answer in enumerate(example.answers, start=1):
                here = slice(at, at + len(answer))
                positions[index, here] = torch.arange(prompt, prompt + len(answer))
                answers[index, here] = which
                if answer:  # else its prompt filled the row
                    predictor += [last, *range(index * width + at, index * width + at + len(answer) - 1)]
                at += len(answer)
                ends.append(index * width + at - 1)
            start = end
    examples = tuple(chain(*rows))
    alone = all(len(row) == 1 and len(row[0].answers) == 1 for row in rows)
    flat = [answer for example in examples for answer in example.answers]
    return Laid(
        ids_BT=ids.to(device),
        positions_BT=positions.to(device),
        # Padding stands on the right, where plain causal attention never looks.
        mask_B1TT=None if alone else _mask(owners.to(device), answers.to(device)),
        predictor_N=torch.tensor(predictor, dtype=torch.long, device=device),
        targets_N=torch.tensor(list(chain(*flat)), dtype=torch.long, device=device),
        answer_N=torch.tensor([k for k, a in enumerate(flat) for _ in a], dtype=torch.long, device=device),
        end_K=torch.tensor(ends, device=device),
        gaps_K=torch.tensor([example.gap for example in examples for _ in example.answers], device=device),
    )


def _length(row: Row) -> int:
    return sum(example.length for example in row)


def _mask(owners_BT: torch.Tensor, answers_BT: torch.Tensor) -> torch.Tensor:
    """True where a token sees another; answer 0 is the prompt, which all answers of its example see."""
    same_BTT = owners_BT[:, :, None] == owners_BT[:, None, :]
    own_BTT = (answers_BT[:, None, :] == 0) | (answers_BT[:, :, None] == answers_BT[:, None, :])
    return (same_BTT & own_BTT).tril()[:, None]

"""Tokenised examples: their order, and their packing into rows of tokens for a forward pass.

The order is shuffled with a seed in every epoch, in batches of similar length.

Answers share their prompt in a row, and several examples may share a row. An answer attends to its prompt and
itself, and an example never to another. If plain causal attention would allow more, the rows become one
sequence of attention blocks, without padding. Positions restart with every example and, after its prompt,
with every answer. So packing changes the work but not the results: they are those of each prompt with each
answer alone. Examples with the same prompt come in the same step, where they may become one: its prompt is
then computed once.

Shapes: B rows, T tokens of the longest row, K answers, N answer tokens.
"""

import random
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby, pairwise, zip_longest
from typing import Protocol

import torch

from services.trainer.attention import Blocks, Segment

_CHUNK = 2048
"""Number of examples that are tokenised together and sorted by length, so that a batch has little padding."""


@dataclass(frozen=True, slots=True)
class SoftTargets:
    """Distributions over token ids, as parallel arrays: target n is token `tokens[n]` with `weights[n]`.

    `indices[n]` is the index in the answer of the token that it stands for. Each token of the answer has
    targets, in order; one without a distribution is its own target, with weight 1.
    """

    indices: "array[int]"
    tokens: "array[int]"
    weights: "array[float]"

    @classmethod
    def of(cls, answer: Sequence[int], distributions: Mapping[int, Mapping[int, float]]) -> "SoftTargets":
        """Builds the targets of an answer from distributions by the index of a token in it."""
        targets = [
            (index, target, weight)
            for index, token in enumerate(answer)
            for target, weight in distributions.get(index, {token: 1.0}).items()
        ]
        indices, tokens, weights = zip(*targets, strict=True) if targets else ((), (), ())
        return cls(array("i", indices), array("i", tokens), array("f", weights))


@dataclass(frozen=True, slots=True)
class TokenizedExample:
    """Token ids of a prompt and of its answers: one to learn, or the chosen and the rejected one.

    Or of several answers to learn. `gap` is how much better the chosen answer is, in win probability.
    `soft_targets`, one entry for each answer or none at all, replace an answer's tokens as targets. Token ids
    may be `array("i")`: a list takes ten times the memory.
    """

    prompt_ids: Sequence[int]
    answers: tuple[Sequence[int], ...]
    gap: float = 0.0
    soft_targets: tuple[SoftTargets | None, ...] = ()

    @property
    def length(self) -> int:
        return len(self.prompt_ids) + self.answer_tokens

    @property
    def answer_tokens(self) -> int:
        """The number of tokens that carry loss: those of the answers, never the prompt's."""
        return sum(len(answer) for answer in self.answers)


class ExampleSource(Protocol):
    """Numbered examples, tokenised on demand."""

    def __len__(self) -> int: ...

    @property
    def prompts(self) -> Sequence[int]:
        """The number of the first example of each prompt; the others of that prompt follow it.
        `range(len(self))` if no examples share a prompt."""

    def examples(self, numbers: Sequence[int]) -> list[TokenizedExample]:
        """Returns the examples with these numbers, in the same order."""


def shuffled_batches(
    source: ExampleSource, *, batch_size: int, seed: int, skip: int = 0
) -> Iterator[list[TokenizedExample]]:
    """Yields batches of examples of similar length, without end.

    Examples with the same prompt are neighbours. Examples that do not fill a batch at the end of an epoch are
    left out of that epoch; the next one is shuffled anew. `skip` skips that many batches without making them,
    to resume.
    """
    chunk_size = max(batch_size, _CHUNK // batch_size * batch_size)
    for epoch in count():
        rng = random.Random(f"{seed}:{epoch}")
        prompts = [range(*bounds) for bounds in pairwise(chain(source.prompts, [len(source)]))]
        rng.shuffle(prompts)
        order = list(chain(*prompts))
        usable = len(order) - len(order) % batch_size or len(order)
        for start in range(0, usable, chunk_size):
            chunk = order[start : min(start + chunk_size, usable)]
            places = [range(i, min(i + batch_size, len(chunk))) for i in range(0, len(chunk), batch_size)]
            rng.shuffle(places)
            if skip >= len(places):
                skip -= len(places)
                continue
            examples = _by_length(source.examples(chunk), shared=len(prompts) < len(order))
            for place in places[skip:]:
                yield [examples[i] for i in place]
            skip = 0


def _by_length(examples: Sequence[TokenizedExample], *, shared: bool) -> list[TokenizedExample]:
    """Sorts examples by length. With `shared`, neighbours of one prompt stay together."""
    groups = [list(group) for _, group in groupby(examples, lambda e: e.prompt_ids if shared else id(e))]
    groups.sort(key=lambda group: max(example.length for example in group))
    return list(chain(*groups))


def share_prompts(examples: Sequence[TokenizedExample], *, tokens: int = 0) -> list[TokenizedExample]:
    """Joins neighbours of one prompt to examples of several answers, of at most `tokens` tokens if not 0.

    >>> three = [TokenizedExample([1, 2], ([answer, answer],)) for answer in (3, 4, 5)]
    >>> [(example.answers, example.length) for example in share_prompts(three, tokens=6)]
    [(([3, 3], [4, 4]), 6), (([5, 5],), 4)]
    """
    joined: list[TokenizedExample] = []
    for example in examples:
        last = joined[-1] if joined else None
        fits = last and (not tokens or last.length + example.answer_tokens <= tokens)
        if last and fits and last.prompt_ids == example.prompt_ids:
            soft = tuple(chain(*(e.soft_targets or (None,) * len(e.answers) for e in (last, example))))
            joined[-1] = TokenizedExample(last.prompt_ids, last.answers + example.answers, soft_targets=soft)
        else:
            joined.append(example)
    return joined


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The inputs of one forward pass. Entry n of the N-vectors is the n-th target, in answer `answer_N[n]`.

    An answer token is one target of weight 1. With a soft target it is one target for each token of the
    distribution, with its probability in `weights_N`. `predictor_N` indexes the hidden state, flattened
    [B * T], that predicts the target, and `token_N` numbers the answer tokens. `end_K` indexes the last token
    of each answer. The answers of an example are adjacent, and `gaps_K` repeats its gap for each. Without
    blocks, plain causal attention fits.
    """

    ids_BT: torch.Tensor
    positions_BT: torch.Tensor
    blocks: Blocks | None
    predictor_N: torch.Tensor
    targets_N: torch.Tensor
    weights_N: torch.Tensor
    token_N: torch.Tensor
    answer_N: torch.Tensor
    end_K: torch.Tensor
    gaps_K: torch.Tensor


Row = list[TokenizedExample]


def pack_rows(examples: Sequence[TokenizedExample], *, row_tokens: int = 0) -> list[Row]:
    """Packs examples into rows of at most `row_tokens`, longest first, each into the first row with room.

    With 0, or if it is longer than `row_tokens`, an example has a row of its own.

    >>> three = [TokenizedExample([1] * size, ([2],)) for size in (5, 2, 3)]
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


def group_rows(rows: Sequence[Row], *, tokens: int) -> list[list[Row]]:
    """Groups rows of similar length, at most `tokens` tokens each, with padding (or one row). 0 means one
    batch."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=_length, reverse=True):
        if batches and (not tokens or _tokens([*batches[-1], row]) <= tokens):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _tokens(rows: Sequence[Row]) -> int:
    """Returns the tokens of a forward pass: `collate_examples` pads only rows of one prompt and answer."""
    lengths = [_length(row) for row in rows]
    return max(lengths) * len(rows) if _are_plain(rows) else sum(lengths)


def _are_plain(rows: Sequence[Row]) -> bool:
    """Returns whether plain causal attention fits: each row is one prompt and one answer."""
    return all(len(row) == 1 and len(row[0].answers) == 1 for row in rows)


def collate_examples(rows: Sequence[Row], *, device: torch.device | str = "cpu") -> TokenBatch:
    """Builds the tensors of a forward pass."""
    examples = tuple(chain(*rows))
    # Padding is on the right, where plain causal attention never looks.
    plain_causal = _are_plain(rows)
    lines: Sequence[Sequence[TokenizedExample]] = rows if plain_causal else [examples]
    width = max(map(_length, lines))
    ids = torch.zeros(len(lines), width, dtype=torch.long)
    # Positions of padding continue: transformers takes a restart for a packed sequence and makes a mask.
    positions = torch.arange(width).repeat(len(lines), 1)
    predictors, targets, weights = array("q"), array("i"), array("f")
    tokens, answers = array("q"), array("q")
    answer_tokens = 0
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
            for answer, soft in zip_longest(example.answers, example.soft_targets):
                positions[index, at : at + len(answer)] = torch.arange(prompt, prompt + len(answer))
                if shared and answer:
                    segments.append(Segment(at, len(answer), start, prompt))
                soft = soft or SoftTargets.of(answer, {})
                first = index * width + at
                predictors.extend(first + place - 1 if place else last for place in soft.indices)
                targets.extend(soft.tokens)
                weights.extend(soft.weights)
                tokens.extend(answer_tokens + place for place in soft.indices)
                answer_tokens += len(answer)
                answers.extend([len(ends)] * len(soft.tokens))
                at += len(answer)
                ends.append(index * width + at - 1)
            start = end
    return TokenBatch(
        ids_BT=ids.to(device),
        positions_BT=positions.to(device),
        blocks=None if plain_causal else Blocks.of(segments, device=device),
        predictor_N=torch.tensor(predictors, dtype=torch.long, device=device),
        targets_N=torch.tensor(targets, dtype=torch.long, device=device),
        weights_N=torch.tensor(weights, dtype=torch.float32, device=device),
        token_N=torch.tensor(tokens, dtype=torch.long, device=device),
        answer_N=torch.tensor(answers, dtype=torch.long, device=device),
        end_K=torch.tensor(ends, device=device),
        gaps_K=torch.tensor([example.gap for example in examples for _ in example.answers], device=device),
    )


def _length(row: Sequence[TokenizedExample]) -> int:
    return sum(example.length for example in row)

"""Groups to rows of tokens, and rows to micro-batches of a token budget. No torch.

A row is one prompt followed by several of its completions; the prompt is computed once and shared.
Prompt tokens, the generation prompt among them, are context: they never carry loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rookery.trace import TraceGroup
from services.trainer.advantages import group_advantages


@dataclass(frozen=True, slots=True)
class Scored:
    """One completion to learn from. `logprobs` are the behaviour policy's, from the server."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantage: float
    age: int


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and completions of it, in one sequence."""

    prompt_ids: tuple[int, ...]
    completions: tuple[Scored, ...]
    temperature: float

    @property
    def length(self) -> int:
        """Input tokens: the last token of a completion predicts nothing and is left out."""
        return len(self.prompt_ids) + sum(len(c.token_ids) - 1 for c in self.completions)


def rows(
    groups: Sequence[TraceGroup],
    *,
    version: int,
    normalise: bool,
    mask_truncated: bool,
    row_tokens: int,
) -> list[Row]:
    """Rows of at most `row_tokens` tokens; a group too long for one row is spread over several.

    `version` is the trainer's, from which ages are counted. Truncated completions take part in the
    group's baseline but carry no loss when `mask_truncated` is set.
    """
    result: list[Row] = []
    for group in groups:
        advantages = group_advantages(group.rewards, normalise=normalise)
        scored = [
            Scored(
                trace.completion.token_ids,
                trace.completion.logprobs,
                advantage,
                version - group.policy.number,
            )
            for trace, advantage in zip(group.traces, advantages, strict=True)
            if trace.completion.token_ids and not (mask_truncated and trace.completion.truncated)
        ]
        result += [
            Row(group.prompt_token_ids, part, group.sampling.temperature)
            for part in _parts(scored, row_tokens - len(group.prompt_token_ids))
        ]
    return result


def micro_batches(rows: Sequence[Row], *, tokens: int) -> list[list[Row]]:
    """Rows of one temperature and like length together, at most `tokens` padded tokens each (or one row).

    Rollouts that start again with another temperature leave groups of the old one in the stream.
    """
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (row.temperature, row.length), reverse=True):
        if batches and _fits(row, batches[-1], tokens):
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def _fits(row: Row, batch: Sequence[Row], tokens: int) -> bool:
    longest = batch[0]
    return row.temperature == longest.temperature and longest.length * (len(batch) + 1) <= tokens


def _parts(scored: Sequence[Scored], tokens: int) -> list[tuple[Scored, ...]]:
    parts: list[list[Scored]] = []
    room = 0
    for completion in scored:
        if not parts or len(completion.token_ids) > room:
            parts.append([])
            room = tokens
        parts[-1].append(completion)
        room -= len(completion.token_ids)
    return [tuple(part) for part in parts]

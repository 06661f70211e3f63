"""Turns groups into rows of tokens, and rows into micro-batches within a token budget. No torch.

A row is one prompt followed by as many of its completions as fit; the prompt is computed once and shared.
Prompt tokens, including the generation prompt, are context: they never carry loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rookery.trace import Trace, TraceGroup
from services.trainer.batches import finite
from services.trainer.batches.advantages import Averages, advantages, zero_variance
from services.trainer.losses.weights import Extent, normaliser, share
from services.trainer.settings import LossWeights, TrainerSettings


@dataclass(frozen=True, slots=True)
class Scored:
    """One completion to learn from. `logprobs` are the behaviour policy's, as the server reported them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantage: float
    age: int
    share: float = 1.0
    """The weight of each of its tokens in the loss: see `losses.weights`."""
    reward: float = 0.0
    """The verdict's reward. Only PPO, which computes an advantage per token, needs it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and some of its completions, in one sequence."""

    prompt_ids: tuple[int, ...]
    completions: tuple[Scored, ...]
    temperature: float
    group_id: str = ""

    @property
    def length(self) -> int:
        """The number of input tokens. The last token of a completion predicts nothing and is left out."""
        return len(self.prompt_ids) + sum(len(c.token_ids) - 1 for c in self.completions)


@dataclass(frozen=True, slots=True)
class Batch:
    """The data of one step. The sum of the losses is divided by `normaliser`: see `losses.weights`."""

    rows: tuple[Row, ...]
    normaliser: float
    tokens: int
    zero_variance: int


def prepare(
    groups: Sequence[TraceGroup], *, version: int, settings: TrainerSettings, averages: Averages | None
) -> Batch:
    """Turns groups into rows with advantages and shares. `averages` are for the baseline (see `advantages`).

    Raises:
        ArithmeticError: an advantage is not finite. The message names the group.
    """
    values = advantages(
        [group.rewards for group in groups],
        baseline=settings.baseline,
        normalise=settings.normalise,
        averages=averages,
    )
    finite.check_advantages(groups, values)
    carried = extents(groups, mask_truncated=settings.mask_truncated, constant=settings.loss_constant)
    made = rows(
        groups,
        values,
        version=version,
        mask_truncated=settings.mask_truncated,
        row_tokens=settings.row_tokens or settings.micro_batch_tokens,
        weights=settings.loss_weights,
    )
    return Batch(
        rows=tuple(made),
        normaliser=normaliser(carried, settings.loss_weights),
        tokens=sum(extent.tokens for extent in carried),
        zero_variance=sum(zero_variance(group.rewards) for group in groups),
    )


def rows(
    groups: Sequence[TraceGroup],
    values: Sequence[Sequence[float]],
    *,
    version: int,
    mask_truncated: bool,
    row_tokens: int,
    weights: LossWeights = "token",
) -> list[Row]:
    """Returns rows of at most `row_tokens` tokens. A group too long for one row is split over several.

    A prompt with a single completion that is longer than `row_tokens` still becomes a row.
    `values` are the advantages, one per trace. `version` is the trainer's; ages are counted from it.
    If `mask_truncated` is set, truncated completions count in the group's baseline but carry no loss.
    """
    result: list[Row] = []
    for group, own in zip(groups, values, strict=True):
        scored = [
            Scored(
                trace.completion.token_ids,
                trace.completion.logprobs,
                advantage,
                version - group.policy.number,
                share(len(trace.completion.token_ids), weights),
                trace.verdict.reward,
            )
            for trace, advantage in zip(group.traces, own, strict=True)
            if carries_loss(trace, mask_truncated=mask_truncated)
        ]
        result += [
            Row(group.prompt_token_ids, part, group.sampling.temperature, group.id)
            for part in _parts(scored, row_tokens - len(group.prompt_token_ids))
        ]
    return result


def carries_loss(trace: Trace, *, mask_truncated: bool) -> bool:
    """Returns whether the completion of a trace has tokens and is not masked as truncated."""
    return bool(trace.completion.token_ids) and not (mask_truncated and trace.completion.truncated)


def extents(groups: Sequence[TraceGroup], *, mask_truncated: bool, constant: int = 0) -> list[Extent]:
    """Returns the lengths and limits of the completions that carry loss.

    The limit is `constant`, or the rollouts' `max_tokens` if `constant` is 0.
    """
    return [
        Extent(len(trace.completion.token_ids), constant or group.sampling.max_tokens)
        for group in groups
        for trace in group.traces
        if carries_loss(trace, mask_truncated=mask_truncated)
    ]


def micro_batches(rows: Sequence[Row], *, tokens: int) -> list[list[Row]]:
    """Collects rows of the same temperature and similar length into micro-batches.

    A micro-batch has at most `tokens` tokens, or one row that is longer. Temperatures can differ because
    rollouts that restart with another temperature leave groups of the old one in the stream.
    """
    batches: list[list[Row]] = []
    room = 0
    for row in sorted(rows, key=lambda row: (row.temperature, row.length), reverse=True):
        if batches and row.temperature == batches[-1][0].temperature and row.length <= room:
            batches[-1].append(row)
        else:
            batches.append([row])
            room = tokens
        room -= row.length
    return batches


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

"""Turns groups into rows of tokens with advantages and token weights. No torch.

A row is one prompt followed by as many of its completions as fit; the prompt is computed once and shared.
Prompt tokens, including the generation prompt, are context: they never carry loss.

The loss of a batch is the sum over all its tokens of weight x loss / normaliser. Both are computed for the
whole batch, so the gradient does not depend on how it is split into micro-batches. Masked completions are
neither summed nor counted.

    token      weight 1       normaliser: all tokens           DAPO (arXiv 2503.14476, eq. 8)
    sequence   weight 1/|o|   normaliser: completions          GRPO (2402.03300, eq. 3), GSPO (2507.18071)
    constant   weight 1       normaliser: sum of token limits  Dr. GRPO (2503.20783, appendix A)
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from rookery.config.objective import LossWeights
from rookery.config.trainer import TrainerSettings
from rookery.trace import Trace, TraceGroup
from services.trainer.batches.advantages import RewardAverages, advantages
from services.trainer.batches.process_rewards import token_advantages


@dataclass(frozen=True, slots=True)
class ScoredCompletion:
    """One completion to learn from. `logprobs` are the behaviour policy's, as the server reported them."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    advantage: float
    """The reward less the baseline. For PPO the reward of the last token."""
    age: int
    """How many versions the policy that sampled it is behind."""
    weight: float = 1.0
    """The weight of each of its tokens in the loss."""
    trace: str = ""
    """The id of its trace."""
    token_advantages: tuple[float, ...] = ()
    """The advantages of its tokens, if they do not all have `advantage`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and some of its completions, in one sequence."""

    prompt_ids: tuple[int, ...]
    completions: tuple[ScoredCompletion, ...]
    temperature: float
    group_id: str = ""

    @property
    def length(self) -> int:
        """The number of input tokens. The last token of a completion predicts nothing and is left out."""
        return len(self.prompt_ids) + sum(len(c.token_ids) - 1 for c in self.completions)


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """The importance ratio and the advantage of each token of a completion, as the loss used them."""

    ratios: list[float]
    advantages: list[float]


FiguresByTrace: TypeAlias = Mapping[str, TokenFigures]
"""The figures of completions by the ids of their traces."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The data of one step. The sum of the weighted losses is divided by `normaliser`."""

    rows: tuple[Row, ...]
    normaliser: float
    tokens: int


def prepare_batch(
    groups: Sequence[TraceGroup], *, version: int, settings: TrainerSettings, averages: RewardAverages | None
) -> Batch:
    """Computes the advantages of groups, and turns them into weighted rows.

    `averages` are for the baseline: see `advantages`.

    Raises:
        ArithmeticError: an advantage is not finite. The message names the group.
    """
    values = advantages(
        [group.rewards for group in groups],
        baseline=settings.baseline,
        normalise=settings.normalise,
        averages=averages,
        sigma_floor=settings.sigma_floor,
    )
    for group, group_values in zip(groups, values, strict=True):
        if not all(map(math.isfinite, group_values)):  # the averages of a damaged commit can cause that
            raise ArithmeticError(
                f"group {group.id}: advantages {group_values!r} of rewards {group.rewards!r}"
            )
    by_token = token_advantages(groups, values, settings=settings) if settings.process_rewards else {}
    rows = make_rows(
        groups,
        values,
        by_token=by_token,
        version=version,
        mask_truncated=settings.mask_truncated,
        row_tokens=settings.row_tokens or settings.micro_batch_tokens,
        weights=settings.loss_weights,
    )
    lengths = [
        (len(trace.completion.token_ids), settings.loss_constant or group.sampling.max_tokens)
        for group in groups
        for trace in group.traces
        if carries_loss(trace, mask_truncated=settings.mask_truncated)
    ]
    return Batch(
        rows=tuple(rows),
        normaliser=normaliser(lengths, settings.loss_weights),
        tokens=sum(tokens for tokens, _ in lengths),
    )


def make_rows(
    groups: Sequence[TraceGroup],
    values: Sequence[Sequence[float]],
    *,
    version: int,
    mask_truncated: bool,
    row_tokens: int,
    weights: LossWeights = "token",
    by_token: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
) -> list[Row]:
    """Returns rows of at most `row_tokens` tokens. A group too long for one row is split over several.
    0 means no limit.

    A prompt with a single completion that is longer than `row_tokens` still becomes a row.
    `values` are the advantages, one per trace; `by_token` has those of single tokens by the id of the trace.
    `version` is the trainer's; ages are counted from it.
    If `mask_truncated` is set, truncated completions count in the group's baseline but carry no loss.
    """
    rows: list[Row] = []
    for group, group_values in zip(groups, values, strict=True):
        scored = [
            ScoredCompletion(
                trace.completion.token_ids,
                trace.completion.logprobs,
                advantage=advantage,
                age=version - group.policy.number,
                weight=token_weight(len(trace.completion.token_ids), weights),
                trace=trace.id,
                token_advantages=by_token.get(trace.id, ()),
            )
            for trace, advantage in zip(group.traces, group_values, strict=True)
            if carries_loss(trace, mask_truncated=mask_truncated)
        ]
        rows += [
            Row(group.prompt_token_ids, part, group.sampling.temperature, group.id)
            for part in _split(scored, (row_tokens or sys.maxsize) - len(group.prompt_token_ids))
        ]
    return rows


def carries_loss(trace: Trace, *, mask_truncated: bool) -> bool:
    """Returns whether the completion of a trace has tokens and is not masked as truncated."""
    return bool(trace.completion.token_ids) and not (mask_truncated and trace.completion.truncated)


def token_weight(tokens: int, by: LossWeights) -> float:
    """Returns the weight of each token of a completion of `tokens` tokens.

    >>> token_weight(4, "token"), token_weight(4, "sequence"), token_weight(4, "constant")
    (1.0, 0.25, 1.0)
    """
    return 1.0 / tokens if by == "sequence" else 1.0


def normaliser(lengths: Sequence[tuple[int, int]], by: LossWeights) -> float:
    """Returns the divisor of the sum over the batch; 1 for a batch without tokens.

    `lengths` are those of the completions that carry loss, each with the most tokens that it could have had.

    >>> batch = [(4, 64), (10, 64)]
    >>> normaliser(batch, "token"), normaliser(batch, "sequence"), normaliser(batch, "constant")
    (14, 2, 128)
    """
    if by == "sequence":
        return max(1, len(lengths))
    return max(1, sum(tokens if by == "token" else limit for tokens, limit in lengths))


def _split(completions: Sequence[ScoredCompletion], tokens: int) -> list[tuple[ScoredCompletion, ...]]:
    """Splits completions into runs of at most `tokens` tokens each, or one completion."""
    parts: list[list[ScoredCompletion]] = []
    room = 0
    for completion in completions:
        if not parts or len(completion.token_ids) > room:
            parts.append([])
            room = tokens
        parts[-1].append(completion)
        room -= len(completion.token_ids)
    return [tuple(part) for part in parts]

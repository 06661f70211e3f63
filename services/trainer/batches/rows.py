"""Turns groups into rows of tokens with advantages and token weights. No torch.

A row is one prompt followed by as many of its completions as fit; the prompt is computed once and shared. In
an episode whose conversation grows, completions also follow each other, with what the environment said
between them; a turn with a prompt of its own has a row of its own. Prompt tokens, including the generation
prompt and all that the environment said, are context: they never carry loss.

The loss of a batch is the sum over all its tokens of weight x loss / normaliser. Both are computed for the
whole batch, so the gradient does not depend on how it is split into micro-batches. Masked completions are
neither summed nor counted.

    token      weight 1       normaliser: all tokens           DAPO (arXiv 2503.14476, eq. 8)
    sequence   weight 1/|o|   normaliser: completions          GRPO (2402.03300, eq. 3), GSPO (2507.18071)
    constant   weight 1       normaliser: sum of token limits  Dr. GRPO (2503.20783, appendix A)
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from rookery.advantages import ComparedReturns, compared_returns, in_order_of_turns
from rookery.config.objective import LossWeights
from rookery.config.trainer import TrainerSettings
from rookery.metrics import TRAINER_STALE_TURNS
from rookery.trace import TraceGroup, Turn
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
    turn: str = ""
    """The id of its turn: see `TraceGroup.turn_ids`."""
    token_advantages: tuple[float, ...] = ()
    """The advantages of its tokens, if they do not all have `advantage`."""
    context: tuple[int, ...] | None = None
    """The tokens between it and the completion before it in the row, which it goes on from. None: it follows
    the prompt."""


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and some of its completions, in one sequence."""

    prompt_ids: tuple[int, ...]
    completions: tuple[ScoredCompletion, ...]
    temperature: float
    group_id: str = ""

    @property
    def length(self) -> int:
        """The number of input tokens. The last token that predicts nothing is left out."""
        return len(self.prompt_ids) + sum(
            len(c.token_ids) - 1 + (0 if c.context is None else 1 + len(c.context)) for c in self.completions
        )


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """The importance ratio and the advantage of each token of a completion, as the loss used them."""

    ratios: list[float]
    advantages: list[float]


FiguresByTurn: TypeAlias = Mapping[str, TokenFigures]
"""The figures of completions by the ids of their turns."""


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
    by_turn = _values(groups, settings=settings, averages=averages)
    for group, group_values in zip(groups, by_turn, strict=True):
        if not all(map(math.isfinite, group_values)):  # the averages of a damaged commit can cause that
            raise ArithmeticError(
                f"group {group.id}: advantages {tuple(group_values)!r} of rewards {group.rewards!r}"
            )
    by_token = token_advantages(groups, by_turn, settings=settings) if settings.process_rewards else {}
    rows = make_rows(
        groups,
        by_turn,
        by_token=by_token,
        version=version,
        mask_truncated=settings.mask_truncated,
        row_tokens=settings.row_tokens or settings.micro_batch_tokens,
        weights=settings.loss_weights,
        max_age=settings.max_staleness,
    )
    ages = [version - group.policy_of(turn).number for group in groups for turn in group.turns]
    TRAINER_STALE_TURNS.inc(sum(age > settings.max_staleness for age in ages))
    lengths = [
        (len(turn.completion.token_ids), settings.loss_constant or group.sampling.max_tokens)
        for group in groups
        for turn in group.turns
        if carries_loss(turn, mask_truncated=settings.mask_truncated)
        and version - group.policy_of(turn).number <= settings.max_staleness
    ]
    return Batch(
        rows=tuple(rows),
        normaliser=normaliser(lengths, settings.loss_weights),
        tokens=sum(tokens for tokens, _ in lengths),
    )


def _values(
    groups: Sequence[TraceGroup], *, settings: TrainerSettings, averages: RewardAverages | None
) -> list[list[float]]:
    """The advantages of the turns, by group."""
    compared = [
        compared_returns(group.turn_rewards, mean=settings.turn_rewards == "mean") for group in groups
    ]
    by_role: dict[str, list[ComparedReturns]] = {}
    for peers in (peers for of_group in compared for peers in of_group):
        by_role.setdefault(peers.role, []).append(peers)
    values = dict[int, Sequence[float]]()
    for role, of_role in by_role.items():
        of_peers = advantages(
            [peers.returns for peers in of_role],
            baseline=settings.baseline,
            normalise=settings.normalise,
            averages=averages and averages.of(role),
            sigma_floor=settings.sigma_floor,
        )
        values |= zip(map(id, of_role), of_peers, strict=True)
    return [in_order_of_turns(peers, [values[id(p)] for p in peers]) for peers in compared]


def make_rows(
    groups: Sequence[TraceGroup],
    values: Sequence[Sequence[float]],
    *,
    version: int,
    mask_truncated: bool,
    row_tokens: int,
    weights: LossWeights = "token",
    by_token: Mapping[str, tuple[float, ...]] = MappingProxyType({}),
    max_age: int = sys.maxsize,
) -> list[Row]:
    """Returns rows of at most `row_tokens` tokens. A group too long for one row is split over several.
    0 means no limit.

    A prompt with a single completion that is longer than `row_tokens` still becomes a row.
    `values` are the advantages, one per turn; `by_token` has those of single tokens by the id of the turn.
    `version` is the trainer's; ages are counted from it.
    If `mask_truncated` is set, truncated completions count in the group's baseline but carry no loss. So do
    turns older than `max_age` versions, whose episodes went on by newer ones.
    """
    rows: list[Row] = []
    for group, group_values in zip(groups, values, strict=True):
        scored = [
            ScoredCompletion(
                turn.completion.token_ids,
                turn.completion.logprobs,
                advantage=advantage,
                age=version - group.policy_of(turn).number,
                weight=token_weight(len(turn.completion.token_ids), weights),
                turn=id,
                token_advantages=by_token.get(id, ()),
            )
            if carries_loss(turn, mask_truncated=mask_truncated)
            and version - group.policy_of(turn).number <= max_age
            else None
            for turn, id, advantage in zip(group.turns, group.turn_ids, group_values, strict=True)
        ]
        by_prompt: dict[tuple[int, ...], list[list[ScoredCompletion]]] = {}
        for prompt_ids, conversation in _conversations(group, scored):
            by_prompt.setdefault(prompt_ids, []).append(conversation)
        rows += [
            Row(prompt_ids, part, group.sampling.temperature, group.id)
            for prompt_ids, conversations in by_prompt.items()
            for part in _split(conversations, (row_tokens or sys.maxsize) - len(prompt_ids))
        ]
    return rows


def _conversations(
    group: TraceGroup, scored: Sequence[ScoredCompletion | None]
) -> Iterator[tuple[tuple[int, ...], list[ScoredCompletion]]]:
    """Yields prompts with the completions that go on from each other after them. `scored` has those of the
    group's turns; None carries no loss, and is context of the turns after it."""
    completions = iter(scored)
    for trace in group.traces:
        prompt: tuple[int, ...] = ()
        between: tuple[int, ...] = ()
        conversation: list[ScoredCompletion] = []
        for turn in trace.turns:
            if turn.continues:
                between += turn.prompt_token_ids
            else:
                if conversation:
                    yield prompt, conversation
                prompt, between, conversation = group.prompt_tokens_of(turn), (), []
            if completion := next(completions):
                if conversation:
                    completion = replace(completion, context=between)
                else:
                    prompt += between
                conversation.append(completion)
                between = ()
            else:
                between += turn.completion.token_ids
        if conversation:
            yield prompt, conversation


def carries_loss(turn: Turn, *, mask_truncated: bool) -> bool:
    """Returns whether the completion of a turn has tokens and is not masked as truncated."""
    return bool(turn.completion.token_ids) and not (mask_truncated and turn.completion.truncated)


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


def _split(
    conversations: Sequence[Sequence[ScoredCompletion]], tokens: int
) -> list[tuple[ScoredCompletion, ...]]:
    """Splits conversations into runs of at most `tokens` tokens each, or one conversation."""
    parts: list[list[ScoredCompletion]] = []
    room = 0
    for conversation in conversations:
        length = sum(len(c.token_ids) + len(c.context or ()) for c in conversation)
        if not parts or length > room:
            parts.append([])
            room = tokens
        parts[-1] += conversation
        room -= length
    return [tuple(part) for part in parts]

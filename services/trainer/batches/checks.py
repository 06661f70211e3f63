"""Which groups may be trained on, by how they were sampled and judged."""

import math

import chess

from rookery.errors import WireError
from rookery.trace import TraceGroup

_LARGEST = 1e18
"""The largest reward whose square fits float32. Above it, deviations are infinite and advantages become 0."""


def check_group(group: TraceGroup) -> None:
    """Checks that a group was sampled from the whole distribution, has one reward version and a board, and
    that its numbers are finite. NaN is never read as 0.

    Raises:
        WireError: it was sampled greedily or with top_p or top_k, has several reward versions, or no board.
        ArithmeticError: a reward is too large or NaN, or a log-probability is not finite. The message names
            the group, the completion and the value.
    """
    drawn = group.sampling
    if not drawn.temperature > 0.0 or drawn.top_p != 1.0 or drawn.top_k > 0:
        raise WireError(
            f"group {group.id!r}: drawn at temperature {drawn.temperature!r} with top_p {drawn.top_p!r} and "
            f"top_k {drawn.top_k!r}; importance ratios need all tokens at a temperature above 0"
        )
    if len(group.reward_versions) > 1:
        raise WireError(f"group {group.id!r} has reward versions {', '.join(group.reward_versions)}")
    try:
        chess.Board(group.prompt.fen)
    except ValueError as error:
        raise WireError(f"group {group.id!r}: {error}") from error
    for slot, trace in enumerate(group.traces):
        claims = (claim for sentence in trace.verdict.sentences for claim in sentence.claims)
        rewards = (
            trace.verdict.reward,
            *(step.reward for step in trace.verdict.process_rewards),
            *(claim.weight or 0.0 for claim in claims),
        )
        if wrong := [reward for reward in rewards if not abs(reward) <= _LARGEST]:  # NaN compares false
            raise ArithmeticError(f"group {group.id}: reward of completion {slot} is {wrong[0]!r}")
        for place, logprob in enumerate(trace.completion.logprobs):
            if not math.isfinite(logprob):
                where = f"token {place} of completion {slot}"
                raise ArithmeticError(f"group {group.id}: log-probability of {where} is {logprob!r}")

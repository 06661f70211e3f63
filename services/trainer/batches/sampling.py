"""Which groups may be trained on, by how they were sampled and judged."""

import chess

from rookery.errors import WireError
from rookery.trace import TraceGroup


def check_sampling(group: TraceGroup) -> None:
    """Checks that a group was sampled from the whole distribution and has one reward version and a board.

    Raises:
        WireError: it was sampled greedily or with top_p or top_k, has several reward versions, or no board.
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

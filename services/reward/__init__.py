"""The reward: judges a model's answer to a chess position with Stockfish. In Python, over HTTP or over gRPC.

    from services.reward import reward
    reward("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", r"\\boxed{Ra8#}")  # 0.0: no move is better

The import is cheap. The first call starts Stockfish.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookery.errors import RookeryError
    from rookery.trace import Verdict
    from services.reward.scorer import Item

__all__ = ["reward", "verdict", "verdicts"]


def reward(board_state: str, model_response: str, *, scheme: str = "", truncated: bool = False) -> float:
    """The reward of `model_response` as an answer to the position `board_state`, a FEN.

    With the default scheme, this is the change in win probability, in [-1, 0]. It is below -1 if the answer
    is not a legal move. `truncated` means that the completion was cut at its token limit.

    Raises:
        InvalidInput: the FEN or the scheme is not valid, or the position has no legal move.
        EngineFault: Stockfish died. Call again.
        SetupError: Stockfish was not found.
    """
    return verdict(board_state, model_response, scheme=scheme, truncated=truncated).reward


def verdict(
    board_state: str,
    model_response: str,
    *,
    scheme: str = "",
    truncated: bool = False,
    task: str = "",
    move: str = "",
) -> "Verdict":
    """The full verdict behind `reward`. Raises the same exceptions."""
    from services.reward.local import shared_scorer
    from services.reward.scorer import Item

    return shared_scorer().score(Item(board_state, model_response, task, scheme, truncated, move))


def verdicts(items: "Sequence[Item]") -> "list[Verdict | RookeryError]":
    """The verdicts of many answers, in the order of `items`. Uses all engines in parallel.

    An item that cannot be judged gets an error in its place, which is returned, not raised.

    Raises:
        SetupError: Stockfish was not found.
    """
    from services.reward.local import shared_scorer

    return shared_scorer().score_batch(items)

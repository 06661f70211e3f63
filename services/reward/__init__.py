"""(fen, response) to Verdict: parser, win probability, Stockfish pool, HTTP and gRPC.

    from services.reward import reward
    reward("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", r"\\boxed{Ra8#}")  # 0.0: nothing is better

Importing this costs nothing; the first call starts Stockfish.
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

    Under the default scheme the change in win probability, in [-1, 0]; below -1 without a legal move.

    Raises:
        InvalidInput: no FEN, or a position without a legal move.
        EngineFault: Stockfish died; call again.
        SetupError: there is no Stockfish.
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
    """The whole judgement behind `reward`; raises the same."""
    from services.reward.local import shared
    from services.reward.scorer import Item

    return shared().score(Item(board_state, model_response, task, scheme, truncated, move))


def verdicts(items: "Sequence[Item]") -> "list[Verdict | RookeryError]":
    """The judgements of many answers, on all engines at once; an error in the slot of one without."""
    from services.reward.local import shared

    return shared().score_batch(items)

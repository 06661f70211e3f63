"""The reward: judges a model's answer to a chess position with Stockfish. In Python, over HTTP or over gRPC.

    from services.reward import reward
    reward("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", r"\\boxed{Ra8#}")  # 0.0: no move is better

The import is cheap. The first call starts Stockfish and a background thread, which end with the process. A
forked child starts its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from rookery.trace import ScoreItem

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from rookery.config.reward import RewardSettings
    from rookery.errors import RookeryError
    from rookery.trace import Verdict

__all__ = ["LocalScorer", "reward", "verdict"]

Result = TypeVar("Result")


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


def verdict(board_state: str, model_response: str, **fields: Any) -> Verdict:
    """The full verdict behind `reward`, with all `fields` of `ScoreItem`. Raises the same exceptions."""
    return shared_scorer().score(ScoreItem(board_state, model_response, **fields))


class LocalScorer:
    """A `Scorer` on a background thread. It can be called from any other thread."""

    def __init__(self, settings: RewardSettings) -> None:
        from services.reward.scorer import Scorer

        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="reward", daemon=True)
        self._thread.start()
        try:
            self._scorer = self._run(Scorer.start(settings))
        except BaseException:
            self._stop()
            raise

    def score(self, item: ScoreItem) -> Verdict:
        """The verdict of one answer. Raises the same exceptions as `Scorer.score`."""
        return self._run(self._scorer.score(item))

    def score_batch(self, items: Sequence[ScoreItem | RookeryError]) -> list[Verdict | RookeryError]:
        """Verdicts in the order of `items`. An item that cannot be judged gets an error in its place."""
        return self._run(self._scorer.score_batch(items))

    @property
    def alive(self) -> bool:
        """Whether it can be used: it is not closed, and this is the process that started it."""
        return self.pid == os.getpid() and not self._loop.is_closed()

    def close(self) -> None:
        """Stops the engines and the thread. Does nothing in a fork of the process, which has neither."""
        if self.alive and self._loop.is_running():
            self._run(self._scorer.close())
            self._stop()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_lock = threading.Lock()
_shared: LocalScorer | None = None


def shared_scorer() -> LocalScorer:
    """The scorer of this process. It is started if there is none or it was closed. Settings come from
    `REWARD_*` variables. Raises `SetupError` if Stockfish was not found or does not work."""
    global _shared
    with _lock:
        if _shared is None or not _shared.alive:
            from rookery.config.reward import RewardSettings

            _shared = LocalScorer(RewardSettings.parse([], prog="services.reward"))
            atexit.register(_shared.close)
        return _shared

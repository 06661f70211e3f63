"""The searches of one request, before the engines of a pool."""

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from rookery.engines.job import Job
from rookery.errors import RookeryError
from rookery.uci import Analysis, Query

Answer: TypeAlias = "Callable[[Sequence[Query], Lane], Coroutine[Any, Any, list[Analysis | RookeryError]]]"
"""Has a pool answer queries, in a lane's turns."""


class Lane:
    """The searches of one request: lanes with work take turns at the engines."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.jobs: deque[Job] = deque()

    async def search(self, query: Query) -> Analysis:
        """The engine's answer to `query`.

        Raises:
            Unavailable: the queue is full, or the search waited too long in it.
            Quarantined: the position has killed two engines.
            EngineFault: no engine can be started, or the engine answered nonsense.
        """
        (result,) = await self.search_all([query])
        if isinstance(result, Analysis):
            return result
        raise result

    async def search_all(self, queries: Sequence[Query]) -> list[Analysis | RookeryError]:
        """The answers to `queries` in their order, an error in the place of one that `search` would raise.

        Whoever cancels this gives up all of them.
        """
        return await self._answer(queries, self)

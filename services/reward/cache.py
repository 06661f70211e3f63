"""Caches analyses in this process and, if it is set, in the Redis that replicas share.

Searches are deterministic, so an entry never becomes stale. In this process, the least recently used entry
is dropped first. The key in Redis names everything that an analysis depends on, so replicas with different
engines, nodes or hash sizes can share one Redis.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ConfigDict, TypeAdapter

from rookery import metrics
from rookery.engines import RequestQueue
from rookery.errors import RookeryError
from rookery.trace import Evaluation
from rookery.uci import Analysis, Line, Query

if TYPE_CHECKING:
    from rookery.shared_cache import SharedCache

SIZE = 200_000
"""Entries of the cache in this process; about 120 MB when full."""

_HITS = metrics.REWARD_CACHE.labels("hit")
_SHARED = metrics.REWARD_CACHE.labels("shared")
_MISSES = metrics.REWARD_CACHE.labels("miss")


_WIRE = TypeAdapter(
    tuple[int, list[tuple[int | None, int | None, tuple[int, int, int] | None, str]]],
    config=ConfigDict(strict=True),
)
"""The form of an analysis in Redis: its nodes, then cp, mate, wdl and moves of each line."""


class AnalysisCache:
    """Caches up to `size` analyses of one engine. `engine` names the engine's id and hash size."""

    def __init__(self, *, engine: str, shared: SharedCache | None = None, size: int = SIZE) -> None:
        self._engine = engine
        self._shared = shared
        self._size = size
        self._known: OrderedDict[Query, Analysis] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, query: Query) -> Analysis | None:
        """The analysis from this process's cache, or None."""
        analysis = self._known.get(query)
        if analysis is not None:
            self._known.move_to_end(query)
            _HITS.inc()
        return analysis

    async def find_all(self, queries: Sequence[Query], queue: RequestQueue) -> list[Analysis | RookeryError]:
        """The analyses of `queries`, in their order. Looks in this process, then in Redis, and searches the
        rest with `queue`. If a search fails, its error is in the place of the analysis."""
        results: dict[Query, Analysis | RookeryError] = {}
        missing = []
        for query in dict.fromkeys(queries):
            if (analysis := self.get(query)) is None:
                missing.append(query)
            else:
                results[query] = analysis
        if missing and self._shared is not None:
            await self._look_up(missing, results, self._shared)
            missing = [query for query in missing if query not in results]
        if missing:
            _MISSES.inc(len(missing))
            for query, result in zip(missing, await queue.search_all(missing), strict=True):
                results[query] = self._keep(query, result) if isinstance(result, Analysis) else result
        return [results[query] for query in queries]

    async def _look_up(
        self, queries: list[Query], found: dict[Query, Analysis | RookeryError], shared: SharedCache
    ) -> None:
        values = await shared.get_many([self._key(query) for query in queries])
        for query, value in zip(queries, values, strict=True):
            if value is not None and (analysis := _decode(value)) is not None:
                _SHARED.inc()
                found[query] = self._remember(query, analysis)

    def _keep(self, query: Query, analysis: Analysis) -> Analysis:
        # Only the first move of a line is ever used, and the others are most of its size.
        lines = tuple(Line(line.evaluation, line.pv[:1], line.wdl) for line in analysis.lines)
        analysis = self._remember(query, Analysis(lines, analysis.nodes))
        if self._shared is not None:
            self._shared.put(self._key(query), _encode(analysis))
        return analysis

    def _remember(self, query: Query, analysis: Analysis) -> Analysis:
        self._known[query] = analysis
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return analysis

    def _key(self, query: Query) -> str:
        variant = "960" if query.chess960 else "std"
        return f"{self._engine}:{query.nodes}:{query.lines}:{variant}:{query.fen}:{query.move or '-'}"


def _encode(analysis: Analysis) -> bytes:
    lines = [
        [line.evaluation.cp, line.evaluation.mate, line.wdl, " ".join(line.pv)] for line in analysis.lines
    ]
    return json.dumps([analysis.nodes, lines], separators=(",", ":")).encode()


def _decode(value: bytes) -> Analysis | None:
    """The analysis in `value`, or None if it is not one. The search is then made anew."""
    try:
        nodes, lines = _WIRE.validate_json(value)
        return Analysis(tuple(_line(*line) for line in lines), nodes) if lines else None
    except ValueError:
        return None


def _line(cp: int | None, mate: int | None, wdl: tuple[int, int, int] | None, pv: str) -> Line:
    if (cp is None) == (mate is None) or not pv:
        raise ValueError(f"no line: {cp!r}, {mate!r}, {pv!r}")
    return Line(Evaluation(cp=cp, mate=mate), tuple(pv.split()), wdl)

"""A scorer whose verdicts wait for the test."""

import asyncio
from collections.abc import Sequence
from dataclasses import astuple

from rookery.trace import Outcome, ScoreItem, Verdict


class GatedScorer:
    """Judges a group when its gate is open: the gate's name is the first item's response."""

    def __init__(self) -> None:
        self.all_open = asyncio.Event()
        self.begun: list[str] = []
        self.judging = 0
        self.most_judging = 0
        self.cancelled = 0
        self._gates: dict[str, asyncio.Event] = {}

    def open(self, gate: str) -> None:
        self._gates.setdefault(gate, asyncio.Event()).set()

    async def unavailable_reason(self) -> str | None:
        return None

    async def score_batch(self, items: Sequence[ScoreItem]) -> list[Verdict]:
        if not items:
            return []
        self.begun.append(items[0].response)
        self.judging += len(items)
        self.most_judging = max(self.most_judging, self.judging)
        try:
            await self._opened(items[0].response)
        except asyncio.CancelledError:
            self.cancelled += len(items)
            raise
        finally:
            self.judging -= len(items)
        return [verdict_of(item) for item in items]

    async def _opened(self, gate: str) -> None:
        waits = [asyncio.ensure_future(self.all_open.wait())]
        waits.append(asyncio.ensure_future(self._gates.setdefault(gate, asyncio.Event()).wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def verdict_of(item: ScoreItem) -> Verdict:
    """What `GatedScorer` says of an item: everything the wire carried, to compare."""
    return Verdict(reward=-0.25, outcome=Outcome.LEGAL, reward_version="|".join(map(str, astuple(item))))

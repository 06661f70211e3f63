"""Makes preference pairs until there are enough. Positions, policy and engine work at the same time.

Positions are numbered and grouped in parts of `PART_SIZE`. A part is written when all of its positions have
been judged, so an interrupted run loses only unfinished parts. The data set consists of the first parts, by
number, that together have enough pairs; the order in which they were finished does not matter. The same
recipe therefore gives the same pairs. If only repeated positions are left, the work ends with fewer pairs.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from itertools import chain, count, islice
from typing import Any

from rookery.clients import InferenceClient, RewardClient
from rookery.errors import PeerFault
from rookery.prompt import render
from rookery.trace import Completion, Position, Sampling
from services.data.concurrency import as_completed
from services.data.pairs.preference import (
    PAIRS,
    NoPair,
    Pair,
    PairRecipe,
    PairRequest,
    pair_of,
    pair_request,
    without_repeats,
)
from services.data.positions.distinct import position_key
from services.data.positions.numbered import PART_SIZE, NumberedPositions
from services.data.store.datasets import Parts, write_manifest
from services.data.store.folders import Folder
from services.data.store.jsonl import jsonl_writer
from services.data.store.parquet import record_writer

BARREN_PARTS = 32
"""The work ends after this many parts in a row without a new pair."""

_IN_FLIGHT = 512
"""Answers sent to the reward service at once: enough for 64 engines, and few to discard at the end."""

_BACKOFF_S = (0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts to reach the policy."""


@dataclass(frozen=True)
class Policy:
    """The model whose weaker moves are wanted, on one or more inference servers."""

    servers: Sequence[InferenceClient]
    model: str
    completions: int
    sampling: Sampling

    async def answers(self, number: int, position: Position, recipe: PairRecipe) -> tuple[Completion, ...]:
        """The policy's completions for a position.

        Raises:
            PeerFault: the server does not answer, even after retries.
        """
        server = self.servers[number % len(self.servers)]
        prompt, seed = render(position, style=recipe.style), (recipe.seed << 32) + number * self.completions
        for pause_s in (*_BACKOFF_S, None):
            try:
                made = await server.complete(
                    prompt, model=self.model, count=self.completions, sampling=self.sampling, seed=seed
                )
                break
            except PeerFault:
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
        return made.completions


@dataclass
class PairTally:
    """Counts the finished parts up to the first unfinished one, and the distinct positions that have pairs.

    Parts after `BARREN_PARTS` parts in a row without a new pair are not counted.
    """

    pairs: int = 0
    parts: int = 0
    barren: int = 0
    seen: set[int] = field(default_factory=set)
    _ahead: dict[int, list[int]] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        return self.barren >= BARREN_PARTS

    def add(self, part: int, pairs: Sequence[Pair]) -> None:
        self._ahead[part] = [position_key(pair.fen) for pair in pairs]
        while self.parts in self._ahead and not self.exhausted:
            before = len(self.seen)
            self.seen.update(self._ahead.pop(self.parts))
            new = len(self.seen) - before
            self.pairs += new
            self.parts += 1
            self.barren = 0 if new else self.barren + 1


class PairMaker:
    """Makes one data set. Parts that an earlier run finished are reused."""

    def __init__(
        self,
        supply: NumberedPositions,
        recipe: PairRecipe,
        parts: Parts[Pair],
        *,
        wanted: int,
        policy: Policy | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._supply = supply
        self._recipe = recipe
        self._parts = parts
        self._wanted = wanted
        self._policy = policy
        self._executor = executor if supply.picklable else None  # None: the event loop's threads
        self._made: dict[int, list[tuple[int, Pair]]] = {}
        self._judged: Counter[int] = Counter()
        self._misses: dict[int, Counter[str]] = {}
        self.tally = PairTally()
        for part in sorted(parts.done):
            self.tally.add(part, list(parts.read(part)))

    @property
    def enough(self) -> bool:
        return self.tally.pairs >= self._wanted

    @property
    def done(self) -> bool:
        """Whether there are enough pairs, or new ones have become too rare to continue."""
        return self.enough or self.tally.exhausted

    async def run(self, client: RewardClient, *, in_flight: int, advance: Callable[[int], None]) -> None:
        """Works until there are enough pairs or no more positions. `advance` is called with 1 for each pair.

        Raises:
            PeerFault: the policy or the reward service does not answer; a later run continues from here.
        """
        if self.done:
            return
        asked = self._asked(limit=in_flight)
        judged = client.stream(asked, scheme="delta", items=_IN_FLIGHT)
        async with aclosing(asked), aclosing(judged) as answers:
            async for asked_question, slots in answers:
                pair = pair_of(asked_question, slots, self._recipe)
                advance(isinstance(pair, Pair))
                self._take(asked_question.number, pair)
                if self.done:
                    return

    def pairs(self) -> Iterator[Pair]:
        """The wanted number of pairs, ordered by position number, without repeated positions."""
        made = chain.from_iterable(self._parts.read(part) for part in range(self.tally.parts))
        return islice(without_repeats(made, seen=set()), self._wanted)

    def counts(self) -> Counter[str]:
        """How many positions of the counted parts gave a pair, or why they gave none."""
        total: Counter[str] = Counter()
        for part in range(self.tally.parts):
            total.update(self._parts.counts(part))
        return total

    async def _asked(self, *, limit: int) -> AsyncGenerator[tuple[PairRequest, Any]]:
        async with aclosing(as_completed(self._numbers(), self._question, limit=limit)) as questions:
            async for number, asked in questions:
                if asked is None:
                    self._take(number, NoPair.IN_EXAM)
                else:
                    yield asked, asked.items()

    def _numbers(self) -> Iterator[int]:
        for part in count():
            numbers = self._supply.part(part)
            if not numbers or self.done:
                return
            if part not in self._parts.done:
                yield from numbers

    async def _question(self, number: int) -> tuple[int, PairRequest | None]:
        """The number and its question, or None if the position is in an exam."""
        loop = asyncio.get_running_loop()
        position = await loop.run_in_executor(self._executor, self._supply.position, number)
        if position_key(position.fen) in self._supply.excluded:
            return number, None
        if self._policy is None:
            return number, await asyncio.to_thread(pair_request, number, position, self._recipe)
        answers = await self._policy.answers(number, position, self._recipe)
        return number, pair_request(
            number, position, self._recipe, answers=answers, policy=self._policy.model
        )

    def _take(self, number: int, pair: Pair | NoPair) -> None:
        part = number // PART_SIZE
        made, misses = self._made.setdefault(part, []), self._misses.setdefault(part, Counter())
        if isinstance(pair, Pair):
            made.append((number, pair))
        else:
            misses[pair.value] += 1
        self._judged[part] += 1
        if self._judged[part] == len(self._supply.part(part)):
            self._finish(part)

    def _finish(self, part: int) -> None:
        made = [pair for _, pair in sorted(self._made.pop(part), key=lambda numbered: numbered[0])]
        counts = {"positions": self._judged.pop(part), "pairs": len(made), **self._misses.pop(part)}
        self._parts.write(part, made, counts=counts)
        self.tally.add(part, made)


PARQUET = "pairs.parquet"


def write_pairs(
    pairing: PairMaker, folder: Folder, *, terms: Mapping[str, Any], jsonl: str | None = None
) -> dict[str, Any]:
    """Writes the pairs and returns the manifest. `jsonl` names the second file, if one is wanted."""
    summary = _Summary()
    with ExitStack() as files:
        table = files.enter_context(record_writer(folder, PARQUET, PAIRS))
        lines = files.enter_context(jsonl_writer(folder, jsonl)) if jsonl else None
        for pair in pairing.pairs():
            summary.add(pair)
            table.add(pair)
            if lines:
                lines.add(asdict(pair))
    written = [table.written, *([lines.written] if lines else [])]
    return write_manifest(folder, PAIRS.name, written, terms=terms, facts=summary.facts(pairing.counts()))


class _Summary:
    """Statistics of the pairs."""

    def __init__(self) -> None:
        self.by: dict[str, Counter[str]] = {
            "origin": Counter(),
            "phase": Counter(),
            "reward_version": Counter(),
        }
        self.gaps: list[float] = []

    def add(self, pair: Any) -> None:
        for name, counter in self.by.items():
            counter[str(getattr(pair, name))] += 1
        self.gaps.append(pair.gap)

    def facts(self, counts: Counter[str]) -> dict[str, Any]:
        """The statistics for the manifest. `counts` are those of the parts."""
        pairs = len(self.gaps)
        positions, made = counts.pop("positions", 0), counts.pop("pairs", 0)
        return {
            "pairs": pairs,
            "positions": positions,
            "left_out": {**dict(sorted(counts.items())), "repeated_or_more_than_wanted": made - pairs},
            "mean_gap": round(math.fsum(self.gaps) / pairs, 6) if pairs else None,
            **{f"by_{name}": dict(sorted(counter.items())) for name, counter in self.by.items()},
        }

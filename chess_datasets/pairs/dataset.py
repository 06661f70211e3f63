"""Makes preference pairs until there are enough, and writes them as a data set.

Positions, policy and engine work at the same time. Positions are numbered and grouped in parts of
`PART_SIZE`. A part is written once all of its positions are scored, so an interrupted run loses only
unfinished parts.

The data set consists of the first parts, by number, that together have enough pairs. The order in which they
were finished does not matter, so the same recipe gives the same pairs. If only repeated positions are left,
the work ends with fewer pairs.
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

from chess_datasets.jobs import as_completed
from chess_datasets.pairs.preference import (
    PAIRS,
    NoPair,
    Pair,
    PairRecipe,
    PairRequest,
    pair_of,
    pair_request,
    without_repeats,
)
from chess_datasets.positions.distinct import position_key
from chess_datasets.positions.numbered import PART_SIZE, NumberedPositions
from chess_datasets.store.datasets import Parts, write_manifest
from chess_datasets.store.folders import Folder
from chess_datasets.store.jsonl import jsonl_writer
from chess_datasets.store.parquet import record_writer
from rookery.clients import InferenceClient
from rookery.clients.score_stream import GroupScorer
from rookery.errors import PeerFault, SetupError
from rookery.prompt import render
from rookery.retries import retry
from rookery.trace import Completion, Position, Sampling

MAX_PARTS_WITHOUT_PAIR = 32
"""The work ends after this many parts in a row without a new pair."""

_IN_FLIGHT = 512
"""Answers sent to the reward service at once: enough for 64 engines, and few to throw away at the end."""

_PAUSES_S = (0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts to reach the policy."""


@dataclass(frozen=True)
class PairPolicy:
    """The model whose weaker moves are wanted, on one or more inference servers."""

    servers: Sequence[InferenceClient]
    model: str
    completions: int
    sampling: Sampling

    async def answers(self, number: int, position: Position, recipe: PairRecipe) -> tuple[Completion, ...]:
        """The policy's completions for a position. Raises `PeerFault` if the server does not answer, even
        after retries."""
        server = self.servers[number % len(self.servers)]
        prompt = render(position, style=recipe.asked_style)
        seed = (recipe.seed << 32) + number * self.completions
        result = await retry(
            lambda: server.complete(
                prompt, model=self.model, count=self.completions, sampling=self.sampling, seed=seed
            ),
            on=PeerFault,
            pauses_s=_PAUSES_S,
        )
        return result.completions


@dataclass
class FinishedParts:
    """Counts the finished parts up to the first unfinished one, and the distinct positions that have pairs.
    Parts after `MAX_PARTS_WITHOUT_PAIR` parts in a row without a new pair are not counted."""

    parts: int = 0
    without_pair: int = 0
    keys: set[int] = field(default_factory=set)
    _later: dict[int, list[int]] = field(default_factory=dict)

    @property
    def pairs(self) -> int:
        """The number of pairs in these parts, without repeated positions."""
        return len(self.keys)

    @property
    def exhausted(self) -> bool:
        """Whether new pairs have become too rare to continue."""
        return self.without_pair >= MAX_PARTS_WITHOUT_PAIR

    def add(self, part: int, pairs: Sequence[Pair]) -> None:
        self._later[part] = [position_key(pair.fen) for pair in pairs]
        while self.parts in self._later and not self.exhausted:
            before = len(self.keys)
            self.keys.update(self._later.pop(self.parts))
            self.parts += 1
            self.without_pair = self.without_pair + 1 if len(self.keys) == before else 0


class PairMaker:
    """Makes the pairs of one data set. Parts that an earlier run finished are reused."""

    def __init__(
        self,
        positions: NumberedPositions,
        recipe: PairRecipe,
        parts: Parts[Pair],
        *,
        wanted: int,
        policy: PairPolicy | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._positions = positions
        self._recipe = recipe
        self._parts = parts
        self._wanted = wanted
        self._policy = policy
        self._executor = executor if positions.picklable else None  # None: the event loop's threads
        self._numbered_pairs: dict[int, list[tuple[int, Pair]]] = {}
        self._scored: Counter[int] = Counter()
        self._misses: dict[int, Counter[str]] = {}
        self._finished = FinishedParts()
        self._keys: set[int] = set()  # of all pairs, those of unfinished parts included
        self._reward_version = ""
        for part in sorted(parts.done):
            pairs = list(parts.read(part))
            self._finished.add(part, pairs)
            for pair in pairs:
                self._note(pair)

    @property
    def pair_count(self) -> int:
        """The number of different pairs made so far, at most `wanted`."""
        return min(len(self._keys), self._wanted)

    @property
    def done(self) -> bool:
        """Whether there are enough pairs, or new ones have become too rare to continue."""
        return self._finished.pairs >= self._wanted or self._finished.exhausted

    async def run(self, scorer: GroupScorer, *, in_flight: int, advance: Callable[[int], None]) -> None:
        """Works until there are enough pairs or no more positions.

        `advance` is called with the increase of `pair_count` after each position.

        Raises:
            PeerFault: the policy or the reward service does not answer. A later run continues from here.
            SetupError: the service judges in another way than it judged the earlier pairs.
        """
        if self.done:
            return
        requests = self._requests(limit=in_flight)
        scored = scorer.stream(requests, scheme="delta", items=_IN_FLIGHT)
        async with aclosing(requests), aclosing(scored) as results:
            async for request, slots in results:
                before = self.pair_count
                self._add(request.number, pair_of(request, slots, self._recipe))
                advance(self.pair_count - before)
                if self.done:
                    return

    def pairs(self) -> Iterator[Pair]:
        """The pairs of the data set: as many as wanted, by position number, without repeated positions."""
        pairs = chain.from_iterable(self._parts.read(part) for part in range(self._finished.parts))
        return islice(without_repeats(pairs, seen=set()), self._wanted)

    def counts(self) -> Counter[str]:
        """How many positions of the counted parts gave a pair, or why they gave none."""
        total: Counter[str] = Counter()
        for part in range(self._finished.parts):
            total.update(self._parts.counts(part))
        return total

    async def _requests(self, *, limit: int) -> AsyncGenerator[tuple[PairRequest, Any]]:
        async with aclosing(as_completed(self._numbers(), self._request, limit=limit)) as requests:
            async for number, request in requests:
                if request is None:
                    self._add(number, NoPair.IN_EXAM)
                else:
                    yield request, request.items()

    def _numbers(self) -> Iterator[int]:
        for part in count():
            numbers = self._positions.part(part)
            if not numbers or self.done:
                return
            if part not in self._parts.done:
                yield from numbers

    async def _request(self, number: int) -> tuple[int, PairRequest | None]:
        """The number and its request, or None if an evaluation asks for the position."""
        loop = asyncio.get_running_loop()
        position = await loop.run_in_executor(self._executor, self._positions.position, number)
        if position_key(position.fen) in self._positions.excluded:
            return number, None
        if self._policy is None:
            return number, await asyncio.to_thread(pair_request, number, position, self._recipe)
        answers = await self._policy.answers(number, position, self._recipe)
        return number, pair_request(
            number, position, self._recipe, answers=answers, policy=self._policy.model
        )

    def _add(self, number: int, pair: Pair | NoPair) -> None:
        part = number // PART_SIZE
        pairs, misses = self._numbered_pairs.setdefault(part, []), self._misses.setdefault(part, Counter())
        if isinstance(pair, Pair):
            self._note(pair)
            pairs.append((number, pair))
        else:
            misses[pair.value] += 1
        self._scored[part] += 1
        if self._scored[part] == len(self._positions.part(part)):
            self._finish(part)

    def _note(self, pair: Pair) -> None:
        """Notes the position of a pair. Raises `SetupError` if it was judged in another way than earlier
        pairs, such as by another engine."""
        self._reward_version = self._reward_version or pair.reward_version
        if pair.reward_version != self._reward_version:
            raise SetupError(
                f"earlier pairs have reward version {self._reward_version!r}, {pair.id!r} has "
                f"{pair.reward_version!r}: use the same engine and reward service, or choose another --out"
            )
        self._keys.add(position_key(pair.fen))

    def _finish(self, part: int) -> None:
        pairs = [pair for _, pair in sorted(self._numbered_pairs.pop(part), key=lambda numbered: numbered[0])]
        counts = {"positions": self._scored.pop(part), "pairs": len(pairs), **self._misses.pop(part)}
        self._parts.write(part, pairs, counts=counts)
        self._finished.add(part, pairs)


PARQUET = "pairs.parquet"


def write_pairs(
    maker: PairMaker, folder: Folder, *, terms: Mapping[str, Any], jsonl: str | None = None
) -> dict[str, Any]:
    """Writes the pairs and returns the manifest. `jsonl` names the second file, if one is wanted."""
    by: dict[str, Counter[str]] = {name: Counter() for name in ("origin", "phase", "reward_version")}
    gaps: list[float] = []
    with ExitStack() as files:
        table = files.enter_context(record_writer(folder, PARQUET, PAIRS))
        lines = files.enter_context(jsonl_writer(folder, jsonl)) if jsonl else None
        for pair in maker.pairs():
            for name, counter in by.items():
                counter[str(getattr(pair, name))] += 1
            gaps.append(pair.gap)
            table.add(pair)
            if lines:
                lines.add(asdict(pair))
    counts = maker.counts()
    positions, pairs_made = counts.pop("positions", 0), counts.pop("pairs", 0)
    facts = {
        "pairs": len(gaps),
        "positions": positions,
        "left_out": {**dict(sorted(counts.items())), "repeated_or_more_than_wanted": pairs_made - len(gaps)},
        "mean_gap": round(math.fsum(gaps) / len(gaps), 6) if gaps else None,
        **{f"by_{name}": dict(sorted(counter.items())) for name, counter in by.items()},
    }
    written = [file.written for file in (table, lines) if file]
    return write_manifest(folder, PAIRS.name, written, terms=terms, facts=facts)

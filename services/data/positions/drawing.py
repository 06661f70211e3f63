"""Draws the positions of a recipe in one pass over files of games.

Memory use is a piece of a file for each process, and 32 bytes for each wanted position that exists. It does
not depend on the size of the files.
"""

import marshal
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from rookery.trace import Phase, Position
from services.data.pgn.files import Fingerprint, Source, identify
from services.data.pgn.jobs import Workers
from services.data.pgn.pieces import plan
from services.data.pgn.reader import handle_file
from services.data.pgn.shortage import nothing_to_sample
from services.data.positions.distinct import Questions
from services.data.positions.recipe import PositionRecipe, chance
from services.data.positions.reservoir import Reservoir
from services.data.positions.sieve import Sieve, Sifted
from services.data.progress import Progress

_SPARE = 64
"""Extra positions kept per phase, because a position may have different phases in different games."""


class Drawing:
    """Draws the positions of a recipe from some files, without those in `asked`."""

    def __init__(self, locations: Sequence[str], recipe: PositionRecipe, asked: Questions) -> None:
        self.found = Sifted()
        self.sources: list[Source] = []
        self.counts: Counter[str] = Counter()
        """The numbers of candidates, of candidates in exams, and of positions taken in each phase."""
        self._locations = locations
        self._recipe = recipe
        self._asked = asked
        self._wanted = recipe.shares.split(recipe.count)
        self._kept = {phase: Reservoir(n + _SPARE if n else 0) for phase, n in self._wanted.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for reservoir in self._kept.values():
            reservoir.close()

    def run(self, *, jobs: int) -> None:
        """Reads the files and keeps the best-ranked candidates.

        Raises:
            SetupError: a file cannot be read, or no game has a suitable position.
        """
        with Progress() as progress, Workers(jobs) as workers, ThreadPoolExecutor(1) as aside:
            for number, location in enumerate(self._locations):
                progress.begin(f"read {location.rpartition('/')[2]}", unit="games")
                fingerprint = Fingerprint(location)
                # Other processes read a file of several pieces, so it is hashed separately meanwhile.
                hashing = aside.submit(identify, location) if len(plan(location)) > 1 else None
                sieve = Sieve(self._recipe, location)
                for found in handle_file(location, sieve, workers, fingerprint.update):
                    progress.advance(found.sound + found.skipped.total() + found.rejected.total())
                    self._take(number, found)
                self.sources.append(hashing.result() if hashing else fingerprint.source)
        if not self.counts["candidates"]:
            raise nothing_to_sample(
                self.sources, self._recipe.split, self.found.named, rejected=self.found.rejected
            )

    def positions(self) -> Iterator[Position]:
        """Yields the positions taken, in shuffled order."""
        for phase, index in self._order():
            record = marshal.loads(self._kept[phase].text(index))  # noqa: S302 - written by `_record`
            number, game, fen, ply, game_id, last_moves, *elos = record
            self.counts[phase] += 1
            source = self.sources[number].sha256[:8]
            yield Position(f"{source}:{game}:{ply}", fen, ply, phase, game_id, last_moves, *elos)

    def _take(self, number: int, found: Sifted) -> None:
        """Adds the findings of a part of file `number`."""
        seed = self._recipe.seed
        for candidate in found.candidates:
            position = candidate.position
            reservoir = self._kept[position.phase]
            rank = chance(seed, candidate.key)
            if not reservoir.wants(rank):
                continue
            if candidate.key in self._asked:
                self.counts["in_exams"] += 1
                continue
            reservoir.add(rank, _record(number, candidate.number, position))
        self.counts["candidates"] += len(found.candidates)
        found.candidates = []
        self.found.merge(found)

    def _order(self) -> Iterator[tuple[Phase, int]]:
        """Phase and index of each position taken, shuffled. No position is taken in two phases."""
        ranks: NDArray[np.uint64] = np.empty(0, np.uint64)
        places: NDArray[np.int64] = np.empty(0, np.int64)
        phases: NDArray[np.int64] = np.empty(0, np.int64)
        for code, phase in enumerate(Phase):
            settled = self._kept[phase].settle()
            new = np.flatnonzero(~np.isin(settled, ranks))[: self._wanted[phase]]
            ranks = np.concatenate((ranks, settled[new]))
            places = np.concatenate((places, new))
            phases = np.concatenate((phases, np.full(len(new), code)))
        # Shuffle by the low bits of the ranks, which have not decided anything yet.
        order = np.argsort(ranks * np.uint64(0x9E3779B97F4A7C15) << np.uint64(20), kind="stable")
        names = list(Phase)
        for index in order.tolist():
            yield names[phases[index]], int(places[index])


def _record(number: int, game: int, position: Position) -> bytes:
    """For this process alone; JSON would take ten times as long."""
    return marshal.dumps(
        (
            number,
            game,
            position.fen,
            position.ply,
            position.game_id,
            position.last_moves,
            position.white_elo,
            position.black_elo,
        )
    )

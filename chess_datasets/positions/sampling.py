"""Draws the positions of a recipe in one pass over files of games.

Memory use is a piece of a file for each process, and 32 bytes for each wanted position that exists. It does
not depend on the size of the files.
"""

import marshal
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from chess_datasets.jobs import Progress
from chess_datasets.pgn.reader import handle_file
from chess_datasets.pgn.sources import nothing_to_sample
from chess_datasets.positions.candidates import CandidateFinder, CandidateFindings, PositionFinder
from chess_datasets.positions.distinct import PositionKeys
from chess_datasets.positions.recipe import PositionRecipe, splitmix64
from chess_datasets.store.files import Source
from rookery.processes.workers import Workers
from rookery.trace import Phase, Position

T = TypeVar("T")

_SPARE = 64
"""Extra positions kept per phase, because a position may have different phases in different games."""

_NO_LIMIT = 1 << 64
_FIRST_ROOM = 1 << 12
_SIZE_BYTES = 4
_READ_BYTES = 512  # usually one read: a position with its game is shorter


class Reservoir:
    """Keeps the records with the `size` smallest ranks; of equal ranks, the first one added.

    The rank of a record is a hash of its content, so records of equal rank are the same thing. The `size`
    smallest ranks are therefore a sample of distinct things, each with the same probability, whatever their
    order and however often each occurs (a bottom-k sketch). Texts are kept in a temporary file. Memory is 32
    bytes for each wanted record, or less if there are fewer records.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._limit = _NO_LIMIT if size else 0
        room = min(2 * size, _FIRST_ROOM)
        self._ranks = np.empty(room, np.uint64)
        self._places = np.empty(room, np.uint64)
        self._held = 0
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it

    def wants(self, rank: int) -> bool:
        """Whether a record of this rank might be kept."""
        return rank < self._limit

    def add(self, rank: int, text: bytes) -> None:
        if not self.wants(rank):
            return
        self._ranks[self._held] = rank
        self._places[self._held] = self._spool.tell()
        self._spool.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
        self._held += 1
        if self._held == len(self._ranks):
            self._prune()
            self._make_room()

    def finish(self) -> NDArray[np.uint64]:
        """The ranks kept, in order. Nothing may be added afterwards."""
        self._prune()
        self._spool.flush()
        return self._ranks[: self._held]

    def text(self, index: int) -> bytes:
        """The record of a rank, by its index in the result of `finish`."""
        place = int(self._places[index])
        start = os.pread(self._spool.fileno(), _READ_BYTES, place)
        end = _SIZE_BYTES + int.from_bytes(start[:_SIZE_BYTES], "little")
        rest = (
            os.pread(self._spool.fileno(), end - len(start), place + len(start)) if end > len(start) else b""
        )
        return (start + rest)[_SIZE_BYTES:end]

    def close(self) -> None:
        self._spool.close()

    def _make_room(self) -> None:
        """Doubles the arrays, up to twice `size`, if more than half of them is in use after pruning."""
        room = len(self._ranks)
        if 2 * self._held > room and room < 2 * self._size:
            room = min(2 * room, 2 * self._size)
            self._ranks, self._places = np.resize(self._ranks, room), np.resize(self._places, room)

    def _prune(self) -> None:
        """Keeps the smallest ranks. `unique` sorts, and returns where each rank occurs first."""
        ranks, first = np.unique(self._ranks[: self._held], return_index=True)
        self._held = min(self._size, len(ranks))
        self._ranks[: self._held] = ranks[: self._held]
        self._places[: self._held] = self._places[first[: self._held]]
        if 0 < self._held == self._size:
            self._limit = int(ranks[self._held - 1]) + 1


def find_candidates(
    finders: Sequence[CandidateFinder[T]], sources: list[Source], *, jobs: int
) -> Iterator[tuple[int, CandidateFindings[T]]]:
    """Yields what each finder finds in its file, in portions, with the finder's index. The files are added to
    `sources`."""
    with Progress() as progress, Workers(jobs) as workers:
        for number, finder in enumerate(finders):
            progress.begin(f"read {finder.location.rpartition('/')[2]}", unit="games")
            for findings in handle_file(finder.location, finder, workers, sources.append):
                progress.advance(findings.sound + findings.skipped.total() + findings.rejected.total())
                yield number, findings


class PositionSampler:
    """Draws the positions of a recipe from some files, without those whose key is in `excluded`."""

    def __init__(self, locations: Sequence[str], recipe: PositionRecipe, excluded: PositionKeys) -> None:
        self.findings = CandidateFindings[Position]()
        self.sources: list[Source] = []
        self.counts: Counter[str] = Counter()
        """How many candidates there are, how many are excluded (`in_exams`), and how many each phase got."""
        self._locations = locations
        self._recipe = recipe
        self._excluded = excluded
        self._count_by_phase = recipe.shares.split(recipe.count)
        self._reservoirs = {
            phase: Reservoir(n + _SPARE if n else 0) for phase, n in self._count_by_phase.items()
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for reservoir in self._reservoirs.values():
            reservoir.close()

    def run(self, *, jobs: int) -> None:
        """Reads the files and keeps the best-ranked candidates. Raises `SetupError` if a file cannot be read,
        or no game has a suitable position."""
        finders = [PositionFinder(self._recipe, location) for location in self._locations]
        for number, findings in find_candidates(finders, self.sources, jobs=jobs):
            self._add(number, findings)
        if not self.counts["candidates"]:
            raise nothing_to_sample(
                self.sources, self._recipe.split, self.findings.first_skipped, rejected=self.findings.rejected
            )

    def positions(self) -> Iterator[Position]:
        """Yields the positions taken, in shuffled order."""
        for phase, index in self._shuffled_order():
            record = marshal.loads(self._reservoirs[phase].text(index))  # noqa: S302 - written by `_record`
            number, game, fen, ply, game_id, last_moves, white_elo, black_elo = record
            self.counts[phase] += 1
            source = self.sources[number].sha256[:8]
            yield Position(
                id=f"{source}:{game}:{ply}",
                fen=fen,
                ply=ply,
                phase=phase,
                game_id=game_id,
                last_moves=last_moves,
                white_elo=white_elo,
                black_elo=black_elo,
            )

    def _add(self, number: int, findings: CandidateFindings[Position]) -> None:
        """Adds the findings of a part of file `number`."""
        seed = self._recipe.seed
        for candidate in findings.candidates:
            position = candidate.value
            reservoir = self._reservoirs[position.phase]
            rank = splitmix64(seed, candidate.key)
            if candidate.key in self._excluded:
                self.counts["in_exams"] += 1
            elif reservoir.wants(rank):
                reservoir.add(rank, _record(number, candidate.number, position))
        self.counts["candidates"] += len(findings.candidates)
        findings.candidates = []
        self.findings.merge(findings)

    def _shuffled_order(self) -> Iterator[tuple[Phase, int]]:
        """Phase and index of each position taken, shuffled. No position is taken in two phases."""
        ranks: NDArray[np.uint64] = np.empty(0, np.uint64)
        places: NDArray[np.int64] = np.empty(0, np.int64)
        phases: NDArray[np.int64] = np.empty(0, np.int64)
        for code, phase in enumerate(Phase):
            phase_ranks = self._reservoirs[phase].finish()
            new = np.flatnonzero(~np.isin(phase_ranks, ranks))[: self._count_by_phase[phase]]
            ranks = np.concatenate((ranks, phase_ranks[new]))
            places = np.concatenate((places, new))
            phases = np.concatenate((phases, np.full(len(new), code)))
        # Shuffle by the low bits of the ranks, which have not decided anything yet.
        order = np.argsort(ranks * np.uint64(0x9E3779B97F4A7C15) << np.uint64(20), kind="stable")
        names = list(Phase)
        for index in order.tolist():
            yield names[phases[index]], int(places[index])


def _record(number: int, game: int, position: Position) -> bytes:
    """Encodes a position for this process only. JSON would take ten times as long."""
    elos = position.white_elo, position.black_elo
    return marshal.dumps(
        (number, game, position.fen, position.ply, position.game_id, position.last_moves, *elos)
    )

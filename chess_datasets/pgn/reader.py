"""Reads the games of files, sequentially or piece by piece in several processes.

A piece usually begins and ends in the middle of a game. Its reader does not handle the head, up to the first
place where a game begins for certain, nor the unfinished end. `PieceJoiner` joins the end of one piece to the
head of the next. The games, their numbers and offsets are therefore the same however a file is cut. If a
piece cannot be decompressed, the rest of it is lost, from a block or two before that point on.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from chess_datasets.jobs import prefetched
from chess_datasets.pgn.pieces import Piece, Watch, pieces_of
from chess_datasets.pgn.scanner import Keep, Scanner, beginning
from chess_datasets.store.files import DamagedFile, Fingerprint, Source, identify
from rookery.pgn.rawgame import RawGame
from rookery.processes.workers import Workers

BATCH = 512
BATCH_BYTES = 1 << 22
"""Limits of a batch: it ends after `BATCH` games or this many bytes."""

# Of blocks that one thread decompresses while another scans. In smaller ones they wait for the interpreter's
# lock more often.
_AHEAD_BYTES = 1 << 20
# Longer than any match of `beginning`.
_OVERLAP_BYTES = 16


class Findings(Protocol):
    """The result of handling some games of a file."""

    games: int
    """The number of games read, handled or not. The reader sets it."""

    def rebase(self, *, games: int, size: int) -> None:
        """Shifts numbers and offsets, as if this many games and bytes had come before."""

    def merge(self, later: Self, /) -> None:
        """Adds the result of later games."""


F = TypeVar("F", bound=Findings)
F_co = TypeVar("F_co", bound=Findings, covariant=True)


class Handler(Protocol[F_co]):
    """Chooses and handles the games of a file. It is sent to other processes, so it must be picklable."""

    @property
    def keep(self) -> Keep | None:
        """Chooses games by their first bytes; None keeps all games."""

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, F_co]:
        """Yields the games to handle. Returns the findings about the others."""

    def handle(self, games: Sequence[RawGame]) -> F_co:
        """Returns the findings about some games."""


def read_raw_games(location: str | Path, watch: Watch | None = None) -> Iterator[RawGame]:
    """The games of a file, in order. `watch` is called with the stored bytes.

    At damage, yields what could be read, then one `RawGame` with the defect `DAMAGED_FILE`. Raises
    `SetupError` if the file cannot be read.
    """
    yield from _read(Scanner(), pieces_of(location), watch)


def handle_file(
    location: str,
    handler: Handler[F],
    workers: Workers,
    identified: Callable[[Source], None] | None = None,
    measure: Callable[[int], None] | None = None,
) -> Iterator[F]:
    """Yields the findings about the games of a file, in order and in portions. Workers share the pieces.

    A file of one piece is read in this process, and only the chosen games go to the workers. A file of
    several pieces is read by the workers; then `measure` is called with the plain size of each piece. At the
    end, `identified` is called with the size and SHA-256 of the file. Raises `SetupError` if the file cannot
    be read.
    """
    pieces = pieces_of(location)
    if len(pieces) == 1:
        scanner, fingerprint = Scanner(handler.keep), Fingerprint(location)
        watch = fingerprint.update if identified else None
        chosen = _Chosen(handler.choose(_read(scanner, pieces, watch)))
        yield from workers.map(handler.handle, chosen)
        if identified:
            identified(fingerprint.source)
        chosen.rest.games = scanner.games
        yield chosen.rest
        return
    with ThreadPoolExecutor(1) as thread:
        hashing = thread.submit(identify, location) if identified else None
        joiner = PieceJoiner(handler)
        for portion in workers.map(partial(_PieceReader, handler), pieces):
            if measure:
                measure(portion.size)
            yield from joiner.join(portion)
        yield from joiner.finish()
        if identified and hashing:
            identified(hashing.result())


class PieceJoiner(Generic[F]):
    """Joins the portions of one file, in order."""

    def __init__(self, handler: Handler[F]) -> None:
        self._handler = handler
        self._scanner = Scanner(handler.keep)
        self._games_before = 0
        self._size = 0

    def join(self, portion: "_PieceReader[F]") -> Iterator[F]:
        """The findings about the games up to the end of the portion, in order."""
        scanner = self._scanner
        between = list(scanner.feed(bytes(portion.head)))
        if portion.has_beginning:
            yield self._findings([*between, *scanner.finish()])
            portion.findings.rebase(games=scanner.games, size=self._size)
            yield portion.findings
            portion.scanner.rebase(games=scanner.games, size=self._size)
            self._scanner = scanner = portion.scanner
            self._games_before, between = scanner.games, []
        if portion.damage is not None:
            between += scanner.abandon(portion.damage)
        yield self._findings(between)
        self._size += portion.size

    def finish(self) -> Iterator[F]:
        """The findings about the games that remain after the last portion."""
        yield self._findings(list(self._scanner.finish()))

    def _findings(self, games: Sequence[RawGame]) -> F:
        """The findings about the games that have ended since the last call."""
        findings = _handle(self._handler, games)
        findings.games = self._scanner.games - self._games_before
        self._games_before = self._scanner.games
        return findings


class _Chosen(Generic[F]):
    """Iterates over the chosen games in batches. Afterwards, `rest` holds the findings about the others."""

    rest: F

    def __init__(self, games: Generator[RawGame, None, F]) -> None:
        self._games = games

    def __iter__(self) -> Iterator[list[RawGame]]:
        batch, size = [], 0
        for raw in self._games_and_rest():
            batch.append(raw)
            size += len(raw.data)
            if len(batch) == BATCH or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _games_and_rest(self) -> Iterator[RawGame]:
        """Yields the games, and keeps the findings that their generator returns."""
        self.rest = yield from self._games


def _read(scanner: Scanner, pieces: Sequence[Piece], watch: Watch | None) -> Iterator[RawGame]:
    for piece in pieces:
        try:
            for block in prefetched(piece.blocks(watch, block_bytes=_AHEAD_BYTES)):
                yield from scanner.feed(block)
        except DamagedFile as damage:
            yield from scanner.abandon(str(damage))
    yield from scanner.finish()


def _handle(handler: Handler[F], games: Iterable[RawGame]) -> F:
    """The findings about all of the games, chosen or not."""
    chosen = _Chosen(handler.choose(games))
    handled = [handler.handle(batch) for batch in chosen]
    findings = chosen.rest
    for part in handled:
        findings.merge(part)
    return findings


class _PieceReader(Generic[F]):
    """Reads the games that begin in a piece, except the last, which may end in the next piece. If
    `has_beginning` is false, no game certainly begins in the piece: all of it is `head`."""

    def __init__(self, handler: Handler[F], piece: Piece) -> None:
        self.size = 0
        self.head = bytearray()
        self.has_beginning = piece.start == 0
        self.scanner = Scanner(handler.keep)
        self.damage: str | None = None
        self._piece = piece
        self.findings = _handle(handler, self._games())
        self.findings.games = self.scanner.games

    def _games(self) -> Iterator[RawGame]:
        try:
            for block in self._piece.blocks():
                self.size += len(block)
                yield from self.scanner.feed(block if self.has_beginning else self._from_beginning(block))
        except DamagedFile as damage:
            self.damage = str(damage)

    def _from_beginning(self, block: bytes) -> bytes:
        searched = max(0, len(self.head) - _OVERLAP_BYTES)
        self.head += block
        at = beginning(self.head, searched)
        if at < 0:
            return b""
        rest = bytes(self.head[at:])
        del self.head[at:]
        self.has_beginning = True
        self.scanner.rebase(games=0, size=at)
        return rest

"""Chooses puzzles from the CSV of the Lichess puzzle database (`rookery.puzzles` says what a row means).

Rows are filtered by their numbers before any move is replayed. A row with an illegal move is skipped, counted
and named. The file may be compressed or remote, and is read in blocks.

The puzzles with the smallest ranks are taken. A rank depends only on the seed and a puzzle's first position.
So the order of the table does not matter, and of puzzles with the same question only one is taken. Memory
use is a few times the puzzles taken, however long the table is.
"""

import csv
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import chess

from chess_datasets.pgn.games import phase_of
from chess_datasets.positions.distinct import PositionKeys, position_key
from chess_datasets.positions.recipe import splitmix64
from chess_datasets.store.files import (
    BLOCK_BYTES,
    DamagedFile,
    open_bytes,
    plain_text,
    read_chunks,
    split_lines,
)
from chess_datasets.tasks.example import PUZZLE, Example
from rookery.encoding import decode
from rookery.errors import InvalidInput
from rookery.prompt import Notation, mirrored_move, render, written
from rookery.puzzles import COLUMNS, Puzzle, PuzzleTurn, Unsound, parse, playable
from rookery.trace import Position

NAMED = 20
"""The most skipped rows that are named; all are counted."""


@dataclass(frozen=True, slots=True)
class PuzzleFilter:
    """Which puzzles to take. A puzzle needs at least one of `themes`, if any, and none of `without`. Raises
    `InvalidInput` if the lowest rating is above the highest."""

    min_rating: int = 0
    max_rating: int = 9999
    max_deviation: int = 9999
    min_popularity: int = -100
    min_plays: int = 0
    themes: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.min_rating > self.max_rating:
            raise InvalidInput(
                f"ratings from {self.min_rating} to {self.max_rating}: the lowest is above the highest"
            )

    def accepts(self, puzzle: Puzzle) -> bool:
        return (
            self.min_rating <= puzzle.rating <= self.max_rating
            and puzzle.deviation <= self.max_deviation
            and puzzle.popularity >= self.min_popularity
            and puzzle.plays >= self.min_plays
            and (not self.themes or not self.themes.isdisjoint(puzzle.themes))
            and self.without.isdisjoint(puzzle.themes)
        )


ALL_PUZZLES = PuzzleFilter()


@dataclass(slots=True)
class PuzzleCounts:
    """What was read: rows, puzzles yielded, puzzles left out for evaluations, and broken rows by defect."""

    rows: int = 0
    puzzles: int = 0
    in_exams: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    first: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    """What was dropped from positions, as `read_fen` counts it."""

    def skip(self, reason: str, detail: str) -> None:
        """Counts a skipped row, and names it if it is one of the first."""
        self.skipped[reason] += 1
        if len(self.first) < NAMED:
            self.first.append(f"row {self.rows}: {reason}: {detail}"[:300])


def read_puzzles(
    location: str | Path,
    *,
    wanted: PuzzleFilter = ALL_PUZZLES,
    excluded: PositionKeys | None = None,
    counts: PuzzleCounts | None = None,
) -> Iterator[Puzzle]:
    """Yields the wanted puzzles of a file in order, except those with a turn whose key is in `excluded`.
    Raises `SetupError` if the file cannot be read; `InvalidInput` if the file lacks columns of the puzzle
    table."""
    counts = counts if counts is not None else PuzzleCounts()
    rows = csv.DictReader(_lines(location, counts))
    if missing := set(COLUMNS) - set(rows.fieldnames or ()):
        raise InvalidInput(f"not a table of puzzles: {str(location)!r} lacks the columns {sorted(missing)}")
    for row in rows:
        counts.rows += 1
        try:
            puzzle = parse(row)
            if not wanted.accepts(puzzle):
                continue
            puzzle = playable(puzzle, dropped=counts.dropped)
        except Unsound as error:
            counts.skip(*error.args)
        else:
            if excluded is not None and any(position_key(turn.fen) in excluded for turn in puzzle.turns()):
                counts.in_exams += 1
                continue
            counts.puzzles += 1
            yield puzzle


def _lines(location: str | Path, counts: PuzzleCounts) -> Iterator[str]:
    with open_bytes(location) as file:
        try:
            for line in split_lines(plain_text(read_chunks(file, BLOCK_BYTES))):
                yield decode(line)
        except DamagedFile as error:
            counts.skip("damaged_file", str(error))


def puzzle_position(puzzle: Puzzle, turn: PuzzleTurn) -> Position:
    """The position of one of the puzzle's turns."""
    board = chess.Board(turn.fen)
    return Position(
        id=f"puzzle:{puzzle.id}:{len(turn.played) // 2}",
        fen=turn.fen,
        ply=board.ply(),
        phase=phase_of(board),
        game_id=hashlib.sha256(puzzle.url.encode()).hexdigest()[:16],
        last_moves=turn.played,
    )


def puzzle_examples(puzzles: Iterable[Puzzle], *, style: str, box: Notation = "san") -> Iterator[Example]:
    """One example per turn of each puzzle, in a style of `rookery.prompt`, answered by the boxed move."""
    for puzzle in puzzles:
        for turn in puzzle.turns():
            position = puzzle_position(puzzle, turn)
            prompt = render(position, style=style)
            board = chess.Board(prompt.fen)
            move = turn.move if board.turn == chess.Board(turn.fen).turn else mirrored_move(turn.move)
            answer = f"\\boxed{{{written(board, chess.Move.from_uci(move), box)}}}"
            yield Example(position.id, PUZZLE, prompt.fen, prompt.messages, answer)


NumberedPuzzle = tuple[int, Puzzle]


class _SmallestRanks:
    """The puzzles with the smallest ranks, at most `size`; of equal ranks, the first added."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: dict[int, NumberedPuzzle] = {}

    def add(self, rank: int, puzzle: NumberedPuzzle) -> None:
        self._held.setdefault(rank, puzzle)
        if len(self._held) > 2 * self.size:
            self._held = dict(self.ranked())

    def ranked(self) -> list[tuple[int, NumberedPuzzle]]:
        return sorted(self._held.items())[: self.size]


def select_puzzles(
    puzzles: Iterable[Puzzle], *, count: int, seed: int = 0, themes: Iterable[str] | None = None
) -> list[Puzzle]:
    """Chooses `count` of the puzzles, or all if there are fewer, and returns them in their order.

    With `themes`, each of these gets as equal a number of puzzles as possible. An empty `themes` means all
    themes.
    """
    every = _SmallestRanks(count)
    by_theme = None if themes is None else _ByTheme(count, frozenset(themes))
    for number, puzzle in enumerate(puzzles):
        rank = splitmix64(seed, position_key(puzzle.fen))
        every.add(rank, (number, puzzle))
        if by_theme is not None:
            by_theme.add(rank, (number, puzzle))
    chosen = dict(by_theme.even(count)) if by_theme is not None else {}
    for rank, numbered in every.ranked():  # if the themes have too few
        if len(chosen) == count:
            break
        chosen[rank] = numbered
    return [puzzle for _, puzzle in sorted(chosen.values(), key=lambda numbered: numbered[0])]


class _ByTheme:
    """The smallest ranks of each theme. A theme's share shrinks with every new theme."""

    def __init__(self, count: int, themes: frozenset[str]) -> None:
        self._count = count
        self._only = themes
        self._by_theme: dict[str, _SmallestRanks] = {}

    def add(self, rank: int, numbered: NumberedPuzzle) -> None:
        for theme in self._themes(numbered[1]):
            if theme not in self._by_theme:
                self._by_theme[theme] = _SmallestRanks(0)
                share = -(-self._count // len(self._by_theme))
                for smallest in self._by_theme.values():
                    smallest.size = share
            self._by_theme[theme].add(rank, numbered)

    def even(self, count: int) -> Iterator[tuple[int, NumberedPuzzle]]:
        """Yields up to `count` puzzles with their ranks, each from the theme that has the fewest so far."""
        waiting = {theme: iter(smallest.ranked()) for theme, smallest in sorted(self._by_theme.items())}
        taken: set[int] = set()
        taken_of: Counter[str] = Counter()
        while waiting and len(taken) < count:
            theme = min(waiting, key=lambda theme: taken_of[theme])
            rank, numbered = next(waiting[theme], (-1, None))
            if numbered is None:
                del waiting[theme]
            elif rank not in taken:
                taken.add(rank)
                taken_of.update(self._themes(numbered[1]))
                yield rank, numbered

    def _themes(self, puzzle: Puzzle) -> list[str]:
        return [theme for theme in puzzle.themes if not self._only or theme in self._only]

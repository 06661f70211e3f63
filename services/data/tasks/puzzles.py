"""Reads the CSV of the Lichess puzzle database and plays the opponent's first move of each puzzle.

A row of the CSV contains the position *before* the opponent's move, and all moves from there on. A `Puzzle`
begins after that move: `fen` is what the solver sees, and `solution` alternates, beginning with the solver's
move. Rows are filtered by their numbers before any move is replayed. A row with an illegal move is skipped,
counted and named. The file may be compressed or remote, and is read in blocks.

Source: database.lichess.org, `lichess_db_puzzle.csv.zst`, CC0.
"""

import csv
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import chess

from rookery.errors import InvalidInput
from rookery.prompt import render
from rookery.trace import Position
from services.data.pgn.games import phase_of
from services.data.positions.distinct import PositionKeys, position_key
from services.data.store.files import (
    BLOCK_BYTES,
    DamagedFile,
    open_bytes,
    plain_text,
    read_chunks,
    split_lines,
)
from services.data.tasks.example import PUZZLE, Example, mirrored_uci

COLUMNS = (
    "PuzzleId",
    "FEN",
    "Moves",
    "Rating",
    "RatingDeviation",
    "Popularity",
    "NbPlays",
    "Themes",
    "GameUrl",
)

NAMED = 20
"""The most skipped rows that are named; all are counted."""


@dataclass(frozen=True, slots=True)
class PuzzleTurn:
    """One of the solver's turns: the position and the solution's move in UCI."""

    position: Position
    move: str


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle, from the position that the solver sees. Moves are UCI."""

    id: str
    fen: str
    opponent_move: str
    solution: tuple[str, ...]
    rating: int
    deviation: int
    popularity: int
    plays: int
    themes: tuple[str, ...]
    url: str

    @property
    def position(self) -> Position:
        """The position that the solver sees first."""
        return next(self.turns()).position

    def turns(self) -> Iterator[PuzzleTurn]:
        """The solver's turns, in order."""
        board = chess.Board(self.fen)
        played = [self.opponent_move]
        for number, move in enumerate(self.solution):
            if number % 2 == 0:
                yield PuzzleTurn(self._position(board, played, number // 2), move)
            board.push_uci(move)
            played.append(move)

    def _position(self, board: chess.Board, played: list[str], turn: int) -> Position:
        return Position(
            id=f"puzzle:{self.id}:{turn}",
            fen=board.fen(),
            ply=board.ply(),
            phase=phase_of(board),
            game_id=hashlib.sha256(self.url.encode()).hexdigest()[:16],
            last_moves=tuple(played[-10:]),
        )


@dataclass(frozen=True, slots=True)
class PuzzleFilter:
    """Which puzzles to take. A puzzle needs at least one of `themes`, if any, and none of `without`.

    Raises:
        InvalidInput: the lowest rating is above the highest.
    """

    min_rating: int = 0
    max_rating: int = 9999
    max_deviation: int = 9999
    min_popularity: int = -100
    min_plays: int = 0
    themes: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.min_rating > self.max_rating:
            raise InvalidInput(f"ratings from {self.min_rating} to {self.max_rating}: there are none")

    def accepts(self, puzzle: Puzzle) -> bool:
        """Whether the puzzle is wanted."""
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

    Raises:
        SetupError: the file cannot be read.
        InvalidInput: the file lacks columns of the puzzle table.
    """
    counts = counts if counts is not None else PuzzleCounts()
    rows = csv.DictReader(_lines(location, counts))
    if missing := set(COLUMNS) - set(rows.fieldnames or ()):
        raise InvalidInput(f"no table of puzzles: {str(location)!r} lacks the columns {sorted(missing)}")
    for row in rows:
        counts.rows += 1
        try:
            puzzle = _parse(row)
            if not wanted.accepts(puzzle):
                continue
            puzzle = _playable(puzzle)
        except _BrokenRow as error:
            counts.skip(*error.args)
        else:
            if excluded is not None and any(
                position_key(turn.position.fen) in excluded for turn in puzzle.turns()
            ):
                counts.in_exams += 1
                continue
            counts.puzzles += 1
            yield puzzle


class _BrokenRow(Exception):
    """A row without a valid puzzle. Arguments: reason and detail."""


def _parse(row: Mapping[str, str | None]) -> Puzzle:
    """Parses a row. `fen` is still the position before the opponent's move."""
    name, fen, moves, rating, deviation, popularity, plays, themes, url = (row[name] for name in COLUMNS)
    if url is None or not name or not fen or not moves:
        raise _BrokenRow("short_row", repr(list(row.values())))
    opponent_move, *solution = moves.split()
    try:
        return Puzzle(
            id=name,
            fen=fen,
            opponent_move=opponent_move,
            solution=tuple(solution),
            rating=int(rating or ""),
            deviation=int(deviation or ""),
            popularity=int(popularity or ""),
            plays=int(plays or ""),
            themes=tuple((themes or "").split()),
            url=url,
        )
    except ValueError as error:
        raise _BrokenRow("bad_number", f"{name}: {error}") from error


def _playable(puzzle: Puzzle) -> Puzzle:
    """Checks all moves of a puzzle, and returns it with the opponent's first move played."""
    try:
        board = chess.Board(puzzle.fen)
        if not board.is_valid():
            raise _BrokenRow("bad_position", f"{puzzle.id}: {puzzle.fen!r}: {board.status()!r}")
        moves = iter((puzzle.opponent_move, *puzzle.solution))
        _push(board, next(moves))
        fen = board.fen()
        for move in moves:
            _push(board, move)
    except ValueError as error:
        raise _BrokenRow("bad_move", f"{puzzle.id}: {error}") from error
    if len(puzzle.solution) % 2 == 0:
        raise _BrokenRow(
            "no_last_move", f"{puzzle.id}: {len(puzzle.solution)} moves do not end with the solver's"
        )
    return dataclasses.replace(puzzle, fen=fen)


def _push(board: chess.Board, uci: str) -> None:
    if not board.push_uci(uci):
        raise ValueError(f"null move {uci!r} in {board.fen()!r}")


def _lines(location: str | Path, counts: PuzzleCounts) -> Iterator[str]:
    with open_bytes(location) as file:
        try:
            for line in split_lines(plain_text(read_chunks(file, BLOCK_BYTES))):
                yield line.decode("utf-8-sig", errors="replace")
        except DamagedFile as error:
            counts.skip("damaged_file", str(error))


def puzzle_examples(puzzles: Iterable[Puzzle], *, style: str) -> Iterator[Example]:
    """One example per turn of each puzzle, in a style of `rookery.prompt`, answered by the boxed SAN move."""
    for puzzle in puzzles:
        for turn in puzzle.turns():
            prompt = render(turn.position, style=style)
            board = chess.Board(prompt.fen)
            is_mirrored = board.turn != chess.Board(turn.position.fen).turn
            move = mirrored_uci(turn.move) if is_mirrored else turn.move
            answer = f"\\boxed{{{board.san(chess.Move.from_uci(move))}}}"
            yield Example(turn.position.id, PUZZLE, prompt.fen, prompt.messages, answer)

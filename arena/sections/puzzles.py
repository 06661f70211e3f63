"""Puzzles: the share of whole solutions and of first moves, by rating and theme, and the player's rating.

A puzzle is solved if every move of the solver is the solution's. A move that mates is always right, and ends
the puzzle. The opponent's moves are the solution's.
"""

import csv
import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess

from arena.asking import Asker
from arena.players.player import Player
from arena.stats import Estimate, Ratio
from arena.strength.pentanomial import ELO, expected_score
from arena.tables import METRICS, Cell, MetricRow, Section, Table, by_part, compared
from rookery.encoding import encoding_of
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.intervals import Z95
from rookery.pgn.reader import read_games
from rookery.puzzles import COLUMNS, Puzzle, Unsound, parse, playable

_TAIL = 0.05
_FAR = 4000.0
"""How far beyond the known ratings an estimate or a bound is looked for."""


def estimate_rating(ratings: Sequence[float], solved: Sequence[bool]) -> Estimate:
    """The likeliest rating, with a 95% interval from the Fisher information.

    If all or none are solved, there is no likeliest rating, but a bound: with a rating beyond it, the result
    would have had a probability below 5%.

    >>> estimate_rating([1500, 1500], [True, False]).mean
    1500.0
    >>> estimate_rating([1500.0], [False])
    Estimate(mean=None, ci95=(-inf, 2011.5))
    """
    if not ratings:
        return Estimate(None, None)
    low, high = min(ratings) - _FAR, max(ratings) + _FAR

    def log_chance(rating: float) -> float:
        return sum(math.log(expected_score(rating - puzzle_rating if right else puzzle_rating - rating))
                   for puzzle_rating, right in zip(ratings, solved, strict=True))  # fmt: skip

    if not any(solved):
        return Estimate(None, (-math.inf, _root(lambda r: math.log(_TAIL) - log_chance(r), low, high)))
    if all(solved):
        return Estimate(None, (_root(lambda r: log_chance(r) - math.log(_TAIL), low, high), math.inf))
    mean = _root(
        lambda r: sum(expected_score(r - puzzle_rating) for puzzle_rating in ratings) - sum(solved), low, high
    )
    information = sum(
        expected_score(mean - puzzle_rating) * expected_score(puzzle_rating - mean)
        for puzzle_rating in ratings
    )
    margin = Z95 * ELO / math.sqrt(information)
    return Estimate(mean, (mean - margin, mean + margin))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where the rising function is 0, by bisection, to a tenth of a point."""
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return round((low + high) / 2, 1)


BIN = 200
"""Points of rating in a row of the table."""

LEAST = 5
"""A theme with fewer puzzles has no row."""

_RATING, _SOLVED, _FIRST, _LEGAL = METRICS["puzzles"].values()
_NOTE = "All moves of the solver must be the solution's; a move that mates is always right."


@dataclass(frozen=True, slots=True)
class Attempt:
    """How a player did: its moves in UCI, None where the answer was not a legal move."""

    puzzle: Puzzle
    moves: tuple[str | None, ...]
    solved: bool

    @property
    def first(self) -> bool:
        return self.solved or len(self.moves) > 1


@dataclass(frozen=True, slots=True)
class Puzzles:
    """A set of puzzles. `report` names the rows of the file that are not puzzles."""

    name: str
    chosen: Sequence[Puzzle]
    seed: int = 0
    report: FenReport = field(default_factory=FenReport)

    @classmethod
    def read(cls, path: Path, *, count: int, seed: int) -> "Puzzles":
        """At most `count` sound puzzles of a Lichess CSV, or of a PGN whose games start at the solver's turn.

        Which ones are drawn depends only on the seed and their ids. Raises `InvalidInput` if the file cannot
        be read, is not a table of puzzles, or has no sound puzzle.
        """
        report = FenReport()
        try:
            with path.open(newline="", encoding=encoding_of(path), errors="replace") as file:
                rows = _pgn(path, report) if path.suffix == ".pgn" else _csv(path, file, report)
                chosen = _draw(rows, count=count, seed=seed, report=report)
        except (OSError, csv.Error) as error:
            raise InvalidInput(f"puzzles {str(path)!r}: {error}") from error
        if not chosen:
            raise InvalidInput(f"no puzzles in {str(path)!r}: {report.reasons}")
        return cls(f"puzzles/{path.stem}", chosen, seed, report)

    def names(self, player: Player) -> list[str]:
        return [f"puzzle {puzzle.id}" for puzzle in self.chosen]

    async def ask(self, asker: Asker, player: Player) -> list[Attempt]:
        """The player's attempts, in the order of the puzzles. See `Asker.positions` for the errors."""

        async def ask_puzzle(puzzle: Puzzle) -> Attempt:
            question = {"puzzle": [puzzle.start, puzzle.opponent_move, *puzzle.solution], "seed": asker.seed}

            async def attempt() -> dict[str, Any]:
                tried = await _attempt(player, puzzle, seed=asker.seed)
                return {**tried, "fen": puzzle.start, "outcome": "solved" if tried["solved"] else "failed"}

            record = await asker.recall(player, f"puzzle {puzzle.id}", question, attempt)
            return Attempt(puzzle, tuple(record["moves"]), record["solved"])

        return await asker.each(ask_puzzle, self.chosen)

    def section(self, attempts: Mapping[str, Sequence[Attempt]], *, players: Sequence[str]) -> Section:
        """Accuracy of every player: in all, by rating and by theme, and the rating estimate."""
        solved = {name: Ratio.of([a.solved for a in side]) for name, side in attempts.items()}
        first = {name: Ratio.of([a.first for a in side]) for name, side in attempts.items()}
        legal = {
            name: Ratio.of([len([m for m in a.moves if m]) for a in side], [len(a.moves) for a in side])
            for name, side in attempts.items()
        }
        rows = [(_SOLVED, solved), (_FIRST, first), (_LEGAL, legal)]
        metrics = compared(rows, players=players, seed=self.seed)
        if all(puzzle.rating for puzzle in self.chosen):
            ratings = [puzzle.rating for puzzle in self.chosen]
            rated = {
                name: estimate_rating(ratings, [a.solved for a in side]) for name, side in attempts.items()
            }
            metrics.insert(0, MetricRow(_RATING, {name: Cell(rating) for name, rating in rated.items()}))
        parts = {
            "ratings": ("By rating", _rating_masks(self.chosen)),
            "themes": ("By theme", _theme_masks(self.chosen)),
        }
        tables = [
            Table("metrics", f"{len(self.chosen):,} puzzles", metrics),
            *(
                Table(name, title, compared(by_part(rows[:2], masks, what="puzzles"), players=players,
                                            seed=self.seed))
                for name, (title, masks) in parts.items()
                if masks
            ),
        ]  # fmt: skip
        title = f"Puzzles: {self.name.partition('/')[2]}"
        return Section(self.name, title, _NOTE, tables, self.report.facts)


async def _attempt(player: Player, puzzle: Puzzle, *, seed: int) -> dict[str, Any]:
    moves: list[str | None] = []
    tokens = 0
    for turn in puzzle.turns():
        board = chess.Board(puzzle.start)
        for played in turn.played:
            board.push_uci(played)
        reply = await player.play(board, seed=seed)
        move = reply.move.uci() if reply.move else None
        moves.append(move)
        tokens += reply.tokens
        if move is None or not turn.is_right(move):
            return {"moves": moves, "solved": False, "text": reply.text, "tokens": tokens}
        if move != turn.move:  # it mates
            break
    return {"moves": moves, "solved": True, "tokens": tokens}


def _rating_masks(puzzles: Sequence[Puzzle]) -> dict[str, list[bool]]:
    """Which of the puzzles are in each bin of ratings."""
    lows = sorted({puzzle.rating // BIN * BIN for puzzle in puzzles if puzzle.rating})
    return {f"{low} to {low + BIN - 1}": [p.rating // BIN * BIN == low for p in puzzles] for low in lows}


def _theme_masks(puzzles: Sequence[Puzzle]) -> dict[str, list[bool]]:
    """Which of the puzzles have each theme that at least `LEAST` have."""
    counts = Counter(theme for puzzle in puzzles for theme in set(puzzle.themes))
    return {theme: [theme in p.themes for p in puzzles] for theme in sorted(counts) if counts[theme] >= LEAST}


def _draw(rows: Iterable[tuple[str, Puzzle]], *, count: int, seed: int, report: FenReport) -> list[Puzzle]:
    """The `count` sound puzzles with the smallest hashes. Replays the moves of few others."""
    heap: list[tuple[int, int, Puzzle, Counter[str]]] = []  # its first has the largest hash
    for number, (place, puzzle) in enumerate(rows):
        rank = -int.from_bytes(hashlib.sha256(f"{seed}:{puzzle.id}".encode()).digest())
        is_full = len(heap) == count
        if is_full and rank <= heap[0][0]:
            continue
        dropped: Counter[str] = Counter()
        try:
            sound = playable(puzzle, dropped=dropped) if puzzle.opponent_move else puzzle
        except Unsound as error:
            report.skip(place, ": ".join(error.args))
        else:
            (heapq.heapreplace if is_full else heapq.heappush)(heap, (rank, -number, sound, dropped))
    heap.sort(reverse=True)
    for *_, dropped in heap:
        report.dropped.update(dropped)
    return [puzzle for _, _, puzzle, _ in heap]


def _csv(path: Path, lines: Iterator[str], report: FenReport) -> Iterator[tuple[str, Puzzle]]:
    """The puzzles with their places, whose positions and moves are still unchecked."""
    rows = csv.DictReader(lines)
    if missing := set(COLUMNS) - set(rows.fieldnames or ()):
        raise InvalidInput(f"not a table of puzzles: {str(path)!r} lacks the columns {sorted(missing)}")
    for row in rows:
        place = f"{path.name}:{rows.line_num}"
        try:
            yield place, parse(row)
        except Unsound as error:
            report.skip(place, ": ".join(error.args))


def _pgn(path: Path, report: FenReport) -> Iterator[tuple[str, Puzzle]]:
    for number, game in enumerate(read_games(path.read_bytes()), 1):
        place, moves = f"{path.name}: game {number}", tuple(move.uci() for move in game.moves)
        if game.faults:
            report.skip(place, str(game.faults[0]))
        elif len(moves) % 2 == 0:
            report.skip(place, f"no_last_move: {len(moves)} moves do not end with the solver's")
        else:
            fen = game.board.root().fen()
            yield place, Puzzle(f"{path.stem}:{number}", fen, "", solution=moves, start=fen)

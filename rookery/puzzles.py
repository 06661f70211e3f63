"""Puzzles of the Lichess puzzle database: one row of its table, and the solver's turns.

A row holds the position *before* the opponent's move, and all moves from there on. Here that move has been
played: `fen` is what the solver sees, and `solution` begins with the solver's move and alternates. A move of
the solver is right if it is the solution's or, as on Lichess, mates.

Source: database.lichess.org, `lichess_db_puzzle.csv.zst`, CC0.
"""

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import chess

from rookery.errors import InvalidInput
from rookery.fen import read_fen

COLUMNS = (
    "PuzzleId", "FEN", "Moves", "Rating", "RatingDeviation", "Popularity", "NbPlays", "Themes", "GameUrl"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PuzzleTurn:
    """A turn of the solver: the position, the moves played since the puzzle's start, and the right move."""

    fen: str
    played: tuple[str, ...]
    move: str

    def is_right(self, uci: str) -> bool:
        """Whether a move is right: the solution's move or, as on Lichess, any move that mates."""
        board = chess.Board(self.fen)
        try:
            move = board.parse_uci(uci)
        except ValueError:
            return False
        board.push(move)
        return move.uci() == self.move or board.is_checkmate()


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A puzzle, from the position that the solver sees. Moves are UCI. `start` is the position before the
    opponent's move. Without an opponent's move, both are the same."""

    id: str
    fen: str
    opponent_move: str
    solution: tuple[str, ...]
    rating: int = 0
    deviation: int = 0
    popularity: int = 0
    plays: int = 0
    themes: tuple[str, ...] = ()
    url: str = ""
    start: str = ""

    def turns(self) -> Iterator[PuzzleTurn]:
        board = chess.Board(self.fen)
        played = [self.opponent_move] if self.opponent_move else []
        for number, move in enumerate(self.solution):
            if number % 2 == 0:
                yield PuzzleTurn(board.fen(), tuple(played), move)
            board.push_uci(move)
            played.append(move)


class Unsound(Exception):
    """A row without a valid puzzle. Arguments: reason and detail."""


def parse(row: Mapping[str, str | None]) -> Puzzle:
    """Parses a row of the table. `fen` is still the position before the opponent's move. Raises `Unsound` if
    a column is empty or not a number."""
    name, fen, moves, rating, deviation, popularity, plays, themes, url = (row[name] for name in COLUMNS)
    if url is None or not name or not fen or not moves:
        raise Unsound("short_row", repr(list(row.values())))
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
        raise Unsound("bad_number", f"{name}: {error}") from error


def playable(puzzle: Puzzle, *, dropped: Counter[str] | None = None) -> Puzzle:
    """Checks all moves of a parsed puzzle, and returns it with the opponent's first move played.

    `dropped` counts what is dropped from its position, as for `read_fen`. Raises `Unsound` if the position or
    a move is not legal, or the last move is not the solver's.
    """
    try:
        board = read_fen(puzzle.fen, dropped=dropped)
        start = board.fen()
        moves = iter((puzzle.opponent_move, *puzzle.solution))
        _push(board, next(moves))
        fen = board.fen()
        for move in moves:
            _push(board, move)
    except InvalidInput as error:
        raise Unsound("bad_position", f"{puzzle.id}: {error}") from error
    except ValueError as error:
        raise Unsound("bad_move", f"{puzzle.id}: {error}") from error
    if len(puzzle.solution) % 2 == 0:
        raise Unsound(
            "no_last_move", f"{puzzle.id}: {len(puzzle.solution)} moves do not end with the solver's"
        )
    return dataclasses.replace(puzzle, fen=fen, start=start)


def _push(board: chess.Board, uci: str) -> None:
    if not board.push_uci(uci):
        raise ValueError(f"null move {uci!r} in {board.fen()!r}")

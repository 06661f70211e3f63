"""Opening lines that games start from, each played with both colours.

The built-in book has up to three lines for each ECO code, taken from lichess-org/chess-openings (CC0): of
those with 6, 8 or 10 plies that Stockfish 15.1 finds within 50 centipawns at 60,000 nodes, the most balanced.
"""

import csv
import gzip
import io
import logging
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import chess

from rookery.encoding import decode
from rookery.epd import epd_lines, read_epd
from rookery.episodes import book_of, parse_mix
from rookery.errors import InvalidInput
from rookery.fen import FenReport
from rookery.files import expanded
from rookery.pgn.reader import read_game, read_games

logger = logging.getLogger(__name__)

BUILT_IN = Path(__file__).with_name("openings.tsv")


@dataclass(frozen=True, slots=True)
class Opening:
    """A position to start from, and the moves in UCI that are played from it before the players are asked."""

    name: str
    fen: str = chess.STARTING_FEN
    moves: tuple[str, ...] = ()

    def board(self) -> chess.Board:
        """The board after the opening, with its moves on the stack."""
        board = chess.Board(self.fen)
        for move in self.moves:
            if not board.push_uci(move):
                raise ValueError(f"null move {move!r} in {board.fen()!r}")
        return board


START = Opening("Starting position")


def read_openings(path: Path = BUILT_IN, *, plies: int = 16) -> list[Opening]:
    """The openings of a book: `.tsv`, `.pgn`, `.epd` or `.fen`, also with `.gz`.

    A `.tsv` has the columns of the built-in one, or those of lichess-org/chess-openings: eco, name and pgn.

    Of a PGN's games, at most the first `plies` moves are taken. Raises `InvalidInput` if the file cannot be
    read, has no opening, or one whose game is already over.
    """
    reader = _READERS.get(Path(path.name.removesuffix(".gz")).suffix)
    if reader is None:
        raise InvalidInput(f"openings {str(path)!r}: the name must end in one of {', '.join(_READERS)}")
    try:
        packed = path.read_bytes()
        text = decode(gzip.decompress(packed) if path.suffix == ".gz" else packed)
        openings = reader(text, plies)
        over = next((opening for opening in openings if opening.board().is_game_over()), None)
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        raise InvalidInput(f"openings {str(path)!r}: {error}") from error
    if over or not openings:
        raise InvalidInput(
            f"openings {str(path)!r}: {f'{over} is a finished game' if over else 'there are none'}"
        )
    return openings


def books_of(mix: str) -> dict[str, list[Opening]]:
    """The openings of the games of a mix of episodes that begin with openings. Raises as `read_openings`."""
    books = {spec: book for _, spec in parse_mix(mix) if (book := book_of(spec))}
    paths = {spec: BUILT_IN if book == "book" else expanded(Path(book)) for spec, book in books.items()}
    return {spec: read_openings(path) for spec, path in paths.items()}


def draw(openings: Sequence[Opening], count: int, *, seed: int) -> list[Opening]:
    """`count` openings in a shuffled order, each as often as the others, give or take one."""
    shuffled = random.Random(seed).sample(openings, len(openings))
    return [shuffled[i % len(shuffled)] for i in range(count)]


def _from_tsv(text: str, plies: int) -> list[Opening]:
    del plies
    rows = csv.DictReader(io.StringIO(text), delimiter="\t")
    columns = set(rows.fieldnames or ())
    line = "moves" if "moves" in columns else "pgn"
    if missing := {"eco", "name", line} - columns:
        raise ValueError(f"no column {', '.join(sorted(missing))}: there are {rows.fieldnames}")
    openings = []
    for row in rows:
        if not row[line]:
            raise ValueError(f"line {rows.line_num}: no {line} in {dict(row)}")
        moves = _moves_of(row[line], rows.line_num) if line == "pgn" else tuple(row[line].split())
        openings.append(Opening(f"{row['eco']} {row['name']}", moves=moves))
    return openings


def _moves_of(pgn: str, number: int) -> tuple[str, ...]:
    game = read_game(pgn)
    if game.faults:
        raise ValueError(f"line {number}: {game.faults[0]} in {pgn[:200]!r}")
    return tuple(move.uci() for move in game.moves)


def _from_pgn(text: str, plies: int) -> list[Opening]:
    openings = []
    for number, game in enumerate(read_games(text.encode()), 1):
        if game.faults:
            raise ValueError(f"game {number}: {game.faults[0]}")
        name = game.tags.get("Opening") or game.tags.get("ECO") or f"line {number}"
        moves = tuple(move.uci() for move in game.moves[:plies])
        openings.append(Opening(name, game.board.root().fen(), moves))
    return openings


def _from_epd(text: str, plies: int) -> list[Opening]:
    del plies
    openings, report = [], FenReport()
    for number, line in epd_lines(text):
        try:
            epd = read_epd(line, dropped=report.dropped)
            openings.append(Opening(epd.id or f"line {number}", epd.board.fen()))
        except InvalidInput as error:
            report.skip(f"line {number}", error)
    if report.skipped_count:
        raise ValueError(f"{report.skipped_count} lines cannot be used: {'; '.join(report.skipped)}")
    for line in report.lines("openings"):
        logger.warning("%s", line)
    return openings


_READERS = {".tsv": _from_tsv, ".pgn": _from_pgn, ".epd": _from_epd, ".fen": _from_epd}

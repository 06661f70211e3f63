"""Reads the positions of evaluations from files, so that data sets can leave them out.

A file may be Parquet, JSON, JSON lines, CSV, PGN or lines of text such as EPD, compressed or not. What has no
position that can be read is an error: if it were passed over, its position would be trained on.
"""

import csv
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from chess_datasets.jobs import batched
from chess_datasets.pgn.games import SkippedGame, SoundGame
from chess_datasets.pgn.native import read_games
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.positions.distinct import PositionKeys, position_key
from chess_datasets.store.files import Source, identify
from chess_datasets.store.folders import Folder, open_file
from chess_datasets.store.formats import Format, format_of
from chess_datasets.store.jsonl import parse_json, read_json, text_lines
from chess_datasets.store.parquet import read_rows
from rookery.encoding import decode
from rookery.errors import InvalidInput
from rookery.fen import read_fen
from rookery.notation import read_move

_GAMES = 200
_QUOTED = 120

_RANK = "[1-8PNBRQKpnbrqk~]{1,16}"
_MOVE = "[a-h][1-8][a-h][1-8][qrbn]?"
# The pieces of a position anywhere in a text, the rest of its FEN, and the moves of a puzzle after it.
_POSITION = re.compile(
    rf"(?<![\w~/])({_RANK}(?:/{_RANK}){{7}})(?![\w~/])"
    rf"(?:( +[wb] +(?:-|[KQkqA-Ha-h]{{1,4}}) +(?:-|[a-h][1-8]))(?: +\d+ +\d+)?"
    rf'(?:"?[,;\t] *"?({_MOVE}(?: {_MOVE})*))?)?'
)
_FEN_TAG = re.compile(r'^\[FEN\s+"([^"\n]*)"', re.MULTILINE)
_NO_MOVE = re.compile(r"\d+\.*|\*|1-0|0-1|1/2-1/2")
_COMMENTS = ("#", ";", "%")
_SLASHES = 7
"""Of a FEN."""


@dataclass(frozen=True, slots=True)
class EvaluationFile:
    """A file with the positions of an evaluation, which are kept out of training data."""

    path: str
    sha256: str
    positions: int

    @property
    def summary(self) -> dict[str, Any]:
        return {"path": self.path.rpartition("/")[2], "sha256": self.sha256, "positions": self.positions}


def read_evaluation_files(locations: Sequence[str]) -> tuple[PositionKeys, list[EvaluationFile]]:
    """The keys of all positions in some files, with those after each move of a puzzle or game. Raises
    `SetupError` if a file cannot be read; `InvalidInput` if a line, row or game has no position, or one that
    cannot be read. The message names it."""
    keys = array("Q")
    exams = []
    for location in locations:
        file_keys = array("Q", map(position_key, fens_of_file(location)))
        if not file_keys:
            raise InvalidInput(f"{location!r} holds no position")
        exams.append(EvaluationFile(location, identify(location).sha256, len(file_keys)))
        keys.extend(file_keys)
    return PositionKeys(keys), exams


def fens_of_file(location: str) -> Iterator[str]:
    """The positions of a file, and those after each move of its puzzles or games. Raises as
    `read_evaluation_files`."""
    for place, item in _items_of_file(location):
        if isinstance(item, SoundGame):
            for _, board, _ in item.game.replay():
                yield board.fen()
            yield board.fen()  # the last move has been played, too
        elif not isinstance(item, SkippedGame):
            yield from _fens_of_item(item, place)
        elif item.defect.value == "no_moves" and (tag := _FEN_TAG.search(place)):
            yield from _fens_of_line(tag[1], None, str(item))
        else:
            raise InvalidInput(str(item))


def positions_by_row(location: str) -> Iterator[list[str]]:
    """The positions of each row, line, item or game of a file of data: none where there is none that can be
    read. Raises `SetupError` if the file cannot be read, `InvalidInput` if a line is not JSON."""
    for _, item in _items_of_file(location):
        if isinstance(item, SoundGame):
            yield [board.fen() for _, board, _ in item.game.replay()]
        else:
            yield list(_fens_in(item, None))


def _items_of_file(location: str) -> Iterator[tuple[str, Any]]:
    """The games of a file, broken ones too, each with its text; or its rows, lines or items with their
    places."""
    folder, name = open_file(location)
    form = format_of(folder, name)
    document = read_json(folder, name) if form is Format.JSON else None
    if form is Format.PGN or _is_list_of_games(document):
        source = Source(location, 0, "")
        for raws in batched(read_raw_games(location), _GAMES):
            texts = (raw.text for raw in raws)
            yield from zip(texts, read_games(raws, source, chess960=True), strict=True)
        return
    numbered = enumerate(_items_of(document), start=1) if form is Format.JSON else None
    unit = "item" if numbered else "row" if form is Format.PARQUET else "line"
    for number, item in numbered or _rows_or_lines(folder, name, form):
        yield f"{location!r}, {unit} {number}", item


def _items_of(document: Any) -> list[Any]:
    """The items of a document: its own, or those of its only list of objects; else the document itself."""
    if isinstance(document, list):
        return document
    values = document.values() if isinstance(document, Mapping) else ()
    lists = [v for v in values if isinstance(v, list) and v and all(isinstance(x, Mapping) for x in v)]
    return lists[0] if len(lists) == 1 else [document]


def _is_list_of_games(document: Any) -> bool:
    """Whether a document is a list of games, as `rookery data games --form json` writes."""
    first = document[0] if isinstance(document, list) and document else None
    return isinstance(first, str) and first.lstrip().startswith(("[", "1."))


def _rows_or_lines(folder: Folder, name: str, form: Format) -> Iterator[tuple[int, Any]]:
    """The rows or lines of a file with their numbers. Lines of a CSV with a column `fen` are mappings."""
    if form is Format.PARQUET:
        yield from enumerate(read_rows(folder, name), start=1)
        return
    numbered = enumerate(map(decode, text_lines(folder, name)), start=1)
    written = ((number, line) for number, line in numbered if line.strip())
    if form is Format.JSONL:
        yield from (
            (number, parse_json(line.encode(), f"{folder.place(name)}:{number}")) for number, line in written
        )
        return
    written = ((number, line) for number, line in written if not line.lstrip().startswith(_COMMENTS))
    number, head = next(written, (0, ""))
    delimiter = max(",;\t", key=head.count)
    columns = [column.strip('" \r').lower() for column in head.split(delimiter)]
    if "fen" not in columns:
        yield from chain([(number, head)] if head else [], written)
        return
    yield from _table_rows(numbered, columns, delimiter, folder.place(name))


def _table_rows(
    lines: Iterator[tuple[int, str]], columns: Sequence[str], delimiter: str, place: str
) -> Iterator[tuple[int, Any]]:
    """The rows below the header of a table, each with the number of its last line, without comments."""
    number = 0

    def table() -> Iterator[str]:
        nonlocal number
        for line_number, line in lines:
            number = line_number
            # An id may begin like a comment.
            is_row = line.count(delimiter) + 1 >= len(columns) > 1 and line.count("/") >= _SLASHES
            if line.strip() and (is_row or not line.lstrip().startswith(_COMMENTS)):
                yield line

    try:
        for row in csv.DictReader(table(), columns, delimiter=delimiter):
            yield number, row
    except csv.Error as error:
        raise InvalidInput(f"{place}:{number}: {error}") from error


def _fens_of_item(item: Any, place: str) -> Iterator[str]:
    """The positions of a line, a row or a document. Having none is an error."""
    fens = list(_fens_in(item, place))
    if not fens:
        raise InvalidInput(f"{place}: no position in {str(item)[:_QUOTED]!r}")
    yield from fens


def _fens_in(item: Any, place: str | None) -> Iterator[str]:
    """The positions anywhere in a value. Without a `place`, those that cannot be read are passed over."""
    if isinstance(item, str):
        for pieces, rest, moves in _POSITION.findall(item):
            yield from _fens_of_line(pieces + rest if rest else None, moves, place, quoted=item)
    elif isinstance(item, list):
        for value in item:
            yield from _fens_in(value, place)
    elif isinstance(item, Mapping):
        values = {str(name).lower(): value for name, value in item.items()}
        if "fen" in values:
            yield from _fens_of_line(values.pop("fen"), values.pop("moves", None), place)
            place = None  # the other values may be anything
        for value in values.values():
            yield from _fens_in(value, place)


def _fens_of_line(fen: Any, moves: Any, place: str | None, *, quoted: str = "") -> Iterator[str]:
    """A position, and those after each of the moves, which are a text or a list. At a word that is no legal
    move, a list ends, and a text is refused."""
    try:
        board = read_fen(fen, chess960=True)
        yield board.fen()
        words = moves.split() if isinstance(moves, str) else moves if isinstance(moves, list) else []
        for word in words:
            if _NO_MOVE.fullmatch(str(word)):
                continue
            if not (move := read_move(str(word), board).move):
                if isinstance(moves, list):
                    return
                raise InvalidInput(f"the move {word[:_QUOTED]!r} is not legal in {board.fen()!r}")
            board.push(move)
            yield board.fen()
    except InvalidInput as error:
        if place is not None:
            raise InvalidInput(f"{place}: {error}" + f": {quoted[:_QUOTED]!r}" * bool(quoted)) from error

"""The file of finished games: one JSON object per line, only ever appended to.

A tournament that was killed continues from this file: each game has a key, a hash of everything that the game
depends on, and games whose key is in the file are not played again. A last line that was cut off is removed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from rookery.errors import InvalidInput
from services.arena.answer_store import open_append_only
from services.arena.matches.game import Game, Turn
from services.arena.matches.openings import Opening

_DEFAULTS = {field.name: field.default for field in fields(Turn)}


class Journal:
    """An open journal. `games` are those it holds, by key."""

    def __init__(self, file: BinaryIO, games: dict[str, Game]) -> None:
        self._file = file
        self.games = games

    def add(self, game: Game) -> None:
        """Writes `game` down at once."""
        self._file.write(as_line(game).encode())
        self._file.flush()
        self.games[game.key] = game


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Opens the journal, or creates it.

    Raises:
        Conflict: another process writes to it.
        InvalidInput: a line other than a cut-off last one is not a game.
    """
    with open_append_only(path) as file:
        yield Journal(file, {game.key: game for game in read_games(path)})


def read_games(path: Path) -> list[Game]:
    """The games of the file, without a cut-off last line.

    Raises:
        InvalidInput: there is no such file, or a line is not a game.
    """
    try:
        *lines, _ = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InvalidInput(f"games {str(path)!r}: {error}") from error
    games = []
    for number, line in enumerate(lines, 1):
        try:
            games.append(_game_of(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"{str(path)!r}, line {number}, is not a game: {error!r}") from error
    return games


def as_line(game: Game) -> str:
    """The game as a line of JSON. What has its default value is left out of its turns."""
    record = asdict(replace(game, turns=()))
    record["turns"] = [
        {name: value for name, default in _DEFAULTS.items() if (value := getattr(turn, name)) != default}
        for turn in game.turns
    ]
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _game_of(record: dict[str, Any]) -> Game:
    opening, turns = record.pop("opening"), record.pop("turns")
    return Game(
        **record,
        opening=Opening(**opening | {"moves": tuple(opening["moves"])}),
        turns=tuple(Turn(**turn | {"outcomes": tuple(turn["outcomes"])}) for turn in turns),
    )

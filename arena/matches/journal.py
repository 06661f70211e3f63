"""The files of finished games: a journal of one JSON object per line, only ever appended to, and PGN.

A tournament that was killed continues from the journal: each game has a key, a hash of everything that it
depends on, and games whose key is in the file are not played again. A last line that was cut off is removed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import BinaryIO

import chess
import chess.engine
import chess.pgn
from pydantic import TypeAdapter, ValidationError

from arena.answer_store import open_append_only
from arena.matches.game import MatchGame, MatchTurn
from rookery.errors import InvalidInput, validation_message
from rookery.games import ADJUDICATION, ILLEGAL_MOVE, PLY_LIMIT
from rookery.trace import Outcome

_GAME = TypeAdapter(MatchGame)
_DEFAULTS = {field.name: field.default for field in fields(MatchTurn)}


class Journal:
    """An open journal. `games` are those it holds, by key."""

    def __init__(self, file: BinaryIO, games: dict[str, MatchGame]) -> None:
        self._file = file
        self.games = games

    def add(self, game: MatchGame) -> None:
        """Writes `game` down at once."""
        self._file.write(as_line(game).encode())
        self._file.flush()
        self.games[game.key] = game


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Opens the journal, or creates it. Raises `Conflict` if another process writes to it; `InvalidInput` if
    a line other than a cut-off last one is not a game."""
    with open_append_only(path) as file:
        yield Journal(file, {game.key: game for game in read_games(path)})


def read_games(path: Path) -> list[MatchGame]:
    """The games of the file, without a cut-off last line. Raises `InvalidInput` if there is no such file, or
    a line is not a game."""
    try:
        *lines, _ = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise InvalidInput(f"games {str(path)!r}: {error}") from error
    games = []
    for number, line in enumerate(lines, 1):
        try:
            games.append(_GAME.validate_json(line))
        except ValidationError as error:
            message = validation_message(error.errors(include_url=False)[:1], root="line")
            raise InvalidInput(f"{str(path)!r}, line {number}, is not a game: {message}") from error
    return games


def as_line(game: MatchGame) -> str:
    """The game as a line of JSON. What has its default value is left out of its turns."""
    record = asdict(replace(game, turns=()))
    record["turns"] = [
        {name: value for name, default in _DEFAULTS.items() if (value := getattr(turn, name)) != default}
        for turn in game.turns
    ]
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


_TERMINATIONS = {ILLEGAL_MOVE: "rules infraction", ADJUDICATION: "adjudication", PLY_LIMIT: "adjudication"}
"""The standard's values of the tag Termination that are not `normal` (PGN specification, 9.8.1)."""

_COMMENT = str.maketrans("{}", "()")
_TAG = str.maketrans('"\\', "'/")


def as_pgn(game: MatchGame, versions: Mapping[str, Mapping[str, object]]) -> str:
    """The game as PGN text that ends with an empty line: each move with its evaluation and the answer's text.
    `versions` are the players' descriptions by name, for the tags WhiteVersion and BlackVersion."""
    tree = chess.pgn.Game()
    tags = {
        "Event": "Rookery arena",
        "Round": game.pair + 1,
        "White": game.white,
        "Black": game.black,
        "Result": game.result,
        "WhiteVersion": _version(versions.get(game.white, {})),
        "BlackVersion": _version(versions.get(game.black, {})),
        "Opening": game.opening.name,
        "Termination": _TERMINATIONS.get(game.termination, "normal"),
        "TerminationDetails": game.termination,
        "GameId": game.key,
    }
    # python-chess writes tags as they are, and readers differ in how they take a quoted quote.
    tree.headers.update({tag: " ".join(str(value).translate(_TAG).split()) for tag, value in tags.items()})
    if game.opening.fen != chess.STARTING_FEN:
        tree.setup(game.opening.fen)
    node: chess.pgn.GameNode = tree
    for move in game.opening.moves:
        node = node.add_main_variation(chess.Move.from_uci(move))
    for turn in game.turns:
        if turn.move is None:
            node.comment = f"{node.comment} {_comment(turn)}".strip()
        else:
            node = node.add_main_variation(chess.Move.from_uci(turn.move), comment=_comment(turn))
            node.set_eval(_score(turn))
    return tree.accept(chess.pgn.StringExporter(columns=80)) + "\n\n"


def _comment(turn: MatchTurn) -> str:
    """What was wrong with the tries, and the text that the player wrote.

    Braces, which would end the comment, become round brackets. "[%", with which commands such as `[%eval]`
    begin, gets a space, so that a model cannot write them.
    """
    notes = []
    if not turn.legal_at_once:
        failed = ", ".join(outcome for outcome in turn.outcomes if outcome != Outcome.LEGAL)
        consequence = "game forfeited" if turn.move is None else "random move"
        replaced = turn.outcomes[-1] != Outcome.LEGAL
        notes.append(f"({failed}; {consequence})" if replaced else f"({failed})")
    notes += turn.text.translate(_COMMENT).replace("[%", "[ %").split()
    return " ".join(notes)


def _score(turn: MatchTurn) -> chess.engine.PovScore | None:
    if turn.mate is not None:
        return chess.engine.PovScore(chess.engine.Mate(turn.mate), chess.WHITE)
    return None if turn.cp is None else chess.engine.PovScore(chess.engine.Cp(turn.cp), chess.WHITE)


def _version(description: Mapping[str, object]) -> str:
    return "; ".join(f"{name}={value}" for name, value in description.items())

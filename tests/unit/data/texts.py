"""Games to be broken, and ways to put them into files."""

import bz2
import gzip
from collections.abc import Callable, Iterable
from pathlib import Path

from backports import zstd

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.games import Game, SkippedGame
from chess_datasets.pgn.parser import parse_game
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.store.files import Source, identify
from rookery.pgn.rawgame import Defect, RawGame
from rookery.trace import Split

RUY = "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 1/2-1/2"
MATE = "1. f3 e5 2. g4 Qh4# 0-1"
ENDING = "1. Kd2 Kd7 2. Kd3 Kd6 3. Kd4 Ke6 *"
ENDING_FEN = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"

SOURCE = Source("games.pgn", 1, "0123456789abcdef" * 4)


def game(moves: str = RUY, **tags: str) -> str:
    """A game as it stands in a file."""
    headers = "".join(f'[{name} "{value}"]\n' for name, value in {"Event": "test", **tags}.items())
    return f"{headers}\n{moves}\n\n"


CHECKED = {zstd.CompressionParameter.checksum_flag: 1}

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".pgn": bytes,
    ".pgn.zst": zstd.compress,
    ".pgn.gz": gzip.compress,
    ".pgn.bz2": bz2.compress,
}


def raw_games(path: Path, data: bytes | str) -> list[RawGame]:
    """What a file of these bytes gives, with the defects that show before any move is read."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return [raw.checked() for raw in read_raw_games(path)]


def outline(games: Iterable[RawGame]) -> list[tuple[int, str, Defect | None]]:
    """What stays the same however a file is stored."""
    return [(raw.number, raw.text, raw.defect) for raw in games]


def read(path: Path) -> list[Game | SkippedGame]:
    """Every game of a file, parsed."""
    source = identify(path)
    return [parse_game(raw, source) for raw in read_raw_games(path)]


def sound(text: str) -> Game:
    """The game of a text that has one."""
    parsed = parse_game(RawGame(1, text.encode()), SOURCE)
    assert isinstance(parsed, Game), parsed
    return parsed


def numbers_of(games: GameCollection, split: Split) -> list[int]:
    """The numbers of a split's games."""
    return [games.number(split, index) for index in range(games.count(split))]

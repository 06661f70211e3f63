"""Synthetic dumps: the games of the repository under other names, in the forms that files of games have.

Moves are real; players, ratings, clocks and a few evaluations are invented. With clocks a game takes as many
bytes as in a dump of Lichess (about 2.4 kB) and compresses as one does (about six to one). The window of the
compression is short, lest games that are drawn twice make a file that decompresses too fast.
"""

import random
import re
import struct
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from backports import zstd

from chess_datasets.pgn.reader import read_raw_games

FRAME_BYTES = 16 << 20
"""Of text in a frame, as `pzstd` cuts it."""

_COMPRESSION: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 6,
    zstd.CompressionParameter.window_log: 18,
}
_COLUMNS = 80
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_EVALS = 0.08
_TAG = '[{} "{}"]\n'
_MASTERS_TAGS = ("Event", "Site", "Date", "Round", "White", "Black", "Result", "WhiteElo", "BlackElo", "ECO")


class Kind(StrEnum):
    """A form of games."""

    CLOCKS = "clocks"
    """Lichess's, a clock with every move, evaluations in some games."""
    RATED = "rated"
    """Lichess's without comments, the moves on one line."""
    MASTERS = "masters"
    """Few tags, no comments, the moves in lines of 80 columns."""


def write_dump(
    path: Path, games: Path, *, count: int, copies: int, framed: bool, kind: Kind = Kind.CLOCKS
) -> int:
    """Writes `count` games `copies` times, each copy under other addresses; bytes of text."""
    text = b"".join(_games(games, count, kind))
    with path.open("wb") as file:
        for copy in range(copies):
            again = text.replace(b"https://lichess.org/", b"https://lichess.org/%02d" % copy)
            for first in range(0, len(again), FRAME_BYTES) if framed else ():
                frame = zstd.compress(again[first : first + FRAME_BYTES], options=_COMPRESSION)
                file.write(struct.pack("<III", 0x184D2A50, 4, len(frame)) + frame)
            if not framed:
                file.write(zstd.compress(again, options=_COMPRESSION))
    return copies * len(again)


def write_again(path: Path, games: Path, *, size: int) -> int:
    """Writes the games of a file again and again, shuffled, until there are `size` bytes of text."""
    rng, texts, written = random.Random(0), [raw.data.strip() for raw in read_raw_games(games)], 0
    with zstd.open(path, "wb", options=_COMPRESSION) as writer:
        while written < size:
            rng.shuffle(texts)
            for text in texts:
                writer.write(text + b"\n\n")
                written += len(text) + 2
    return written


def _games(path: Path, count: int, kind: Kind) -> Iterator[bytes]:
    rng = random.Random(0)
    moves = [raw.sections()[1].decode().split() for raw in read_raw_games(path)]
    for _ in range(count):
        yield _game(rng, rng.choice(moves), kind).encode()


def _game(rng: random.Random, words: list[str], kind: Kind) -> str:
    *played, result = words
    sans = [word for word in played if not re.match(r"\d+\.", word)]
    base_s, increment_s = rng.choice([(60, 0), (180, 0), (180, 2), (300, 3), (600, 0), (900, 10)])
    date = f"2024.01.{rng.randint(1, 31):02}"
    gain = rng.randint(1, 9)
    tags = {
        "Event": f"Rated {rng.choice(['Bullet', 'Blitz', 'Rapid'])} game",
        "Site": f"https://lichess.org/{_word(rng, 6)}",
        "Date": date,
        "Round": "-",
        "White": _word(rng, rng.randint(4, 15)),
        "Black": _word(rng, rng.randint(4, 15)),
        "Result": result,
        "UTCDate": date,
        "UTCTime": _clock(rng.randrange(86_400)),
        "WhiteElo": rng.randint(700, 2700),
        "BlackElo": rng.randint(700, 2700),
        "WhiteRatingDiff": f"+{gain}",
        "BlackRatingDiff": f"-{gain}",
        "ECO": f"{rng.choice('ABCDE')}{rng.randrange(100):02}",
        "Opening": "Sicilian Defense: Old Sicilian",
        "TimeControl": f"{base_s}+{increment_s}",
        "Termination": rng.choice(["Normal", "Time forfeit"]),
    }
    if kind is Kind.MASTERS:
        tags = {name: tags[name] for name in _MASTERS_TAGS}
        numbered = [f"{ply // 2 + 1}.{san}" if ply % 2 == 0 else san for ply, san in enumerate(sans)]
        moves = textwrap.fill(" ".join(numbered), _COLUMNS, break_long_words=False, break_on_hyphens=False)
    elif kind is Kind.RATED:
        moves = " ".join(f"{ply // 2 + 1}. {san}" if ply % 2 == 0 else san for ply, san in enumerate(sans))
    else:
        moves = " ".join(_moves(rng, sans, base_s, increment_s))
    head = "".join(_TAG.format(name, value) for name, value in tags.items())
    return f"{head}\n{moves} {result}\n\n"


def _moves(rng: random.Random, sans: list[str], base_s: int, increment_s: int) -> Iterator[str]:
    judged, left_s = rng.random() < _EVALS, [base_s, base_s]
    for ply, san in enumerate(sans):
        side = ply % 2
        left_s[side] = max(0, left_s[side] - rng.randint(0, base_s // 40 + 1) + increment_s)
        score = f"[%eval {rng.uniform(-9, 9):.2f}] " if judged else ""
        yield f"{ply // 2 + 1}{'...' if side else '.'} {san} {{ {score}[%clk {_clock(left_s[side])}] }}"


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _word(rng: random.Random, length: int) -> str:
    return bytes(rng.choices(_LETTERS, k=length)).decode()

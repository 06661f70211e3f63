"""However a file is cut, its games, their numbers and offsets are the same."""

import random
import struct
from collections.abc import Generator, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from chess_datasets.pgn import pieces
from chess_datasets.pgn.reader import handle_file, read_raw_games
from chess_datasets.pgn.scanner import Keep, tickets_of
from rookery.pgn.rawgame import Defect, RawGame
from rookery.processes.workers import Workers
from tests.unit.data.test_data_scanner import TEXTS, facts
from tests.unit.data.texts import CHECKED, COMPRESSORS, MATE, RUY, game

GAMES = [game(f"1. e4 e5 2. Nf3 {{{i}}} *", White=f"player {i}") for i in range(60)]


class Found:
    """The games themselves, as the simplest thing that can be made of them."""

    def __init__(self, raws: Iterable[RawGame] = ()) -> None:
        self.games = 0
        self.raws = list(raws)

    def rebase(self, *, games: int, size: int) -> None:
        self.raws = [raw._replace(number=raw.number + games, offset=raw.offset + size) for raw in self.raws]

    def merge(self, later: "Found", /) -> None:
        self.raws += later.raws


class Every:
    """Handles every game, or those that pass."""

    def __init__(self, keep: Keep | None = None) -> None:
        self.keep = keep

    def choose(self, games: Iterable[RawGame]) -> Generator[RawGame, None, Found]:
        yield from games
        return Found()

    def handle(self, games: Sequence[RawGame]) -> Found:
        return Found(games)


ALONE = Workers(1)


def piecewise(location: Path, workers: Workers = ALONE) -> list[RawGame]:
    found = list(handle_file(str(location), Every(), workers))
    raws = [raw for part in found for raw in part.raws]
    assert sum(part.games for part in found) == len(raws)
    return raws


def announced(frames: Iterable[bytes]) -> bytes:
    """Frames as `pzstd` writes them."""
    return b"".join(struct.pack("<III", 0x184D2A50, 4, len(frame)) + frame for frame in frames)


def compressed(text: bytes, *, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(cuts), len(text)]
    return [zstd.compress(text[a:b], options=CHECKED) for a, b in pairwise(places)]


@settings(max_examples=3 * settings.default.max_examples // 10)
@given(text=TEXTS, newline=st.sampled_from(["\n", "\r\n", "\r"]), size=st.integers(16, 500))
def test_text_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, text: str, newline: str, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.pgn"
    path.write_bytes(text.replace("\n", newline).encode())
    whole = facts(read_raw_games(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", size)
        assert len(pieces.pieces_of(path)) == max(1, -(-path.stat().st_size // size))
        assert facts(read_raw_games(path)) == whole
        assert facts(piecewise(path)) == whole


@settings(max_examples=3 * settings.default.max_examples // 10)
@given(seed=st.integers(0, 1 << 30))
def test_announced_frames_are_pieces(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    text = "".join(GAMES).encode()
    rng = random.Random(seed)
    frames = compressed(text, cuts=(rng.randrange(len(text)) for _ in range(rng.randrange(9))))
    path = tmp_path_factory.getbasetemp() / "frames.pgn.zst"
    path.write_bytes(announced(frames))
    assert len(pieces.pieces_of(path)) == len(frames)
    found = piecewise(path)
    assert [raw.text for raw in found] == [raw.replace("\n\n", "\n") for raw in GAMES]
    assert all(text[raw.offset :].startswith(raw.data[:20]) for raw in found)


def test_what_follows_the_last_announced_frame_belongs_to_it(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn.zst"
    compress = COMPRESSORS[".pgn.zst"]
    first, second, third = (compress(text.encode()) for text in (game(RUY), game(MATE), game(RUY)))
    path.write_bytes(announced([first, second]) + third)
    assert [piece.stop for piece in pieces.pieces_of(path)] == [len(first) + 12, None]
    assert len(piecewise(path)) == 3


def test_a_damaged_frame_costs_no_other(tmp_path: Path) -> None:
    text = "".join(GAMES).encode()
    frames = [bytearray(frame) for frame in compressed(text, cuts=[1000, 2000, 3000])]
    frames[2][-3] ^= 0xFF
    path = tmp_path / "games.pgn.zst"
    path.write_bytes(announced(map(bytes, frames)))
    found = piecewise(path)
    assert facts(found) == facts(read_raw_games(path))
    assert [raw.number for raw in found] == list(range(1, len(found) + 1))
    broken = [raw.number for raw in found if raw.defect]
    assert [found[number - 1].defect for number in broken] == [Defect.DAMAGED_FILE]
    sound = {raw.text for raw in found if not raw.defect}
    assert {raw.replace("\n\n", "\n") for raw in (*GAMES[:20], *GAMES[-8:])} <= sound
    assert len(found) == 43


def ticket(raw: RawGame) -> int:
    return int(tickets_of(raw.data, [0], [len(raw.data)])[0])


def even(tickets: NDArray[np.uint64]) -> list[int]:
    return [place for place, ticket in enumerate(tickets.tolist()) if ticket % 2 == 0]


@pytest.mark.parametrize("size", [300, 1 << 20])
def test_games_that_are_not_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path = tmp_path / "games.pgn"
    path.write_text("".join(GAMES) + "1. e4 *\n1. d4 *\n" + game(MATE, White="player 3x"))
    monkeypatch.setattr(pieces, "PIECE_BYTES", size)
    found = list(handle_file(str(path), Every(even), ALONE))
    kept = [raw for part in found for raw in part.raws]
    assert sum(part.games for part in found) == 63
    assert 20 < len(kept) < 43
    assert kept == [raw for raw in read_raw_games(path) if ticket(raw) % 2 == 0]


def test_a_ticket_is_of_the_first_bytes_without_the_space_at_the_end() -> None:
    short, long = b'[Event "a"]\n\n1. e4 *', b'[Event "b"]\n\n' + b"1. e4 e5 " * 40
    games = [*(short + end for end in (b"", b"\n", b"\r\n\r\n", b"\n" * 300)), short.replace(b"a", b"c")]
    games += [long + b"*", long + b"*\n\n", long + b"1-0\r\n\r\n", long + b"\n" * 9, long[1:]]
    ends = np.cumsum([len(game) for game in games])
    together = tickets_of(b"".join(games), [0, *ends[:-1].tolist()], ends.tolist()).tolist()
    assert together == [ticket(RawGame(1, game)) for game in games]
    assert [together.index(one) for one in together] == [0, 0, 0, 0, 4, 5, 5, 5, 5, 9]

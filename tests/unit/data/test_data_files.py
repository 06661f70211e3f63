import bz2
import gzip
import hashlib
import io
import sys
from contextlib import closing
from pathlib import Path

import fsspec
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from chess_datasets.pgn.collection import SpooledFile
from chess_datasets.pgn.games import Game
from chess_datasets.pgn.indexing import write_index
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.positions.dataset import write_positions
from chess_datasets.positions.recipe import PositionRecipe
from chess_datasets.store.files import BLOCK_BYTES, identify, open_bytes, plain_text, read_chunks, split_lines
from rookery.encoding import decode
from rookery.errors import InvalidInput, SetupError
from rookery.pgn.rawgame import Defect
from tests.unit.data.texts import CHECKED, COMPRESSORS, MATE, RUY, game, outline, raw_games, read

THREE = (game(RUY) + game(MATE) + game(RUY, White="X")).encode()


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_every_compression_gives_the_same_games(tmp_path: Path, suffix: str) -> None:
    plain = raw_games(tmp_path / "plain.pgn", THREE)
    assert raw_games(tmp_path / f"games{suffix}", COMPRESSORS[suffix](THREE)) == plain
    assert len(plain) == 3


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_the_name_decides_nothing(tmp_path: Path, suffix: str) -> None:
    assert len(raw_games(tmp_path / "games.txt", COMPRESSORS[suffix](THREE))) == 3


@pytest.mark.parametrize("suffix", [".pgn.zst", ".pgn.gz", ".pgn.bz2"])
def test_appended_frames_are_one_file(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESSORS[suffix]
    data = compress(game(RUY).encode()) + compress(b"") + compress(game(MATE).encode())
    assert len(raw_games(tmp_path / f"games{suffix}", data)) == 2


def test_padding_after_gzip_is_no_damage(tmp_path: Path) -> None:
    padded = COMPRESSORS[".pgn.gz"](THREE) + bytes(1 << 16)
    assert [raw.defect for raw in raw_games(tmp_path / "games.pgn.gz", padded)] == [None] * 3


@pytest.mark.timeout(20)
@pytest.mark.parametrize("suffix", [".pgn.zst", ".pgn.gz", ".pgn.bz2"])
def test_frames_that_end_in_one_chunk_with_much_text(suffix: str) -> None:
    text = b"".join(b"%d\n" % (number * 7919) for number in range(50_000))
    packed = COMPRESSORS[suffix](text) * 3
    assert b"".join(plain_text([packed])) == text * 3


@pytest.mark.parametrize("suffix", [".pgn.zst", ".pgn.gz", ".pgn.bz2"])
def test_a_cut_tail_keeps_what_came_before_and_says_so(tmp_path: Path, suffix: str) -> None:
    compress = COMPRESSORS[suffix]
    data = compress(THREE) + compress(game(MATE).encode() * 50)[:-9]
    games = raw_games(tmp_path / f"games{suffix}", data)
    assert [g.defect for g in games[:3]] == [None] * 3
    assert games[-1].defect is Defect.DAMAGED_FILE
    assert games[-1].number == len(games)
    assert "EOFError: the compressed file is cut off" in games[-1].detail
    assert sum(g.defect is not None for g in games) == 1


def test_a_file_cut_between_games_loses_none(tmp_path: Path) -> None:
    compress = COMPRESSORS[".pgn.zst"]
    whole, broken = raw_games(
        tmp_path / "games.pgn.zst", compress(game(RUY).encode()) + compress(b"\n\n")[:-1]
    )
    assert outline([whole]) == outline(raw_games(tmp_path / "whole.pgn", game(RUY)))
    assert (broken.number, broken.data) == (2, b"")


def test_the_game_under_the_cut_is_given_up(tmp_path: Path) -> None:
    compress = COMPRESSORS[".pgn.zst"]
    cut = compress(game(RUY).encode() + b'[Event "cut"]\n\n1. e4') + compress(b" e5 *\n" * 9)[:-5]
    whole, broken = raw_games(tmp_path / "games.pgn.zst", cut)
    assert whole.defect is None
    assert (broken.number, broken.defect) == (2, Defect.DAMAGED_FILE)
    assert broken.text == '[Event "cut"]\n'


def test_damage_to_one_byte_costs_what_comes_after_it(tmp_path: Path) -> None:
    games = [game(f"1. e4 e5 2. Nf3 {{{i * i * 7919}}} *") for i in range(80_000)]
    stored = bytearray(zstd.compress("".join(games).encode(), options=CHECKED))
    stored[len(stored) // 2] ^= 0xFF
    found = raw_games(tmp_path / "games.pgn.zst", bytes(stored))
    assert [raw.defect for raw in found[-2:]] == [None, Defect.DAMAGED_FILE]
    assert "ZstdError" in found[-1].detail
    assert 10_000 < len(found) < 80_000


@settings(max_examples=3 * settings.default.max_examples // 5, deadline=None)
@given(data=st.data(), suffix=st.sampled_from(sorted(COMPRESSORS)))
def test_no_damage_stops_the_reader(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, suffix: str
) -> None:
    stored = bytearray(COMPRESSORS[suffix](THREE))
    for _ in range(data.draw(st.integers(1, 3))):
        stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    path.write_bytes(stored[: data.draw(st.integers(0, len(stored)))])
    parsed = read(path)
    assert [g.number for g in parsed] == list(range(1, len(parsed) + 1))


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_newlines(tmp_path: Path, newline: bytes) -> None:
    games = raw_games(tmp_path / "games.pgn", THREE.replace(b"\n", newline))
    assert outline(games) == outline(raw_games(tmp_path / "other.pgn", THREE))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    marked = raw_games(tmp_path / "a.pgn", game(White="R\u00e9ti").encode(encoding))
    assert outline(marked) == outline(raw_games(tmp_path / "b.pgn", game(White="R\u00e9ti")))


def test_files_with_marks_may_be_joined(tmp_path: Path) -> None:
    assert len(raw_games(tmp_path / "a.pgn", (b"\xef\xbb\xbf" + THREE) * 2)) == 6


def test_encodings_may_change_from_game_to_game(tmp_path: Path) -> None:
    utf8, latin1 = game(White="R\u00e9ti").encode(), game(White="R\u00e9ti").encode("latin-1")
    first, second = raw_games(tmp_path / "games.pgn", utf8 + latin1)
    assert '[White "R\u00e9ti"]' in first.text
    assert second.text == first.text


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_what_is_utf8_is_read_as_utf8(text: str) -> None:
    assert decode(text.encode()) == text


def test_identify(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    path.write_bytes(THREE)
    source = identify(path)
    assert (source.path, source.size) == (str(path), len(THREE))
    assert source.sha256 == hashlib.sha256(THREE).hexdigest()


@pytest.mark.parametrize("name", ["missing.pgn", "."])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError, match=f"cannot read '{tmp_path / name}'"):
        identify(tmp_path / name)


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_url_is_a_file(suffix: str) -> None:
    files = fsspec.filesystem("memory")
    files.pipe(f"/bucket/games{suffix}", COMPRESSORS[suffix](THREE))
    assert len(list(read_raw_games(f"memory://bucket/games{suffix}"))) == 3
    files.rm(f"/bucket/games{suffix}")


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_standard_input_may_be_compressed(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(COMPRESSORS[suffix](THREE)))
    monkeypatch.setattr(sys, "stdin", stream)
    assert len(list(read_raw_games("-"))) == 3


def test_a_file_of_nonsense_gives_no_game(tmp_path: Path) -> None:
    path = tmp_path / "nonsense.pgn"
    path.write_bytes(bytes(range(256)) * 100)
    assert not [g for g in read(path) if isinstance(g, Game)]


def test_an_empty_file_has_no_games(tmp_path: Path) -> None:
    path = tmp_path / "empty.pgn"
    path.touch()
    assert list(read_raw_games(path)) == []


@pytest.mark.parametrize("suffix", [".pgn.zst", ".pgn.gz", ".pgn.bz2"])
@pytest.mark.parametrize("tail", [b"no frame", b"no frame" * 100_000])
def test_a_file_is_known_by_all_of_its_bytes_where_reading_stops_early(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, tail: bytes
) -> None:
    path = tmp_path / f"games{suffix}"
    path.write_bytes(COMPRESSORS[suffix](THREE) + tail)
    manifest = write_positions([path], tmp_path / "out", PositionRecipe(count=5, split="all"))
    assert manifest["games"]["read"] == 3
    assert manifest["skipped"]["by_defect"] == {"damaged_file": 1}
    about = write_index(str(path))
    with closing(SpooledFile(str(path))) as copied:
        whole = hashlib.sha256(path.read_bytes()).hexdigest()
        assert {manifest["terms"]["sources"][0]["sha256"], about.source.sha256, copied.source.sha256} == {
            whole
        }
    assert "reading of" in caplog.text
    assert "stops early" in caplog.text


@pytest.mark.parametrize("suffix", [".zst", ".gz", ".bz2"])
@pytest.mark.parametrize(("line", "mib"), [(b"a", 80), (b"\n", 16)], ids=["one line", "empty lines"])
def test_a_few_bytes_that_become_many_are_read_in_blocks(
    tmp_path: Path, suffix: str, line: bytes, mib: int
) -> None:
    path = tmp_path / f"bomb{suffix}"
    writers = {".zst": zstd.open, ".gz": gzip.open, ".bz2": bz2.open}
    with writers[suffix](path, "wb") as file:
        for _ in range(mib):
            file.write(line * (1 << 20))
    with open_bytes(path) as file:
        sizes = [len(block) for block in plain_text(read_chunks(file, 1 << 18))]
    assert sum(sizes) == mib << 20
    assert max(sizes) <= 2 * BLOCK_BYTES
    if line == b"a":
        with (
            open_bytes(path) as file,
            pytest.raises(InvalidInput, match="a line of more than 64 MiB: b'aaaa"),
        ):
            list(split_lines(plain_text(read_chunks(file, 1 << 18))))

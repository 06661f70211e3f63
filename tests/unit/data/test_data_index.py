"""An index gives every game as the reader does, wherever it begins and however the file is stored."""

import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from chess_datasets.__main__ import main
from chess_datasets.pgn import index as index_module
from chess_datasets.pgn import indexing, pieces
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.index import GameIndex, find_index, index_location
from chess_datasets.pgn.indexing import write_index
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.files import identify
from rookery.errors import InvalidInput, SetupError
from services.data import feed
from services.data.__main__ import main as service
from tests.unit.data.conftest import SAMPLE
from tests.unit.data.test_data_pieces import GAMES, announced, compressed
from tests.unit.data.test_data_scanner import TEXTS
from tests.unit.data.texts import COMPRESSORS, MATE, RUY, game, numbers_of, outline

FORMS = [*COMPRESSORS, ".frames"]
ODD = (
    game(RUY)
    + "1. e4 {open\n\n"
    + "".join(GAMES[:9])
    + "1. d4 *\n% hidden\n\ufeff"
    + game(MATE, White="\u00e9")
)


def stored(path: Path, text: str) -> Path:
    """The text in a file of the form that its name ends in."""
    data = text.encode()
    if path.suffix == ".frames":
        path.write_bytes(announced(compressed(data, cuts=range(200, len(data), 300))))
    else:
        path.write_bytes(COMPRESSORS["".join(path.suffixes)](data))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_every_game_is_at_hand(tmp_path: Path, form: str) -> None:
    path = stored(tmp_path / f"games{form}", ODD)
    about = write_index(str(path))
    index = GameIndex(str(path))
    read = list(read_raw_games(path))
    assert len(index) == len(read) == about.games == 13
    assert about.source == identify(path)
    found = [index.raw(number).checked() for number in reversed(range(len(index)))][::-1]
    assert outline(found[:1] + found[2:]) == outline(raw.checked() for raw in read[:1] + read[2:])
    assert [raw.offset for raw in found] == [raw.offset for raw in read]
    assert (found[1].defect, found[1].detail) == (read[1].checked().defect, "as the index says")
    assert [index.find(raw.id) for raw in (read[0], read[-1])] == [0, 12]
    assert index.find("0123456789abcdef") is None
    index.close()


@settings(max_examples=settings.default.max_examples // 4)
@given(text=TEXTS)
def test_whatever_the_text(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "indexed.pgn"
    path.write_bytes(text.encode())
    write_index(str(path))
    index = GameIndex(str(path))
    read = [raw.checked() for raw in read_raw_games(path)]
    assert [index.raw(number).offset for number in range(len(index))] == [raw.offset for raw in read]
    for number, raw in enumerate(read):
        assert raw.defect or index.raw(number).text == raw.text
    index.close()


def test_rows_say_what_the_tags_say(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    path.write_text(game(RUY, WhiteElo="1500", BlackElo="?", TimeControl="180+2", Result="1/2-1/2"))
    write_index(str(path))
    [row] = pq.read_table(index_location(str(path))).to_pylist()
    assert row["offset"] == 0
    assert f"{row['id']:016x}" == next(read_raw_games(path)).id
    assert (row["white_elo"], row["black_elo"], row["base_s"], row["increment_s"]) == (1500, None, 180, 2)
    assert (row["speed"], row["result"], row["variant"], row["bot"]) == ("blitz", "1/2-1/2", "", False)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_module, indexing):
        monkeypatch.setattr(module, "ROWS", 16)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    text = "".join(raw.data.decode() for raw in islice(read_raw_games(SAMPLE), 300)) + "1. e4 {open"
    return stored(tmp_path / "games.frames", text)


@pytest.mark.usefixtures("small_groups")
def test_an_archive_with_an_index_is_the_same_archive(sample: Path) -> None:
    copied = GameCollection([SAMPLE, sample])
    write_index(str(sample))
    indexed = GameCollection([SAMPLE, sample])
    assert indexed.sources == copied.sources
    for split in ("train", "heldout", "all"):
        assert numbers_of(indexed, split) == numbers_of(copied, split)
    orders = [PositionOrder(collection, shares=Shares(), split="heldout") for collection in (copied, indexed)]
    drawn = [[order.position(number, seed=3) for number in range(20)] for order in orders]
    assert drawn[0] == drawn[1]
    assert any(position.id.startswith(copied.sources[1].sha256[:8]) for position in drawn[0])
    last = f"{copied.sources[1].sha256[:8]}:300"
    assert indexed.find(last) == copied.find(last)
    assert indexed.game(len(indexed) - 1) is None
    assert "open_comment" in str(indexed.skipped[len(indexed) - 1])
    for collection in (copied, indexed):
        collection.close()


def test_no_game_is_read_to_open_an_index(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_index(str(sample))
    monkeypatch.setattr(pieces.Piece, "blocks", None)
    collection = GameCollection([sample])
    assert len(collection) == 301
    assert collection.count("train") > 250
    collection.close()


def test_an_index_of_another_file_is_an_error(tmp_path: Path) -> None:
    one, other = stored(tmp_path / "one.pgn", ODD), stored(tmp_path / "other.pgn", game(RUY))
    write_index(str(one))
    shutil.copy(index_location(str(one)), index_location(str(other)))
    with pytest.raises(
        SetupError, match=r"other\.pgn\.index\.parquet' belongs to another file: write it again"
    ):
        find_index(str(other))


def test_the_command_indexes_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path / "one.pgn", ODD)
    stored(tmp_path / "two.pgn.gz", game(RUY))
    assert main(["index", str(tmp_path)]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("one.pgn.index.parquet: 13 games, 1 of them broken")
    assert said[1].endswith("two.pgn.gz.index.parquet: 1 games, 0 of them broken")


def test_no_index_is_none(tmp_path: Path) -> None:
    assert find_index(str(stored(tmp_path / "games.pgn", ODD))) is None


def test_what_is_no_index_is_refused(tmp_path: Path, sample: Path) -> None:
    write_index(str(sample))
    shutil.copy(index_location(str(sample)), tmp_path / "rows")
    table = pq.read_table(tmp_path / "rows").replace_schema_metadata(None)
    pq.write_table(table, index_location(str(sample)))
    with pytest.raises(InvalidInput, match="is not an index of games"):
        GameIndex(str(sample))


@pytest.mark.parametrize("damage", ["a folder", "cut off", "another version"])
def test_an_index_that_cannot_be_read_ends_service_and_feed(
    sample: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it, they would copy the whole file to the disk."""
    header, place = write_index(str(sample)), Path(index_location(str(sample)))
    if damage == "a folder":
        place.unlink()
        place.mkdir()
    elif damage == "cut off":
        place.write_bytes(place.read_bytes()[:-9])
    else:
        older = replace(header, version=0).to_json()
        pq.write_table(pq.read_table(place).replace_schema_metadata({index_module.HEADER_KEY: older}), place)
    said = {"a folder": "Is a directory", "cut off": "not a Parquet file", "another version": "version 0"}
    for start in (service, feed.main):
        assert start(["--sources", str(sample), "--port", "0"]) in (1, 2)
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ")
        assert str(place) in error
        assert said[damage] in error

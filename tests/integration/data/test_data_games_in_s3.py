"""Games in a bucket: read in pieces, drawn from, and the set written back into it."""

import io
import json

import pytest

from chess_datasets.pgn import pieces
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import POSITIONS, write_positions
from chess_datasets.positions.recipe import PositionRecipe
from chess_datasets.store.folders import open_folder
from chess_datasets.store.parquet import read_records
from rookery.errors import SetupError
from tests.unit.data.conftest import SAMPLE
from tests.unit.data.test_data_pieces import announced, compressed

RECIPE = PositionRecipe(count=50, games=0.05)


def test_from_bucket_to_bucket(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_folder(bucket)
    text = b"".join(pieces.Piece(str(SAMPLE)).blocks())
    folder.write_bytes("games/one.pgn.zst", announced(compressed(text, cuts=[500_000, 1_000_000])))
    folder.write_bytes("games/two.pgn", text)
    folder.write_bytes("games/notes.txt", b"nothing")
    monkeypatch.setattr(pieces, "PIECE_BYTES", 700_000)
    assert [len(pieces.pieces_of(name)) for name in find_sources([f"{bucket}/games/"])] == [1, 3]
    manifest = write_positions([f"{bucket}/games/"], f"{bucket}/set", RECIPE)
    assert [source["path"] for source in manifest["terms"]["sources"]] == ["one.pgn.zst", "two.pgn"]
    assert manifest["games"]["seen"] == 2 * 2962
    assert json.load(io.BytesIO(folder.read_bytes("set/manifest.json"))) == manifest
    assert len(list(read_records(folder, "set/positions.parquet", POSITIONS))) == 50


def test_a_missing_object_is_named(bucket: str) -> None:
    with pytest.raises(SetupError, match=r"cannot read 's3://.*/missing\.pgn'"):
        write_positions([f"{bucket}/missing.pgn"], bucket, RECIPE)

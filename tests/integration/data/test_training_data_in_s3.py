"""What `rookery sft` and its kin train on, in a bucket."""

import json
from pathlib import Path

import pytest

from rookery.errors import SetupError, Unavailable
from services.data.store.folders import open_folder
from services.trainer.examples.data_file import local_path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    local_path.cache_clear()


def test_an_object_is_copied_once_and_again_when_it_has_changed(bucket: str, tmp_path: Path) -> None:
    folder = open_folder(f"{bucket}/set")
    folder.write_bytes("pairs.parquet", b"PAR1 one")
    folder.write_bytes("manifest.json", json.dumps({"terms": {}}).encode())
    copies = [local_path(f"{bucket}/set/pairs.parquet")]
    local_path.cache_clear()
    copies.append(local_path(f"{bucket}/set/pairs.parquet"))
    assert copies[0] == copies[1]
    assert copies[0].read_bytes() == b"PAR1 one"
    assert copies[0].with_name("manifest.json").exists()
    folder.write_bytes("pairs.parquet", b"PAR1 two")
    local_path.cache_clear()
    assert local_path(f"{bucket}/set/pairs.parquet").read_bytes() == b"PAR1 two"
    assert not list(tmp_path.rglob(".pairs*"))


def test_what_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(SetupError, match=f"cannot read '{bucket}/missing.jsonl'"):
        local_path(f"{bucket}/missing.jsonl")


def test_a_store_out_of_reach_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(Unavailable, match=f"cannot read '{bucket}/x' now"):
        local_path(f"{bucket}/x")

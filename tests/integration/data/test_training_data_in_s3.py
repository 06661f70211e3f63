"""What `rookery sft` and its kin train on and leave behind, in a bucket."""

import json
from pathlib import Path

import pytest

from chess_datasets.store.folders import open_folder
from launcher.pipeline.state import PipelineStore
from launcher.serve_players import _read
from rookery.errors import SetupError, Unavailable
from rookery.hub import identity, model_folder
from rookery.remote import copied_file, copied_folder, upload
from services.trainer.examples import local_path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copied_file.cache_clear()
    copied_folder.cache_clear()


def test_an_object_is_copied_once_and_again_when_it_has_changed(bucket: str, tmp_path: Path) -> None:
    folder = open_folder(f"{bucket}/set")
    folder.write_bytes("pairs.parquet", b"PAR1 one")
    folder.write_bytes("manifest.json", json.dumps({"terms": {}}).encode())
    copies = [local_path(f"{bucket}/set/pairs.parquet")]
    copied_file.cache_clear()
    copies.append(local_path(f"{bucket}/set/pairs.parquet"))
    assert copies[0] == copies[1]
    assert copies[0].read_bytes() == b"PAR1 one"
    assert copies[0].with_name("manifest.json").exists()
    folder.write_bytes("pairs.parquet", b"PAR1 two")
    copied_file.cache_clear()
    assert local_path(f"{bucket}/set/pairs.parquet").read_bytes() == b"PAR1 two"
    assert not list(tmp_path.rglob(".*"))


def test_what_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(SetupError, match=f"cannot reach '{bucket}/missing.jsonl'"):
        local_path(f"{bucket}/missing.jsonl")


def test_a_store_out_of_reach_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import s3fs

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(Unavailable, match=f"cannot reach '{bucket}/x' now"):
        local_path(f"{bucket}/x")


def test_models_go_to_a_bucket_and_come_from_there(bucket: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from rookery.config.finetune import SftSettings
    from services.trainer.finetune import sft
    from services.trainer.tiny import build_tiny

    upload(
        build_tiny(tmp_path / "tiny", layers=1, hidden_size=32, intermediate_size=32), ["."], f"{bucket}/base"
    )
    moves = [{"messages": [{"role": "user", "content": "."}, {"role": "assistant", "content": "e2e4"}]}] * 4
    open_folder(f"{bucket}/set").write_bytes("a.jsonl", "\n".join(map(json.dumps, moves)).encode())
    how = {"data": f"{bucket}/set/a.jsonl", "steps": 1, "batch_size": 2, "threads": 1, "lora_rank": 2}
    first = SftSettings(model=f"{bucket}/base", out=tmp_path / "one", store=f"{bucket}/sft", **how)  # type: ignore[arg-type]
    made = sft.run(first)
    kept = model_folder(f"{bucket}/sft/model")
    assert identity(f"{bucket}/sft/model").partition("@")[2] == identity(str(made)).partition("@")[2]
    assert {file.name: file.read_bytes() for file in kept.iterdir()} == {
        file.name: file.read_bytes() for file in made.iterdir()
    }
    player = _read(f"model:{bucket}/sft/model")
    assert (player.folder, player.options["name"]) == (kept.resolve(), "sft")
    adapter = _read(f"run:{bucket}/sft@1")
    assert adapter.version is not None
    assert (adapter.version.folder / "SHA256SUMS").is_file()
    sft.run(SftSettings(model=f"{bucket}/sft/model", out=tmp_path / "two", **how))  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=f"there is no folder at '{bucket}/nothing'"):
        model_folder(f"{bucket}/nothing")


def test_a_store_without_its_bucket_is_named(bucket: str, tmp_path: Path) -> None:
    PipelineStore(f"{bucket}/runs", tmp_path)
    with pytest.raises(SetupError, match=r"--store 's3://no-such-bucket/runs': there is no bucket 'no-such-"):
        PipelineStore("s3://no-such-bucket/runs", tmp_path)

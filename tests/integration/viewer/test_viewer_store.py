"""Runs and archives in S3: indexed, brought up to date, and copied once."""

from pathlib import Path

import pytest

from rookery.remote import upload
from services.viewer import store
from services.viewer.group import whole_group
from services.viewer.index import Index
from services.viewer.runs import Runs
from tests.viewed_runs import STEPS, add_file, groups, write_run


def test_a_run_in_a_bucket_is_shown_as_one_on_this_disk(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = write_run(tmp_path, "one", seed=0)
    weights = tmp_path / "one" / "adapters" / f"policy-v{STEPS:06d}" / "adapter_model.safetensors"
    weights.write_bytes(b"not for the viewer")
    upload(tmp_path, ["one"], f"{bucket}/runs")
    runs, index = Runs(f"{bucket}/runs"), Index(tmp_path / "index.duckdb")
    assert runs.names() == ["one"]
    run = runs.find("one")
    index.refresh(run)
    assert (index.progress("one"), index.problem("one")) == ((2, 2), "")
    assert run.last_step()["step"] == STEPS
    shown = whole_group(index, run, made[7].id)
    assert shown["fate"] == "trained in step 2, on version 1, at age 1"
    assert shown["traces"][0]["ratios"]
    assert not list((tmp_path / "cache").rglob("*.safetensors"))

    new = groups("one", seed=5)[:3]
    add_file(tmp_path, "one", new, first=100)
    newest = max((tmp_path / "one" / "archive").rglob("*.parquet"))
    upload(tmp_path, [newest.relative_to(tmp_path).as_posix()], f"{bucket}/runs")
    index.refresh(run)
    assert index.progress("one") == (2, 2)  # the listing is not old enough
    monkeypatch.setattr(store, "LIST_S", 0.0)
    before = {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*.parquet")}
    index.refresh(run)
    assert index.progress("one") == (3, 3)
    assert before.items() <= {p: p.stat().st_ino for p in (tmp_path / "cache").rglob("*.parquet")}.items()

    monkeypatch.setattr(store, "open_store", _refuse)
    index.refresh(run)
    assert "not up to date: cannot reach" in index.problem("one")
    assert whole_group(index, run, made[11].id)["traces"][0]["ratios"] is None
    assert index.progress("one") == (3, 3)
    index.close()


def _refuse(url: str) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def test_an_archive_in_a_bucket_beside_runs_on_this_disk(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = write_run(tmp_path / "runs", "one", seed=0)
    (tmp_path / "runs" / "one" / "archive").rename(tmp_path / "archive")
    upload(tmp_path, ["archive"], bucket)
    runs, index = Runs(tmp_path / "runs", f"{bucket}/archive"), Index(tmp_path / "index.duckdb")
    assert runs.names() == ["one"]
    index.refresh(runs.find("one"))
    assert index.progress("one") == (2, 2)
    assert whole_group(index, runs.find("one"), made[7].id)["step"] == 2
    index.close()
    alone = Runs(tmp_path / "nothing", f"{bucket}/archive")
    assert (alone.names(), len(alone.find("one").update())) == (["one"], 2)

"""Copies of what is in a store: whole, private, and without asking the store more than is said."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from rookery.codec import encode_position
from rookery.config.viewer import ViewerSettings
from rookery.errors import NotFound, SetupError
from rookery.remote import open_store
from rookery.streams import DEAD_FILE, DeadLetter, dump_letters
from services.viewer import store
from services.viewer.app import create_app
from services.viewer.store import Store
from tests.unit.rookery.records import POSITION


@pytest.fixture(autouse=True)
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places that the store was asked for."""
    found: list[str] = []

    def open_and_note(url: str) -> tuple[object, str]:
        found.append(url)
        return open_store(url)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "open_store", open_and_note)
    return found


def test_threads_that_copy_the_same_file_find_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LIST_S", 0.0)
    file = tmp_path / "runs" / "one" / "metrics.jsonl"
    file.parent.mkdir(parents=True)
    copies = Store(f"file://{tmp_path}/runs")

    def fetch(path: Path) -> int:
        copies.fetch(path)
        return path.stat().st_size

    with ThreadPoolExecutor(8) as threads:
        for size in range(1_000_000, 1_000_020):
            file.write_bytes(b"x" * size)
            (copy,) = copies.files("one")
            assert list(threads.map(fetch, [copy] * 8)) == [size] * 8
    assert [path.name for path in copy.parent.iterdir()] == ["metrics.jsonl"]
    assert copies.folder.stat().st_mode & 0o777 == 0o700


def _listing(monkeypatch: pytest.MonkeyPatch, **found: dict[str, object]) -> None:
    files = SimpleNamespace(find=lambda root, detail: found)
    monkeypatch.setattr(store, "open_store", lambda url: (files, "runs/b"))


def test_a_key_that_would_be_copied_elsewhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"size": 3, "last_modified": 5.0}
    keys = ("a/b.json", "/etc/passwd", "a//b.json", "../c.json", "a/./b.json", "")
    _listing(monkeypatch, **{f"runs/b/{key}": info for key in keys})
    copies = Store("s3://runs")
    assert copies.files("b") == {copies.folder / "b" / "a" / "b.json": (3, 5_000_000_000)}


def test_a_store_without_times_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _listing(monkeypatch, **{"runs/b/a.json": {"size": 3, "name": "runs/b/a.json"}})
    with pytest.raises(SetupError, match=r"'http://x/runs': .* when 'runs/b/a.json' was last changed"):
        Store("http://x/runs").files("b")


def test_a_folder_without_a_name_is_not_found() -> None:
    with pytest.raises(NotFound, match="'s3://runs'"):
        Store("s3://runs").files("")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    for name in ("archive/run=a", "archive/run=b", "archive/models", "runs/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "runs" / "c" / "endpoints.json").write_text('{"redis_url": "redis://127.0.0.1:1/0"}')
    settings = ViewerSettings(runs_dir=f"file://{tmp_path}/runs", archive=f"file://{tmp_path}/archive")
    (tmp_path / "index").mkdir()
    with TestClient(create_app(settings, folder=tmp_path / "index"), base_url="http://localhost") as client:
        yield client


def test_runs_are_listed_by_their_folders_alone(client: TestClient, asked: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        assert {run["name"] for run in client.get("/api/runs").json()} == {"a", "b", "c"}
    assert asked == [f"file://{tmp_path}/runs", f"file://{tmp_path}/archive"]


def test_dead_letters_come_from_the_archive_if_redis_is_not_known(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = encode_position(POSITION)
    letters = [
        DeadLetter("1-0", "positions", "7-0", "no such move", position),
        DeadLetter("2-0", "traces", "8-0", "not finite", b""),
    ]
    (tmp_path / "archive" / "run=b" / DEAD_FILE).write_bytes(dump_letters(letters))
    answer = client.get("/api/runs/b/dead")
    fields = ("id", "stream", "entry", "reason", "item", "replayable")
    assert [tuple(letter[name] for name in fields) for letter in answer.json()] == [
        ("2-0", "traces", "8-0", "not finite", "", False),
        ("1-0", "positions", "7-0", "no such move", POSITION.id, False),
    ]
    monkeypatch.setattr("services.viewer.store.LIST_S", 0.0)
    (tmp_path / "archive" / "run=b" / DEAD_FILE).write_bytes(dump_letters(letters[1:]))
    assert [letter["id"] for letter in client.get("/api/runs/b/dead").json()] == ["2-0"], "as they are now"


def test_the_redis_of_another_machine_is_not_asked(client: TestClient) -> None:
    assert client.get("/api/runs/c").json()["archive"] is not None
    assert (
        "is not known: start the viewer with --redis-url" in client.get("/api/runs/c/dead").json()["detail"]
    )

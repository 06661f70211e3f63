"""Data behind a URL: copied once, again when it has changed, with its manifest."""

from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest
from fsspec import AbstractFileSystem

from rookery.config.finetune import DpoSettings, SftSettings
from rookery.errors import SetupError, Unavailable
from rookery.remote import copied_file, local_folder
from services.trainer.examples import local_path
from services.trainer.versions.files import file_sha256

URL = "memory://bucket/set/moves.jsonl"


class Bare(AbstractFileSystem):  # type: ignore[misc]
    """Whose paths begin with the bucket, as those of S3."""

    protocol = "bare"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AbstractFileSystem]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copied_file.cache_clear()
    yield (memory := fsspec.filesystem("memory"))
    with suppress(FileNotFoundError):
        memory.rm("/bucket", recursive=True)
    copied_file.cache_clear()


def test_a_path_is_itself() -> None:
    assert local_path("runs/moves/moves.jsonl") == Path("runs/moves/moves.jsonl")


def test_a_url_is_copied_with_its_manifest(files: AbstractFileSystem, tmp_path: Path) -> None:
    files.pipe({"/bucket/set/moves.jsonl": b"one\n", "/bucket/set/manifest.json": b"{}"})
    copy = local_path(URL)
    assert (copy.name, copy.read_bytes()) == ("moves.jsonl", b"one\n")
    assert copy.with_name("manifest.json").read_bytes() == b"{}"
    assert copy.is_relative_to(tmp_path / "cache" / "rookery")
    files.pipe("/bucket/set/moves.jsonl", b"other\n")
    copied_file.cache_clear()
    assert local_path(URL).read_bytes() == b"other\n"
    files.pipe("/bucket/set/manifest.json", b'{"settings": {}}')
    copied_file.cache_clear()
    assert local_path(URL).with_name("manifest.json").read_bytes() == b'{"settings": {}}'


def test_a_file_of_an_http_server_is_copied_again_when_it_has_changed(files: AbstractFileSystem) -> None:
    pytest.importorskip("aiohttp")
    body = b"one"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # without a Content-Length, as of what is made while it is sent
            self.send_response(200 if self.path == "/x.jsonl" else 404)
            self.send_header("ETag", f'"{body.decode()}"')
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/x.jsonl"
        assert local_path(url).read_bytes() == b"one"
        body = b"two"
        copied_file.cache_clear()
        assert local_path(url).read_bytes() == b"two"
        server.shutdown()


def test_what_cannot_be_had_is_said(files: AbstractFileSystem) -> None:
    files.pipe("/bucket/set/other.jsonl", b"")
    with pytest.raises(SetupError, match=rf"cannot reach '{URL}'"):
        local_path(URL)
    with pytest.raises(SetupError, match=r"nobody://x/y.*Protocol not known: nobody"):
        local_path("nobody://x/y")
    with pytest.raises(SetupError, match=r"'http://h:port/x': not a URL"):
        local_path("http://h:port/x")
    fsspec.register_implementation("bare", Bare, clobber=True)
    with pytest.raises(SetupError, match="'bare://bucket/' names a bucket, but no file in it"):
        local_path("bare://bucket/")


def test_a_copy_that_fails_leaves_nothing(
    files: AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.pipe({"/bucket/set/a": b"a", "/bucket/set/b": b"b"})

    def full(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(Unavailable, match="No space left"):
        patch.setattr(Path, "rename", full)
        local_folder("memory://bucket/set")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert (local_folder("memory://bucket/set") / "b").read_bytes() == b"b"
    assert not list((tmp_path / "cache" / "rookery").glob(".*"))


def test_a_url_stays_one_in_the_settings() -> None:
    sft = SftSettings(model="m", data="s3://b/x", eval_data=Path("y"), out="o")  # type: ignore[arg-type]
    assert (sft.data, sft.eval_data) == ("s3://b/x", "y")
    assert SftSettings(model="m", data="x", eval_data=None, out="o").eval_data is None  # type: ignore[arg-type]
    assert DpoSettings(model="m", data="s3://b/x", out="o").data == "s3://b/x"  # type: ignore[arg-type]


def test_the_hash_follows_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"")
    empty = file_sha256(path)
    assert empty == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    path.write_bytes(b"x")
    assert file_sha256(path) != empty

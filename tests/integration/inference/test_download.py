"""Versions that travel from a trainer's routes, or a bucket, to a server that shares no disk with it."""

import asyncio
import json
import shutil
import socket
import socketserver
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from bench.noise_adapter import write_adapter
from rookery.errors import InvalidInput, PeerFault, SetupError, Unavailable
from rookery.remote import upload
from rookery.trace import Adapter
from services.inference.server import download
from services.inference.server.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterRules
from services.inference.server.download import FOLDER, SUMS, DownloadingRules
from services.trainer.process import add_routes
from services.trainer.versions.commits import served_files, write
from tests.servers import serve_http

pytestmark = pytest.mark.torch

MODEL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
}


class Line(socketserver.ThreadingTCPServer):
    """A connection to the trainer that breaks once `cut` bytes have come through it, and refuses at 0."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.port, self.cut, self.passed = port, 1 << 40, 0
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _Through)
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/adapters"


class _Through(socketserver.BaseRequestHandler):
    server: Line

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as trainer:
            threading.Thread(target=self._forward, args=(trainer,), daemon=True).start()
            while data := trainer.recv(512):
                if len(data) > self.server.cut:
                    self.request.sendall(data[: self.server.cut])
                    self.server.cut = 0
                    return
                self.server.cut -= len(data)
                self.server.passed += len(data)
                self.request.sendall(data)

    def _forward(self, trainer: socket.socket) -> None:
        try:
            while data := self.request.recv(65536):
                self.server.requests.append(data.decode())
                trainer.sendall(data)
        except OSError:
            return


@dataclass
class Trainer:
    folder: Path
    line: Line
    versions: dict[int, Adapter]


@pytest.fixture
async def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trainer]:
    monkeypatch.setattr(download, "PAUSES_S", (0.01, 0.01))
    folder = tmp_path / "trainer"
    versions = {number: commit(folder, tmp_path, number) for number in range(3)}
    app = FastAPI()
    add_routes(app, folder)
    async with serve_http(app) as url:
        line = Line(int(url.rpartition(":")[2]))
        yield Trainer(folder, line, versions)
        line.shutdown()
        line.server_close()


def commit(folder: Path, tmp_path: Path, number: int) -> Adapter:
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    shutil.rmtree(tmp_path / "made" / str(number), ignore_errors=True)
    made = write_adapter(tmp_path / "made" / str(number), tmp_path / "model", version=number, scale=0.1)
    files = {name: (Path(made.path) / name).read_bytes() for name in (WEIGHTS_FILE, CONFIG_FILE)}
    files |= {"optimizer.safetensors": b"moments"}
    committed = write(folder, number=number, files=files, ledger=(), fingerprint={})
    return replace(made, version=committed.version, path=str(committed.folder))


def rules(
    url: str, root: Path, *, keep: int = 8, stopping: threading.Event | None = None, most: int = 1 << 30
) -> DownloadingRules:
    checks = AdapterRules(root, frozenset({"model"}), 8)
    names, event = (CONFIG_FILE, WEIGHTS_FILE), stopping or threading.Event()
    return DownloadingRules(checks, url, root=root, names=names, keep=keep, max_weights=most, stopping=event)


async def verify(checks: DownloadingRules, adapter: Adapter) -> Adapter:
    return await asyncio.to_thread(checks.verify, adapter)


def in_place(root: Path) -> list[str]:
    """The versions that a server could load."""
    return sorted(path.name for path in (root / FOLDER).glob("policy-*"))


async def test_a_version_comes_over_http_and_only_once(trainer: Trainer, tmp_path: Path) -> None:
    checks, adapter = rules(trainer.line.url, tmp_path / "served"), trainer.versions[1]
    got = await verify(checks, adapter)
    assert got.version == adapter.version
    assert Path(got.path).is_relative_to(tmp_path / "served")
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        assert (Path(got.path) / name).read_bytes() == (Path(adapter.path) / name).read_bytes()
    passed = trainer.line.passed
    assert await verify(checks, adapter) == got
    assert trainer.line.passed == passed
    here = replace(adapter, path=got.path)
    assert await verify(rules("http://127.0.0.1:9/", tmp_path / "served"), here) == got, "it needs no trainer"


async def test_a_connection_that_is_cut_goes_on_where_it_ended(trainer: Trainer, tmp_path: Path) -> None:
    root, adapter = tmp_path / "served", trainer.versions[1]
    checks, weights = rules(trainer.line.url, root), (Path(adapter.path) / WEIGHTS_FILE).read_bytes()
    trainer.line.cut = len(weights) // 2
    with pytest.raises(PeerFault, match=f"{WEIGHTS_FILE}.* bytes are kept"):
        await verify(checks, adapter)
    assert in_place(root) == []
    [part] = (root / FOLDER).glob(f".*/{WEIGHTS_FILE}")
    arrived = part.stat().st_size
    assert 0 < arrived < len(weights)
    assert weights.startswith(part.read_bytes())

    trainer.line.cut = 1 << 40
    trainer.line.requests.clear()
    got = await verify(rules(trainer.line.url, root), adapter)
    assert (Path(got.path) / WEIGHTS_FILE).read_bytes() == weights
    [request] = [text for text in trainer.line.requests if WEIGHTS_FILE in text]
    assert f"range: bytes={arrived}-" in request.lower()


async def test_what_is_not_the_version_is_refused_and_not_kept(trainer: Trainer, tmp_path: Path) -> None:
    root, adapter = tmp_path / "served", trainer.versions[2]
    checks, folder = rules(trainer.line.url, root), Path(adapter.path)
    whole = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).write_bytes(whole[:-1] + b"!")
    with pytest.raises(
        InvalidInput, match=f"{WEIGHTS_FILE}, by .* has sha256 .*, not '{adapter.version.sha256}'"
    ):
        await verify(checks, adapter)
    assert in_place(root) == []
    other = replace(adapter, version=replace(adapter.version, sha256="f" * 64))
    with pytest.raises(InvalidInput, match=f"has sha256 {adapter.version.sha256}, not 'ffff"):
        await verify(checks, other)
    (folder / WEIGHTS_FILE).unlink()
    with pytest.raises(InvalidInput, match=f"policy-v000002/{WEIGHTS_FILE}: 404"):
        await verify(checks, adapter)
    shutil.rmtree(folder)
    with pytest.raises(InvalidInput, match=f"policy-v000002/{SUMS}: 404"):
        await verify(checks, adapter)
    assert in_place(root) == []
    commit(trainer.folder, tmp_path, 2)
    assert (await verify(checks, adapter)).version == adapter.version


async def test_the_route_gives_out_what_servers_load_and_nothing_else(trainer: Trainer) -> None:
    version = trainer.folder / "policy-v000001"
    (version / "secret").symlink_to(trainer.folder.parent / "model" / "config.json")
    (version / "folder").mkdir()
    (trainer.folder / "policy-v000007").symlink_to(trainer.folder.parent / "model")
    async with httpx.AsyncClient(base_url=trainer.line.url) as http:
        assert (await http.get(f"policy-v000001/{CONFIG_FILE}")).status_code == 200
        for path in (
            "policy-v000001/optimizer.safetensors",
            "policy-v000001/state.json",
            f"policy-v1/{CONFIG_FILE}",
            f"policy-v000009/{CONFIG_FILE}",
            "policy-v000001/..%2F..%2Fmade",
            "policy-v000001/secret",
            f"policy-v000007/{CONFIG_FILE}",
            "policy-v000001/folder",
        ):
            assert (await http.get(path)).status_code == 404, path


@pytest.mark.parametrize("name", [SUMS, CONFIG_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("scheme", ["http", "file"])
async def test_a_file_without_end_is_not_written(
    trainer: Trainer, tmp_path: Path, *, name: str, scheme: str
) -> None:
    root, adapter = tmp_path / "served", trainer.versions[1]
    (trainer.folder / "policy-v000001" / name).write_bytes(b"0" * (3 << 20))
    url = trainer.line.url if scheme == "http" else f"file://{trainer.folder}"
    with pytest.raises(InvalidInput, match=f"policy-v000001/{name}: more than 1048576 bytes"):
        await verify(rules(url, root, most=1 << 20), adapter)
    assert (next((root / FOLDER).iterdir()) / name).stat().st_size == 0


async def test_a_server_that_stops_ends_its_download(trainer: Trainer, tmp_path: Path) -> None:
    root, stopping = tmp_path / "served", threading.Event()
    stopping.set()
    with pytest.raises(PeerFault, match="the server is stopping"):
        await verify(rules(trainer.line.url, root, stopping=stopping), trainer.versions[1])
    assert in_place(root) == []


async def test_a_disk_that_takes_no_files_is_named(trainer: Trainer, tmp_path: Path) -> None:
    root = tmp_path / "served"
    root.mkdir()
    (root / FOLDER).write_text("a file, where the folder should be")
    with pytest.raises(Unavailable, match="cannot keep policy-v000001"):
        await verify(rules(trainer.line.url, root), trainer.versions[1])
    with pytest.raises(InvalidInput, match="http://a:b"):
        await verify(rules("http://a:b", tmp_path / "other"), trainer.versions[1])


async def test_the_oldest_downloads_make_room(trainer: Trainer, tmp_path: Path) -> None:
    root = tmp_path / "served"
    checks = rules(trainer.line.url, root, keep=2)
    for number in (0, 1, 0, 2):
        await verify(checks, trainer.versions[number])
    assert [name[:14] for name in in_place(root)] == ["policy-v000000", "policy-v000002"]


async def test_a_version_comes_through_a_bucket(trainer: Trainer, tmp_path: Path, bucket: str) -> None:
    root, adapter = tmp_path / "served", trainer.versions[1]
    checks = rules(f"{bucket}/adapters", root)
    with pytest.raises(InvalidInput, match=f"policy-v000001/{SUMS}"):
        await verify(checks, adapter)
    folder = Path(adapter.path)
    names = [f"{folder.name}/{path.name}" for path in served_files(folder)]
    for _ in range(2):  # a trainer that was restarted copies its version again
        upload(folder.parent, names, f"{bucket}/adapters")
    weights = (folder / WEIGHTS_FILE).read_bytes()
    part = root / FOLDER / f".policy-v000001-{adapter.version.sha256[:16]}" / WEIGHTS_FILE
    part.write_bytes(weights[:100])
    got = await verify(checks, adapter)
    assert (Path(got.path) / WEIGHTS_FILE).read_bytes() == weights
    with pytest.raises(SetupError, match="nosuch://bucket"):
        rules("nosuch://bucket", root)

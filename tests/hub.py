"""The Hugging Face Hub: its cache as huggingface_hub lays it out, and a server that takes uploads."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REVISION = "607a30d783dfa663caf39e06633721c8d4cfcd7e"


def write_snapshot(cache: Path, model: str, config: Mapping[str, Any] | None = None) -> Path:
    """The folder of an id's snapshot in `cache`; with a `config`, that and an empty file of weights."""
    repository = cache / f"models--{model.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    snapshot = repository / "snapshots" / REVISION
    snapshot.mkdir(parents=True)
    if config is not None:
        (snapshot / "config.json").write_text(json.dumps(config))
        (snapshot / "model.safetensors").touch()
    return snapshot


class HubServer(ThreadingHTTPServer):
    """A hub that takes uploads in one commit. `files` are their contents by path."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.tokens = set[str]()
        super().__init__(("127.0.0.1", 0), _HubHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _HubHandler(BaseHTTPRequestHandler):
    server: HubServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tokens.add(self.headers.get("Authorization", ""))
        if self.path == "/api/repos/create":
            made = json.loads(body)
            self._answer({"url": f"{self.server.url}/{made['organization']}/{made['name']}"})
        elif self.path.endswith("/preupload/main"):
            paths = [file["path"] for file in json.loads(body)["files"]]
            self._answer(
                {"files": [{"path": p, "uploadMode": "regular", "shouldIgnore": False} for p in paths]}
            )
        elif self.path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            repo = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
            self._answer({"commitUrl": f"{self.server.url}/{repo}/commit/{REVISION}", "commitOid": REVISION})
        else:  # the check of the card
            self._answer({"errors": [], "warnings": []})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        status = 401 if self.headers.get("Authorization") == "Bearer wrong" else 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def hub_server() -> Iterator[HubServer]:
    with HubServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()

"""How versions reach inference servers that share no disk with the trainer: over HTTP, or by a store.

Both offer `VERSION/FILE` for the files that a server loads, and `SHA256SUMS`.
"""

from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse

from rookery.errors import PeerFault
from rookery.remote import open_store
from services.trainer.versions import commits
from services.trainer.versions.commits import OPTIMIZER, STATE, SUMS


def served_files(folder: Path) -> list[Path]:
    """The files of a version that a server may read, `SHA256SUMS` last."""
    names = {path.name for path in folder.iterdir()} - {OPTIMIZER, STATE, SUMS}
    return [folder / name for name in (*sorted(names), SUMS)]


def add_routes(app: FastAPI, root: Path) -> None:
    """Adds `GET /adapters/{version}/{name}`, which answers range requests, for the versions in `root`."""

    @app.get("/adapters/{version}/{name}", response_class=FileResponse, tags=["adapters"])
    def adapter_file(version: str, name: str) -> FileResponse:
        """A file of a version, such as /adapters/policy-v000042/adapter_model.safetensors."""
        folder = next((f for f in commits.folders(root).values() if f.name == version), None)
        path = next((p for p in served_files(folder) if p.name == name), None) if folder else None
        if path is None:
            raise HTTPException(404, f"no file {name[:100]!r} of version {version[:100]!r}")
        return FileResponse(path, media_type="application/octet-stream")


class Store:
    """Copies versions to a folder of a store, such as `s3://bucket/runs/mine/adapters`. Deletes nothing."""

    def __init__(self, url: str) -> None:
        """
        Raises:
            SetupError: the store is unknown, or the package for it is missing.
        """
        self._files, self._root = open_store(url)
        self._url = url

    def keep(self, folder: Path) -> None:
        """Copies a version. `SHA256SUMS` comes last, so a server that finds it finds all files.

        Raises:
            PeerFault: the store does not answer, or refuses.
        """
        try:
            self._files.makedirs(f"{self._root}/{folder.name}", exist_ok=True)
            for path in served_files(folder):
                self._files.put_file(str(path), f"{self._root}/{folder.name}/{path.name}")
        except Exception as error:  # each store has its own
            raise PeerFault(f"--adapter-store {self._url}: {type(error).__name__} {error}") from error

"""Runs and archives in a store, such as s3://bucket/runs: this disk gets a copy of what is looked at."""

import os
import time
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from rookery.errors import NotFound
from rookery.remote import cache_folder, open_store, store_faults

Stamp = tuple[int, int]
"""Size and time of change (ns) of a file."""

LIST_S = 15.0
"""Seconds for which a listing of the store counts as up to date. The archiver writes a file a minute."""


class Store:
    """A folder of a store, and copies of its files in `folder`, which outlive this process."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.folder = cache_folder() / "viewer" / sha256(self.url.encode()).hexdigest()[:32]
        self._listings: dict[str, tuple[float, dict[Path, Stamp]]] = {}
        self._lock = Lock()

    def names(self) -> list[str]:
        """The names of the folders in it.

        Raises:
            SetupError, Unavailable: the store refuses, or does not answer.
        """
        with store_faults(self.url):
            files, root = open_store(self.url)
            found = files.ls(root, detail=True)
        return [str(info["name"]).rpartition("/")[2] for info in found if info["type"] == "directory"]

    def files(self, name: str) -> dict[Path, Stamp]:
        """The files in the folder `name` of it, by the places of their copies.

        Raises:
            SetupError, Unavailable: as `names`.
        """
        with self._lock:
            since, listing = self._listings.get(name, (-LIST_S, {}))
            if time.monotonic() - since >= LIST_S:
                with store_faults(self.url):
                    files, root = open_store(f"{self.url}/{name}")
                    found = files.find(root, detail=True)
                listing = {
                    self.folder / name / place[len(root) + 1 :]: _stamp(info)
                    for place, info in found.items()
                    if ".." not in place.split("/")  # a key of S3 may have any name
                }
                self._listings[name] = time.monotonic(), listing
        return listing

    def fetch(self, path: Path) -> None:
        """Copies a file that was listed, unless the copy is there.

        Raises:
            NotFound: it was not listed.
            SetupError, Unavailable: as `names`.
        """
        stamps = [listing[path] for _, listing in self._listings.values() if path in listing]
        if not stamps:
            raise NotFound(f"no file {path.relative_to(self.folder).as_posix()!r} in {self.url!r}")
        if stamp_of(path) == stamps[0]:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        with store_faults(self.url):
            files, root = open_store(self.url)
            files.get_file(f"{root}/{path.relative_to(self.folder).as_posix()}", str(part))
        os.utime(part, ns=(stamps[0][1],) * 2)
        part.replace(path)


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None if it is not there."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _stamp(info: dict[str, Any]) -> Stamp:
    """Of what fsspec tells of a file: S3 has a `LastModified`, a local one an `mtime`."""
    changed = info.get("LastModified") or info.get("mtime") or info["created"]
    seconds = changed if isinstance(changed, int | float) else changed.timestamp()
    return int(info["size"]), int(seconds * 1000) * 1_000_000

"""Runs and archives in a store, such as s3://bucket/runs: copies the files that are viewed to this disk."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from rookery.errors import NotFound, SetupError
from rookery.remote import cache_folder, open_store, store_faults

Stamp = tuple[int, int]
"""Size and time of change (ns) of a file."""

LIST_S = 15.0
"""Seconds for which a listing of the store counts as up to date. The archiver writes a file a minute."""

_CHANGED = ("LastModified", "last_modified", "mtime", "updated", "created")
"""What fsspec's file systems call the time of the last change: S3, Azure, a local disk, Google's, memory."""


@dataclass(slots=True)
class _Listing:
    """The listing of a folder. The lock keeps two requests from listing it at once."""

    lock: Lock = field(default_factory=Lock)
    since: float = -math.inf
    stamps: dict[Path, Stamp] = field(default_factory=dict)


class Store:
    """A folder of a store, and copies of its files in `folder`, which outlive this process. Thread-safe."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.folder = cache_folder() / "viewer" / sha256(self.url.encode()).hexdigest()[:32]
        self._listings: dict[str, _Listing] = {}

    def names(self) -> list[str]:
        """The names of the folders in it.

        Raises:
            SetupError, Unavailable: the store refuses, or does not answer.
        """

        def folders(files: Any, root: str) -> dict[str, Any]:
            return {info["name"]: info for info in files.ls(root, detail=True) if info["type"] == "directory"}

        return [path.name for path in self._stamps("", folders)]

    def files(self, name: str) -> dict[Path, Stamp]:
        """The files in the folder `name` of it, by the places of their copies.

        Raises:
            NotFound: the name is empty.
            SetupError, Unavailable: as `names`.
        """
        if not name:
            raise NotFound(f"a folder without a name in {self.url!r}")
        return self._stamps(name, lambda files, root: files.find(root, detail=True))

    def _stamps(self, name: str, list_folder: Callable[[Any, str], Mapping[str, Any]]) -> dict[Path, Stamp]:
        """The stamps of the files that `list_folder` lists, from a listing that is at most `LIST_S` old."""
        listing = self._listings.setdefault(name, _Listing())
        with listing.lock:
            if time.monotonic() - listing.since < LIST_S:
                return listing.stamps
            with store_faults(self.url):
                files, root = open_store(f"{self.url}/{name}" if name else self.url)
                infos = list_folder(files, root)
            listing.stamps = {
                self.folder / name / place[len(root) + 1 :]: self._stamp(info)
                for place, info in infos.items()
                # A key of S3 may have any name. One with such a segment could be copied to another folder.
                if not {"", ".", ".."}.intersection(place[len(root) + 1 :].split("/"))
            }
            listing.since = time.monotonic()
            return listing.stamps

    def _stamp(self, info: dict[str, Any]) -> Stamp:
        if info.get("type") == "directory":
            return 0, 0
        changed = next((info[name] for name in _CHANGED if info.get(name)), None)
        if changed is None:
            raise SetupError(
                f"{self.url!r}: this store does not tell when {info.get('name')!r} was last changed, "
                "by which the viewer knows whether its copy is up to date"
            )
        if isinstance(changed, str):
            changed = datetime.fromisoformat(changed)
        seconds = changed if isinstance(changed, int | float) else changed.timestamp()
        return int(info["size"]), int(seconds * 1000) * 1_000_000

    def fetch(self, path: Path) -> None:
        """Copies a file that was listed, unless the copy is there.

        Raises:
            NotFound: it was not listed.
            SetupError, Unavailable: as `names`.
        """
        place = path.relative_to(self.folder)
        listing = self._listings.get(place.parts[0])
        stamp = listing.stamps.get(path) if listing else None
        if stamp is None:
            raise NotFound(f"no file {place.as_posix()!r} in {self.url!r}")
        if stamp_of(path) == stamp:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # a run's settings may have passwords
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent, prefix=".") as folder, store_faults(self.url):
            part = Path(folder) / path.name
            files, root = open_store(self.url)
            files.get_file(f"{root}/{place.as_posix()}", str(part))
            os.utime(part, ns=(stamp[1], stamp[1]))
            part.replace(path)


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file; None if it is not there."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_size, stat.st_mtime_ns

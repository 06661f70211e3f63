"""Downloads versions that are not on this machine, from the trainer over HTTP or from a store such as S3.

The files of a version are written to a hidden folder, which gets its final name once all have the SHA-256 in
`SHA256SUMS`, and the weights that of the policy record. A download that was cut off continues where it ended.
"""

import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from rookery.access import OPEN, REMEDY, Access
from rookery.canary import CANARY_FILE
from rookery.errors import InvalidInput, PeerFault, Unavailable
from rookery.remote import open_store
from rookery.retries import PAUSES_S, pause_after
from rookery.trace import Adapter, PolicyVersion
from services.inference.server import file_checks
from services.inference.server.policies import VersionChecks

SUMS = "SHA256SUMS"
OPTIONAL = (CANARY_FILE,)
"""Files of a version that not every trainer writes."""
FOLDER = "fetched"
"""Versions from elsewhere are in this folder of the adapter root."""

TIMEOUT_S = 10.0
"""How long the other side may send nothing."""

_MAX_BYTES = 1 << 20
"""Largest file of a version besides its weights."""
_SMALL_MODEL_BYTES = 1 << 30
"""An adapter of a small model can be larger than the model."""
_BLOCK = 1 << 20


class DownloadingRules:
    """Downloads a version from `url` unless it is in `root`, then applies the checks of `rules`."""

    def __init__(
        self,
        rules: VersionChecks,
        url: str,
        *,
        root: Path,
        names: tuple[str, ...],
        keep: int,
        max_weights: int,
        access: Access = OPEN,
        stopping: threading.Event,
    ) -> None:
        """`names` are the files of a version, the weights last; the `keep` newest downloads stay on disk.
        No more than `max_weights` bytes of weights are downloaded.

        `stopping` ends a download, so that it does not delay the end of the process. Raises `SetupError` if
        the store of `url` is unknown, or the package for it is missing.
        """
        self._rules, self._url = rules, url.rstrip("/")
        self._root, self._names, self._keep = root.resolve(), names, keep
        self._stopping, self._max_weights = stopping, max_weights
        http = url.startswith(("http://", "https://"))
        self._source: _Http | _Store = _Http(access) if http else _Store(url)

    def verify(self, adapter: Adapter) -> Adapter:
        """Returns the version with its path on this machine. Reads the weights.

        Raises:
            InvalidInput: a check fails, or the other side does not have the version.
            PeerFault: the other side does not answer, or the connection was cut too often. What has arrived
                is kept for the next call.
            Unavailable: the files cannot be written.
        """
        try:
            folder = (self._root / adapter.path).resolve()
            here = folder.is_relative_to(self._root) and all(
                (folder / name).is_file() for name in self._names
            )
        except (OSError, ValueError):  # a path of the other machine that means nothing here
            here = False
        if not here:
            try:
                adapter = replace(adapter, path=str(self._fetch(adapter.version)))
            except OSError as error:
                raise Unavailable(f"cannot keep {adapter.version.name} on this disk: {error}") from error
        return self._rules.verify(adapter)

    def must_differ(self, adapter: Adapter) -> bool:
        return self._rules.must_differ(adapter)

    def _fetch(self, version: PolicyVersion) -> Path:
        if not re.fullmatch("[0-9a-f]{64}", version.sha256):  # it becomes part of a path
            raise InvalidInput(f"{version.name}: {version.sha256!r} is not a SHA-256")
        # The checksum is in the name because a run that went back has other bytes under the same number.
        folder = self._root / FOLDER / f"{version.name}-{version.sha256[:16]}"
        if not folder.is_dir():
            part = folder.with_name(f".{folder.name}")
            part.mkdir(parents=True, exist_ok=True)
            remote = f"{self._url}/{version.name}"
            sums = self._sums(f"{remote}/{SUMS}", part / SUMS)
            if (digest := sums.get(self._names[-1])) != version.sha256:
                raise InvalidInput(
                    f"{remote}/{SUMS}: {self._names[-1]} has sha256 {digest}, not {version.sha256!r}"
                )
            for name in (*(name for name in OPTIONAL if name in sums), *self._names):
                limit = self._max_weights if name == self._names[-1] else _MAX_BYTES
                self._download(f"{remote}/{name}", part / name, limit=limit)
                if name not in sums:
                    raise InvalidInput(f"{remote}/{SUMS} does not name {name!r}")
                _check(part / name, sums[name], f"{remote}/{name}")
            part.rename(folder)
        os.utime(folder)
        self._prune()
        return folder

    def _sums(self, url: str, path: Path) -> dict[str, str]:
        path.unlink(missing_ok=True)
        self._download(url, path, limit=_MAX_BYTES)
        lines = path.read_text(errors="replace").splitlines()
        return {name: sha256 for sha256, _, name in (line.partition("  ") for line in lines)}

    def _download(self, url: str, path: Path, *, limit: int) -> None:
        """Appends what is missing to `path`. Gives up when several attempts in a row add nothing. Raises
        `InvalidInput` if the file has more than `limit` bytes, of which none are kept."""
        failures, size = 0, -1
        while True:
            try:
                return self._source.append(url, path, self._stopping, limit=limit)
            except _CutOffError as error:
                grown = path.stat().st_size if path.exists() else 0
                failures, size = (1 if grown > size else failures + 1), grown
                if failures > len(PAUSES_S) or self._stopping.wait(pause_after(failures, PAUSES_S)):
                    raise PeerFault(f"{error}; {grown} bytes are kept for the next attempt") from error

    def _prune(self) -> None:
        """Deletes the versions that were used least recently, and downloads that were given up."""
        by_age = sorted((self._root / FOLDER).iterdir(), key=lambda path: path.stat().st_mtime)
        for folder in by_age[: -self._keep]:
            # Hidden first: if this is killed, what is left counts as a download that was cut off.
            hidden = folder.rename(folder.with_name(f".{folder.name.lstrip('.')}"))
            shutil.rmtree(hidden, ignore_errors=True)


def _check(path: Path, sha256: str, url: str) -> None:
    try:
        file_checks.check_sha256(path, sha256)
    except InvalidInput as error:
        path.unlink()  # the next attempt begins anew
        raise InvalidInput(f"{url}, by its {SUMS}: {error}") from error


class _CutOffError(Exception):
    """The other side did not send the whole file; it may later."""


class _Http:
    def __init__(self, access: Access) -> None:
        self._headers = {**access.headers, "Accept-Encoding": "identity"}
        self._tls = access.client_tls()

    def append(self, url: str, path: Path, stopping: threading.Event, *, limit: int) -> None:
        start = path.stat().st_size if path.exists() else 0
        headers = self._headers | ({"Range": f"bytes={start}-"} if start else {})
        try:
            with httpx.stream("GET", url, headers=headers, verify=self._tls, timeout=TIMEOUT_S) as response:
                if response.status_code == 416:  # there is no byte `start`: the file is complete
                    return
                if response.status_code >= 500:
                    raise _CutOffError(f"GET {url}: {response.status_code}")
                if response.status_code == 401:
                    raise InvalidInput(f"{url} refuses the token: {REMEDY}")
                if not response.is_success:
                    raise InvalidInput(f"GET {url}: {response.status_code} {response.reason_phrase}")
                with _synced(path, "ab" if response.status_code == 206 else "wb") as file:
                    length = response.headers.get("Content-Length", "")
                    _check_size(file, int(length) if length.isdecimal() else 0, url, limit=limit)
                    _write(response.iter_raw(), file, url, stopping=stopping, limit=limit)
        except httpx.InvalidURL as error:
            raise InvalidInput(f"adapter_url: {url!r}: {error}") from error
        except httpx.HTTPError as error:
            raise _CutOffError(f"GET {url}: {type(error).__name__} {error}") from error


class _Store:
    def __init__(self, url: str) -> None:
        self._files, _ = open_store(url)

    def append(self, url: str, path: Path, stopping: threading.Event, *, limit: int) -> None:
        try:
            with self._files.open(url, "rb") as source, _synced(path, "ab") as file:
                source.seek(file.tell())
                _check_size(file, (source.size or 0) - file.tell(), url, limit=limit)
                blocks = iter(lambda: source.read(_BLOCK), b"")
                _write(blocks, file, url, stopping=stopping, limit=limit)
        except (FileNotFoundError, PermissionError) as error:
            raise InvalidInput(f"{url}: {error.strerror or error}") from error
        except (InvalidInput, PeerFault):
            raise
        except Exception as error:  # each store has its own
            raise _CutOffError(f"{url}: {type(error).__name__} {error}") from error


def _write(
    blocks: Iterator[bytes], file: BinaryIO, url: str, *, stopping: threading.Event, limit: int
) -> None:
    for block in blocks:
        _check_size(file, len(block), url, limit=limit)
        file.write(block)
        if stopping.is_set():
            raise PeerFault("the server is stopping, and ends its download")


def _check_size(file: BinaryIO, more: int, url: str, *, limit: int) -> None:
    """Empties the file and raises `InvalidInput` if it would have more than `limit` bytes."""
    if file.tell() + more > limit:
        file.truncate(0)
        raise InvalidInput(f"{url}: more than {limit} bytes")


def most_weights(model: Path) -> int:
    """The most bytes that weights of a version can have: those of all layers in float32 or, of a small model,
    an adapter that is larger than it."""
    return 4 * sum(path.stat().st_size for path in model.glob("*.safetensors")) + _SMALL_MODEL_BYTES


@contextmanager
def _synced(path: Path, mode: str) -> Iterator[Any]:
    """Opens a file whose bytes are on disk when it is closed, so that its folder can be renamed."""
    with path.open(mode) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())

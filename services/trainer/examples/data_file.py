"""Finds the data of a run: a path, or a URL such as `s3://bucket/x.parquet`, which is downloaded once.

Copies are in `$XDG_CACHE_HOME/rookery`, in a folder named by the store's identity of the file. A file that
has changed has another identity and is copied again.
"""

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from rich.progress import open as open_shown

from rookery.errors import SetupError, Unavailable

logger = logging.getLogger(__name__)

_SHOWN_BYTES = 1 << 30
"""Files of at least this size show a progress bar while they are read."""


@cache
def local_path(place: str) -> Path:
    """Returns a path unchanged, or the local copy of a URL. Each process queries the store once.

    A `manifest.json` beside the remote file is copied too.

    Raises:
        SetupError: there is no such file, or its protocol is not supported.
        Unavailable: the store does not answer.
    """
    if "://" not in place:
        return Path(place)
    with _faults(place):
        files, remote = _opened(place)
        folder, _, name = remote.rpartition("/")
        if "/" not in remote:
            raise SetupError(f"--data {place} names a bucket, but no file in it")
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rookery"
        copy: Path = cache / files.ukey(remote)[:32] / name
        if not copy.exists():
            logger.info("copying %s (%.1f MB) to %s", place, files.size(remote) / 1e6, copy)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                files.get_file(f"{folder}/manifest.json", str(copy.with_name("manifest.json")))
            part = copy.with_name(f".{name}.{os.getpid()}")
            files.get_file(remote, str(part))
            part.rename(copy)
    return copy


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal. A process reads an unchanged file only once."""
    found = path.stat()
    return _sha256(path, found.st_size, found.st_mtime_ns)


@cache
def _sha256(path: Path, size: int, changed_ns: int) -> str:
    del changed_ns  # part of the cache's key only
    with open_shown(
        path, "rb", description=f"SHA-256 of {path.name}", transient=True, disable=size < _SHOWN_BYTES
    ) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _opened(url: str) -> tuple[Any, str]:
    protocol = url.partition("://")[0]
    hint = ": pip install 'rookery[s3]'" if protocol == "s3" else ""
    try:
        from fsspec.core import url_to_fs

        files, remote = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise SetupError(f"--data {url}: {error}{hint}") from error
    files.invalidate_cache()
    return files, str(remote)


@contextmanager
def _faults(url: str) -> Iterator[None]:
    """Turns the store's errors into Rookery's. botocore's connection errors are not OSErrors."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise SetupError(f"cannot read {url!r}: {error.strerror or error}") from error
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith("botocore"):
            raise Unavailable(f"cannot read {url!r} now: {error}") from error
        raise

"""Folders on a disk or behind a URL (`s3://bucket/prefix`), whose files appear whole or not at all.

A file is written under a temporary name and moved (disk), or in parts that one last request joins
(S3): a reader never sees half of it, and a writer that dies leaves nothing that bears the name. Reading and
writing stream; what is inside the files is for others: `services.data.store.tables` knows Parquet.
"""

import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rookery.errors import RookeryError, SetupError, Unavailable

PART_BYTES = 8 << 20
"""Of a multipart upload: the most that a remote writer holds. S3 takes 10,000 parts, so files up to 80 GB."""


@dataclass(frozen=True, slots=True)
class Written:
    """A finished file."""

    name: str
    size: int
    sha256: str


class Draft:
    """A file that does not exist yet; hashes what passes through, so that nothing is read again."""

    def __init__(self, name: str, file: IO[bytes], *, place: str) -> None:
        self.name = name
        self.closed = False
        self._file = file
        self._place = place
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        with _faults(self._place, "write"):
            self._file.write(data)
        self._digest.update(data)
        size = memoryview(data).nbytes
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing is durable before the end."""

    def close(self) -> None:
        """Its folder closes it; a format's writer may believe it did."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def written(self) -> Written:
        """What the file is, once it is whole."""
        return Written(self.name, self._size, self._digest.hexdigest())


class Folder(ABC):
    """A folder of files with relative names such as `date=2026-01-02/5-9.parquet`."""

    url: str

    @abstractmethod
    @contextmanager
    def write(self, name: str) -> Iterator[Draft]:
        """A new file, or another content of an old one: there when the block ends, not if it raises.

        Raises:
            SetupError: it cannot be written here.
            Unavailable: the store does not answer.
        """

    @abstractmethod
    @contextmanager
    def read(self, name: str) -> Iterator[IO[bytes]]:
        """The file, seekable.

        Raises:
            SetupError: there is none, or it cannot be read.
            Unavailable: the store does not answer.
        """

    @abstractmethod
    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        """Names of the whole files in the folder and its folders, sorted; `below` looks into one of these."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file, if there is one."""

    def place(self, name: str) -> str:
        """Where a file of this folder is."""
        return f"{self.url.rstrip('/')}/{name}"

    def write_bytes(self, name: str, data: bytes) -> Written:
        """A small file at once."""
        with self.write(name) as draft:
            draft.write(data)
        return draft.written

    def read_bytes(self, name: str) -> bytes:
        """A small file at once."""
        with self.read(name) as file:
            return file.read()

    def sha256(self, name: str) -> str:
        """Of what the file holds now."""
        with self.read(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


class Disk(Folder):
    """A folder of this machine; made when the first file is written."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    @contextmanager
    def write(self, name: str) -> Iterator[Draft]:
        final = self._path / name
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        with _faults(str(final), "write"):
            final.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("wb")
        try:
            with file:
                yield Draft(name, file, place=str(final))
                with _faults(str(final), "write"):
                    file.flush()
                    os.fsync(file.fileno())
            with _faults(str(final), "write"):
                temporary.replace(final)
                _sync(final.parent)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def read(self, name: str) -> Iterator[IO[bytes]]:
        with _faults(self.place(name), "read"):
            file = (self._path / name).open("rb")
        with file:
            yield file

    def remove(self, name: str) -> None:
        path = self._path / name
        with _faults(str(path), "remove"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty; buckets have no empty folders either
            path.parent.rmdir()

    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        return sorted(
            str(path.relative_to(self._path))
            for path in (self._path / below).rglob(f"*{suffix}")
            if path.is_file() and not path.name.startswith(".")
        )


class Remote(Folder):
    """A folder behind any URL that fsspec knows."""

    def __init__(self, url: str) -> None:
        self.url = url
        with _faults(url, "open"):
            self._files, self._root = _file_system(url)

    @contextmanager
    def write(self, name: str) -> Iterator[Draft]:
        place = self.place(name)
        with _faults(place, "write"):
            # Without autocommit closing sends the last part, and only `commit` makes them a file.
            file = self._files.open(f"{self._root}/{name}", "wb", autocommit=False, block_size=PART_BYTES)
        try:
            yield Draft(name, file, place=place)
            with _faults(place, "write"):
                file.close()
                file.commit()
        except BaseException:
            with suppress(RookeryError), _faults(place, "write"):  # what ended the write is told, not this
                file.discard()
            with suppress(AttributeError):
                file.closed = True  # else its finalizer would try to send what is left
            raise

    @contextmanager
    def read(self, name: str) -> Iterator[IO[bytes]]:
        with _faults(self.place(name), "read"):
            file = self._files.open(f"{self._root}/{name}", "rb")
        with file:
            yield file

    def remove(self, name: str) -> None:
        with _faults(self.place(name), "remove"), suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        with _faults(self.url, "list"):
            found = self._files.find(f"{self._root}/{below}".rstrip("/"))
        prefix = f"{self._root}/"
        # Of a file S3 says that it is below itself.
        inside = (path.removeprefix(prefix) for path in found if path.startswith(prefix))
        return sorted(name for name in inside if name.endswith(suffix))


def open_folder(url: str | Path) -> Folder:
    """The folder at a path or URL; it need not exist yet.

    Raises:
        SetupError: nobody here speaks that protocol.
    """
    text = str(url)
    if text.startswith("file://"):
        return Disk(Path(text.removeprefix("file://")))
    return Remote(text.rstrip("/")) if "://" in text else Disk(Path(text))


def open_file(url: str | Path) -> tuple[Folder, str]:
    """The folder of a file and its name in it."""
    folder, _, name = str(url).rpartition("/")
    return open_folder(folder or ("/" if str(url).startswith("/") else ".")), name


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    protocol = url.partition("://")[0]
    # A cached listing would hide what another process wrote a second ago.
    options = {"use_listings_cache": False} if protocol == "s3" else {}
    try:
        files, root = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        hint = ": pip install 'rookery[s3]'" if protocol == "s3" else ""
        raise SetupError(f"{url!r}: {error}{hint}") from error
    except ValueError as error:
        raise SetupError(f"{url!r}: {error}") from error
    return files, str(root).rstrip("/")


@contextmanager
def _faults(place: str, doing: str) -> Iterator[None]:
    """The store's own errors as ours, with the place."""
    try:
        yield
    except _MISPLACED as error:
        raise SetupError(f"cannot {doing} {place!r}: {error.strerror or error}") from error
    except _away() as error:
        raise Unavailable(f"cannot {doing} {place!r} now: {error}") from error


_MISPLACED = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""No matter how often it is tried again; a folder that is a file `exists`."""


def _away() -> tuple[type[Exception], ...]:
    """S3 out of reach is no OSError; its library is imported only by those who use it."""
    botocore = sys.modules.get("botocore.exceptions")
    return (OSError, botocore.BotoCoreError) if botocore else (OSError,)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

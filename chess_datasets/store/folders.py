"""Folders on disk or behind a URL (`s3://bucket/prefix`), with atomic writes of files.

A file is written under a temporary name and then renamed (disk), or uploaded in parts that a last request
joins (S3). A reader never sees an incomplete file, and a writer that dies leaves no file of that name. Reads
and writes are streamed. Formats are handled elsewhere, such as Parquet in `chess_datasets.store.parquet`.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any

from rookery.errors import RookeryError
from rookery.files import sync
from rookery.remote import open_store, store_faults

PART_BYTES = 8 << 20
"""Part size of a multipart upload, held in memory. S3 accepts 10,000 parts, so files of up to 80 GB."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished file."""

    name: str
    size: int
    sha256: str


class OutputFile:
    """A file that is being written. It is hashed at the same time, so it need not be read again."""

    def __init__(self, name: str, file: IO[bytes], *, place: str) -> None:
        self.name = name
        self.closed = False
        self._file = file
        self._place = place
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        with store_faults(self._place, "write"):
            self._file.write(data)
        self._digest.update(data)
        size = memoryview(data).nbytes
        self._size += size
        return size

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Does nothing: the file becomes durable when the `with` block of `Folder.write` ends."""

    def close(self) -> None:
        """Does nothing. `ParquetWriter` calls this, but the folder closes the file."""

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    @property
    def written(self) -> WrittenFile:
        """Name, size and hash of the file. Correct only once it is complete."""
        return WrittenFile(self.name, self._size, self._digest.hexdigest())


class StoredFile(RawIOBase):
    """A file that is being read. The store may fail at any read, not only when the file is opened."""

    def __init__(self, file: Any, place: str) -> None:
        self._file = file
        self._place = place

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def readinto(self, buffer: Any, /) -> int:
        with store_faults(self._place, "read"):
            return int(self._file.readinto(buffer))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with store_faults(self._place, "read"):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())


class Folder(ABC):
    """A folder of files with relative names such as `date=2026-01-02/5-9.parquet`."""

    url: str

    @abstractmethod
    @contextmanager
    def write(self, name: str) -> Iterator[OutputFile]:
        """Writes or replaces a file. It exists when the block ends, and is unchanged if the block raises.
        Raises `SetupError` if the file cannot be written here; `Unavailable` if the store does not answer."""

    @contextmanager
    def read(self, name: str) -> Iterator[IO[bytes]]:
        """Opens a file for reading; it is seekable.

        Raises, here and when it is read:
            SetupError: the file does not exist or cannot be read.
            Unavailable: the store does not answer.
        """
        with store_faults(self.place(name), "read"):
            file = self._open(name)
        with file:
            yield BufferedReader(StoredFile(file, self.place(name)))

    @abstractmethod
    def _open(self, name: str) -> Any:
        """A file for reading, without a buffer of ours. It raises what the store raises."""

    @abstractmethod
    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        """Sorted names of the complete files in this folder and below it, or only in the folder `below`."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Deletes a file, if it exists."""

    def place(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}"

    def write_bytes(self, name: str, data: bytes) -> WrittenFile:
        with self.write(name) as draft:
            draft.write(data)
        return draft.written

    def read_bytes(self, name: str) -> bytes:
        with self.read(name) as file:
            return file.read()

    def sha256(self, name: str) -> str:
        with self.read(name) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


class LocalFolder(Folder):
    """A folder on disk, created when the first file is written."""

    def __init__(self, path: Path) -> None:
        self.url = str(path)
        self._path = path

    @contextmanager
    def write(self, name: str) -> Iterator[OutputFile]:
        final = self._path / name
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        with store_faults(str(final), "write"):
            final.parent.mkdir(parents=True, exist_ok=True)
            file = temporary.open("wb")
        try:
            with file:
                yield OutputFile(name, file, place=str(final))
                with store_faults(str(final), "write"):
                    file.flush()
                    os.fsync(file.fileno())
            with store_faults(str(final), "write"):
                temporary.replace(final)
                sync(final.parent)
        finally:
            temporary.unlink(missing_ok=True)

    def _open(self, name: str) -> Any:
        return (self._path / name).open("rb", buffering=0)

    def remove(self, name: str) -> None:
        path = self._path / name
        with store_faults(str(path), "remove"):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # fails if not empty; buckets have no empty folders either
            path.parent.rmdir()

    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        return sorted(
            str(path.relative_to(self._path))
            for path in (self._path / below).rglob(f"*{suffix}")
            if path.is_file() and not path.name.startswith(".")
        )


class RemoteFolder(Folder):
    """A folder behind any URL that fsspec supports."""

    def __init__(self, url: str) -> None:
        self.url = url
        with store_faults(url, "open"):
            self._files, self._root = open_store(url)

    @contextmanager
    def write(self, name: str) -> Iterator[OutputFile]:
        place = self.place(name)
        with store_faults(place, "write"):
            # Without autocommit, closing sends the last part, and only `commit` joins the parts to a file.
            file = self._files.open(f"{self._root}/{name}", "wb", autocommit=False, block_size=PART_BYTES)
        try:
            yield OutputFile(name, file, place=place)
            with store_faults(place, "write"):
                file.close()
                file.commit()
        except BaseException:
            with suppress(RookeryError), store_faults(place, "write"):  # report the first error
                file.discard()
            with suppress(AttributeError):
                file.closed = True  # or its finalizer would try to send the rest
            raise

    def _open(self, name: str) -> Any:
        return self._files.open(f"{self._root}/{name}", "rb")

    def remove(self, name: str) -> None:
        with store_faults(self.place(name), "remove"), suppress(FileNotFoundError):
            self._files.rm_file(f"{self._root}/{name}")

    def names(self, *, below: str = "", suffix: str = "") -> list[str]:
        with store_faults(self.url, "list"):
            paths = self._files.find(f"{self._root}/{below}".rstrip("/"))
        prefix = f"{self._root}/"
        # S3 lists a file as if it were below itself.
        inside = (path.removeprefix(prefix) for path in paths if path.startswith(prefix))
        return sorted(name for name in inside if name.endswith(suffix))


def open_folder(url: str | Path) -> Folder:
    """The folder at a path or URL. It need not exist yet. Raises `SetupError` if the protocol is not
    supported."""
    text = str(url)
    if text.startswith("file://"):
        return LocalFolder(Path(text.removeprefix("file://")))
    return RemoteFolder(text.rstrip("/")) if "://" in text else LocalFolder(Path(text))


def open_file(url: str | Path) -> tuple[Folder, str]:
    """The folder of a file, and its name in that folder."""
    folder, _, name = str(url).rpartition("/")
    return open_folder(folder or ("/" if str(url).startswith("/") else ".")), name

"""Copies files and folders from and to URLs that fsspec supports, such as `s3://bucket/runs/sft/model`.

Copies are kept in `$XDG_CACHE_HOME/rookery`, in a folder named after the store's identity of the files. Files
that change get another identity, so they are copied again.
"""

import hashlib
import logging
import os
import site
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator

from rookery.errors import QUOTED_CHARS, SetupError, Unavailable
from rookery.files import expanded
from rookery.settings import check_http_url, check_path

logger = logging.getLogger(__name__)

T = TypeVar("T", str, Path)

_PACKAGE = Path(__file__).parents[1]
_SHIPPED = {"models", "samples"}
"""Folders that come with the package: beside it in the repository, and as data in a wheel."""


def shipped(place: str | Path) -> Path:
    """The path `place` or, if there is nothing, what is shipped by that name, as `models/rook-tiny`."""
    path = Path(place)
    if not path.exists() and path.parts[:1] and path.parts[0] in _SHIPPED:
        installed = (
            Path(folder, "share", "rookery") for folder in (sysconfig.get_path("data"), site.getuserbase())
        )
        return next((root / path for root in (_PACKAGE, *installed) if (root / path).exists()), path)
    return path


ShippedPath = Annotated[Path, AfterValidator(shipped)]
"""A setting: a path, of which `models/...` and `samples/...` are found in any working folder."""


def is_url(place: str) -> bool:
    """Whether `place` is a URL and not a path or the id of a model."""
    return "://" in place


def _check(place: str, *, is_folder: bool = False) -> str:
    place = expanded(place)
    if place.startswith("file://") or not is_url(place):
        check_path(Path(expanded(place.removeprefix("file://"))), is_folder=is_folder)
    return place


def _check_folder(place: T) -> T:
    return type(place)(_check(str(place), is_folder=True))


def _check_each(places: str) -> str:
    return ",".join(map(_check, places.split(",")))


def _check_file(place: T) -> T:
    place = expanded(place)
    if str(place) and not is_url(str(place)) and Path(place).is_dir():
        raise ValueError("it is a folder")
    return place


def _check_named(text: str) -> str:
    name, _, place = text.partition("=")
    checked = _check(place or text)
    if not (name and place):
        raise ValueError("write NAME=PATH")
    return f"{name}={checked}"


# Types of settings. What lies below a file is refused before a command starts; no URL is asked, nothing is
# created. `Settings` does this for the type `Path`.

PathOrUrl = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value),
    AfterValidator(_check),
]
"""A path, a pattern, or a URL. Not a `Path`, which would merge the slashes of a URL."""

NamedPath = Annotated[str, AfterValidator(_check_named)]
"""NAME=PATH."""

PathsOrUrls = Annotated[str, AfterValidator(_check_each)]
"""Several of them, separated by commas."""

FolderOrUrl = Annotated[PathOrUrl, AfterValidator(_check_folder)]
"""A folder, which need not exist, or its URL."""

FolderPath = Annotated[Path, AfterValidator(_check_folder)]
"""A folder, which need not exist."""

OutputFile = Annotated[PathOrUrl, AfterValidator(_check_file)]
"""A file to write, or its URL."""

OutputPath = Annotated[Path, AfterValidator(_check_file)]
"""A file to write."""


def cache_folder() -> Path:
    """The folder of the copies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rookery"


def local_folder(place: str) -> Path:
    """The path `place`, shipped or not, or a copy of the folder at that URL. A process asks the store once.
    Raises `SetupError` if nothing is at the URL, or the protocol is not supported; `Unavailable` if the store
    does not answer."""
    return copied_folder(place) if is_url(place) else shipped(place)


@cache
def copied_folder(place: str) -> Path:
    """As `local_folder`, of a URL."""
    with store_faults(place):
        files, root = open_store(place)
        names = sorted(files.find(root))
        if not names or names == [root]:
            raise SetupError(f"there is no folder at {place!r}")
        identity = hashlib.sha256("\n".join(_identity(files, name) for name in names).encode()).hexdigest()
        copy = cache_folder() / identity[:32] / root.rpartition("/")[2]
        if not copy.exists():
            _copy(files, root, names, copy=copy)
    return copy


def local_file(place: str, beside: str) -> Path:
    """The path `place`, shipped or not, or a copy of the file at that URL. A process asks the store once.

    The file `beside` it in the same folder is copied too, if it exists. If either changes, both are copied
    again. Raises `SetupError` if there is no such file, or the protocol is not supported; `Unavailable` if
    the store does not answer.
    """
    return copied_file(place, beside) if is_url(place) else shipped(place)


@cache
def copied_file(place: str, beside: str) -> Path:
    """As `local_file`, of a URL."""
    with store_faults(place):
        files, root = open_store(place)
        folder, slash, name = root.rpartition("/")
        if not slash:
            raise SetupError(f"{place!r} names a bucket, but no file in it")
        identity, neighbour = _identity(files, root), f"{folder}/{beside}"
        with suppress(FileNotFoundError):
            identity = hashlib.sha256(f"{identity} {_identity(files, neighbour)}".encode()).hexdigest()
        copy: Path = cache_folder() / identity[:32] / name
        if not copy.exists():
            logger.info("copying %s to %s", place, copy)
            with suppress(FileNotFoundError):
                _copy(files, neighbour, [neighbour], copy=copy.with_name(beside))
            _copy(files, root, [root], copy=copy)
    return copy


def _identity(files: Any, name: str) -> str:
    """A hash of what the store says of a file, such as size and ETag, which changes with the file. fsspec's
    `ukey` of an HTTP file is its URL alone. The address of a redirect, which may differ each time, is left
    out.
    """
    info = {key: value for key, value in files.info(name).items() if key != "url"}
    return hashlib.sha256(str(info).encode()).hexdigest()


def _copy(files: Any, root: str, names: Iterable[str], *, copy: Path) -> None:
    """Copies files below `root`, or the file `root` itself: as a whole, or not at all."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache_folder(), prefix=".") as folder:
        part = Path(folder) / copy.name
        for name in names:
            file = part / name[len(root) + 1 :]
            file.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(file))
        copy.parent.mkdir(exist_ok=True)
        try:
            part.rename(copy)
        except OSError:
            if not copy.exists():  # else another process was faster
                raise


def find_run(place: str, *, runs_dir: str | Path = "runs") -> Path:
    """The folder of a run: that of its name in `runs_dir`, a path, or a copy of what is at a URL. Raises
    `SetupError` if there is none; the message says where it was sought, and which runs there are."""
    place = expanded(place.removeprefix("run:"))  # as a player is written
    if is_url(place):
        return local_folder(place)
    inside, path = Path(runs_dir) / place, Path(place)
    sought = [inside, path] if path.name == place else [path, inside]
    if folder := next((folder for folder in sought if folder.is_dir()), None):
        return folder
    names = sorted(folder.name for folder in Path(runs_dir).glob("*/") if any(folder.glob("*.json*")))
    tried = " nor ".join(repr(str(folder)[:QUOTED_CHARS]) for folder in dict.fromkeys(sought))
    listed = f"runs in {str(runs_dir)[:QUOTED_CHARS]!r}: {', '.join(names[-_LISTED:]) or 'none'}"
    hint = "; a version is a number, as in RUN@42" if "@" in path.name else ""
    raise SetupError(f"no run {place[:QUOTED_CHARS]!r}: neither {tried} is a folder; {listed}{hint}")


def run_version(place: str) -> tuple[Path, int | None]:
    """The folder of a run, as of `find_run`, and the version that `RUN@VERSION` names; None for `RUN`."""
    run, _, number = place.rpartition("@")
    return (find_run(run), int(number)) if run and number.isdecimal() else (find_run(place), None)


_LISTED = 20
"""Runs that an error names: the newest, as names begin with the date."""


def upload(folder: Path, names: Iterable[str], url: str) -> None:
    """Copies files and folders of `folder`, those that exist, below `url`. Raises `SetupError` if the
    protocol is not supported, or the store refuses; `Unavailable` if the store does not answer."""
    with store_faults(url):
        files, root = open_store(url)
        for name in names:
            path = folder / name
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    place = f"{root}/{file.relative_to(folder).as_posix()}"
                    files.makedirs(place.rpartition("/")[0], exist_ok=True)
                    files.put_file(str(file), place)


def open_store(url: str) -> tuple[Any, str]:
    """The file system of a URL and the path there. It does not cache listings, because others write too.
    Raises `SetupError` if the protocol is not supported, or its package is missing."""
    s3 = url.startswith("s3://")
    try:
        from fsspec.core import url_to_fs

        if url.startswith(("http://", "https://")):
            check_http_url(url)
        files, root = url_to_fs(url, **({"use_listings_cache": False} if s3 else {}))
    except (ImportError, ValueError) as error:
        hint = ": pip install 'rookery[s3]'" if s3 and isinstance(error, ImportError) else ""
        raise SetupError(f"{url[:QUOTED_CHARS]!r}: {str(error)[:QUOTED_CHARS]}{hint}") from error
    files.invalidate_cache()
    return files, str(root).rstrip("/")


_NOT_RETRIABLE = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors that a retry cannot fix. `FileExistsError`: a folder of the path is a file."""


@contextmanager
def store_faults(place: str, doing: str = "reach") -> Iterator[None]:
    """Turns the errors of a store into Rookery's, with the place. Raises `SetupError` if nothing is there, or
    the store refuses; `Unavailable` if the store does not answer."""
    try:
        yield
    except _NOT_RETRIABLE as error:
        raise SetupError(f"cannot {doing} {place[:QUOTED_CHARS]!r}: {error.strerror or error}") from error
    except Exception as error:
        # The connection errors of these packages are not all OSErrors.
        client = type(error).__module__.partition(".")[0] in ("aiohttp", "botocore", "httpx", "httpx2")
        if client or isinstance(error, OSError):
            why = str(error).replace(place, "it")[:QUOTED_CHARS]
            raise Unavailable(f"cannot {doing} {place[:QUOTED_CHARS]!r} now: {why}") from error
        raise

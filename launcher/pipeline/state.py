"""Records which steps have run in `pipeline.json` of the pipeline's folder, and copies it all to a store.

A step is up to date if its command is the same, and so are the SHA-256 digests of the files that it reads and
of those that it wrote.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, NotRequired

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from launcher.pipeline.pipeline import PipelineStep
from launcher.runs import write_json
from rookery.errors import SetupError, validation_message
from rookery.remote import open_store, store_faults

STATE_FILE = "pipeline.json"


@dataclass(frozen=True, slots=True)
class Digest:
    """The content of a file, or of all files of a folder, in the order of their paths."""

    sha256: str
    size: int
    times: str
    """A digest of paths, sizes and times. Files for which it is that of last time are not read again."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The record of a step in `pipeline.json`."""

    command: str
    version: str
    status: Literal["running", "done", "failed"]
    started: str
    ended: str = ""
    seconds: float = 0.0
    inputs: Mapping[str, Digest] = field(default_factory=dict)
    outputs: Mapping[str, Digest] = field(default_factory=dict)


class _File(TypedDict):
    settings: NotRequired[dict[str, str]]
    steps: dict[str, StepRecord]


_FILE = TypeAdapter(_File)


class PipelineState:
    """The records of the steps by name, and the `--set` settings of the last run, from `pipeline.json`."""

    def __init__(self, out: Path) -> None:
        self._path = out / STATE_FILE
        stored = _read(self._path)
        self.records, self.overrides = stored["steps"], stored.get("settings", {})

    def adopt(self, records: Mapping[str, StepRecord]) -> None:
        """Takes over the records of another machine that are newer than its own."""
        for name, record in records.items():
            if name not in self.records or self.records[name].started < record.started:
                self.records[name] = record

    def keep(self, step: PipelineStep, record: StepRecord) -> None:
        self.records[step.name] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        steps = {name: asdict(stored) for name, stored in self.records.items()}
        write_json(self._path, {"settings": self.overrides, "steps": steps})

    def reason(self, step: PipelineStep) -> str:
        """Why a step has to be run, or an empty string if it is up to date."""
        record = self.records.get(step.name)
        if record is None:
            return "it has not been run"
        if record.command != step.command:
            return "its command has changed"
        if record.status != "done":
            return {"running": "it was interrupted", "failed": "it failed"}[record.status]
        if record.inputs.keys() != set(step.reads) or record.outputs.keys() != set(map(str, step.outputs)):
            return "it names other files"
        for verb, digests in (("reads", record.inputs), ("wrote", record.outputs)):
            for path, digest in digests.items():
                if digest_of(path, known=digest).sha256 != digest.sha256:
                    return f"{path}, which it {verb}, has changed"
        return ""


def _read(path: Path) -> _File:
    """What a `pipeline.json` has; nothing if there is no such file. Raises `SetupError` if the file is
    damaged."""
    if not path.exists():
        return {"steps": {}}
    try:
        return _FILE.validate_json(path.read_bytes())
    except ValidationError as error:
        message = validation_message(error.errors())
        raise SetupError(f"{path}: {message}; delete it to run all steps again") from error


def digest_of(path: str | Path, *, known: Digest | None = None) -> Digest:
    """The digest of a file or a folder, "" if there is none or if it is a URL or an id of a hub. `known` is
    returned if the sizes and times of all files are as they were."""
    files = sorted(_files(Path(path)))
    if not files:
        return Digest("", 0, "")
    stats = [(str(file.relative_to(path)), file.stat()) for file in files]
    listing = json.dumps([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
    times = hashlib.sha256(listing.encode()).hexdigest()
    if known and known.times == times:
        return known
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        total.update(f"{file.relative_to(path)}\0{content}\n".encode())
    return Digest(total.hexdigest(), sum(stat.st_size for _, stat in stats), times)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    elif path.is_dir():
        yield from (file for file in path.rglob("*") if file.is_file())


class PipelineStore:
    """A copy of the pipeline's folder behind a URL (`s3://bucket/prefix`, or a path). With "" there is none.
    All methods raise `SetupError` if the store refuses something, and `Unavailable` if it does not answer."""

    def __init__(self, url: str, out: Path) -> None:
        """Reads the records that the store has of the steps. Raises `SetupError` if the URL is unknown, the
        package for it is missing, there is no such bucket, or the records are damaged."""
        self._url, self._out = url, out
        self.records: dict[str, StepRecord] = {}
        if not url:
            return
        self._files, self._root = open_store(url)
        with tempfile.TemporaryDirectory() as folder, store_faults(url):
            self._check_bucket()
            fetched = Path(folder) / STATE_FILE
            if self._files.exists(self._place(out / STATE_FILE)):
                self._files.get_file(self._place(out / STATE_FILE), str(fetched))
            self.records = _read(fetched)["steps"]

    def fetch(self, step: PipelineStep, records: Mapping[str, StepRecord]) -> None:
        """Fetches the step's inputs, and what it wrote on another machine, unless they are here already."""
        if not self._url:
            return
        digests = {path: digest for record in records.values() for path, digest in record.outputs.items()}
        record = records.get(step.name)
        outputs: Sequence[Path] = ()
        if record is not None and record == self.records.get(step.name):
            outputs = step.outputs if record.status == "done" else (step.folder,)
        reads = [path for path in map(Path, step.reads) if path.is_relative_to(self._out)]
        with store_faults(self._url):
            for path in (*reads, *outputs):
                digest = digests.get(str(path))
                if digest is None or digest_of(path).sha256 != digest.sha256:
                    self._get(path)

    def keep(self, *paths: Path) -> None:
        """Replaces the copies of files and folders, and of the records."""
        if not self._url:
            return
        with store_faults(self._url):
            for path in (*paths, self._out / STATE_FILE):
                self._put(path)

    def _check_bucket(self) -> None:
        """Asks for the bucket, because S3 lists a missing one as empty, and only refuses what is written."""
        if not hasattr(self._files, "call_s3"):
            return
        bucket = self._root.partition("/")[0]
        try:
            self._files.call_s3("head_bucket", Bucket=bucket)
        except FileNotFoundError as error:
            raise SetupError(f"--store {self._url!r}: there is no bucket {bucket!r}") from error

    def _put(self, path: Path) -> None:
        copies = set(self._files.find(self._place(path)))
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in files:
            self._files.makedirs(self._place(file.parent), exist_ok=True)
            self._files.put_file(str(file), self._place(file))
        for obsolete in copies - {self._place(file) for file in files}:
            self._files.rm_file(obsolete)

    def _get(self, path: Path) -> None:
        """Replaces a file or folder by its copy, if there is one."""
        self._files.invalidate_cache()
        place = self._place(path)
        copies = {
            path / copy[len(place) + 1 :] if copy != place else path: copy for copy in self._files.find(place)
        }
        for local, copy in copies.items():
            local.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(copy, str(local))
        for local in path.rglob("*") if copies else ():
            if local not in copies and not local.is_dir():
                local.unlink()

    def _place(self, path: Path) -> str:
        return f"{self._root}/{path.relative_to(self._out).as_posix()}".rstrip("/.")

"""What has been run already: `pipeline.json` in the pipeline's folder.

A step is up to date if its command is the same, and so are the SHA-256 digests of the files that it reads and
of those that it wrote.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from launcher.pipeline.pipeline import Step
from launcher.runs import write_json
from rookery.errors import SetupError, validation_message

STATE_FILE = "pipeline.json"


@dataclass(frozen=True, slots=True)
class Digest:
    """The content of a file, or of all files of a folder, in the order of their paths."""

    sha256: str
    size: int
    times: str
    """A digest of paths, sizes and times. Files for which it is that of last time are not read again."""


@dataclass(frozen=True, slots=True)
class Record:
    """What `pipeline.json` knows of a step."""

    command: str
    version: str
    status: Literal["running", "done", "failed"]
    started: str
    ended: str = ""
    seconds: float = 0.0
    inputs: Mapping[str, Digest] = field(default_factory=dict)
    outputs: Mapping[str, Digest] = field(default_factory=dict)


class _File(TypedDict):
    steps: dict[str, Record]


_FILE = TypeAdapter(_File)


class PipelineState:
    """The records of the steps by name, kept in `pipeline.json`."""

    def __init__(self, out: Path) -> None:
        self._path = out / STATE_FILE
        self.records = read_records(self._path)

    def adopt(self, records: Mapping[str, Record]) -> None:
        """Takes over those of another machine that are newer."""
        for name, record in records.items():
            if name not in self.records or self.records[name].started < record.started:
                self.records[name] = record

    def keep(self, step: Step, record: Record) -> None:
        """Writes a step's record."""
        self.records[step.name] = record
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"steps": {name: asdict(known) for name, known in self.records.items()}})

    def reason(self, step: Step) -> str:
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
        for what, known in (("reads", record.inputs), ("wrote", record.outputs)):
            for path, digest in known.items():
                if digest_of(path, known=digest).sha256 != digest.sha256:
                    return f"{path}, which it {what}, has changed"
        return ""


def read_records(path: Path) -> dict[str, Record]:
    """The records in a `pipeline.json`; none if there is no such file.

    Raises:
        SetupError: the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        return _FILE.validate_json(path.read_bytes())["steps"]
    except ValidationError as error:
        said = validation_message(error.errors())
        raise SetupError(f"{path}: {said}; delete it to run all steps again") from error


def digest_of(path: str | Path, *, known: Digest | None = None) -> Digest:
    """The digest of a file or a folder, "" if there is none or if it is a URL or an id of a hub.

    `known` is returned if the sizes and times of all files are as they were.
    """
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

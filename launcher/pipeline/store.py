"""Carries the outputs of a pipeline's steps between machines, through a folder that all of them reach."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.pipeline.pipeline import Step
from launcher.pipeline.state import STATE_FILE, Record, digest_of, read_records
from rookery.errors import SetupError
from rookery.remote import open_store, store_faults


class Store:
    """A copy of the pipeline's folder behind a URL (`s3://bucket/prefix`, or a path). With "" there is none.

    All methods raise `SetupError` if the store refuses something, and `Unavailable` if it does not answer.
    """

    def __init__(self, url: str, out: Path) -> None:
        """Reads the records that the store has of the steps.

        Raises:
            SetupError: the URL is unknown, the package for it is missing, there is no such bucket, or the
                records are damaged.
        """
        self._url, self._out = url, out
        self.records: dict[str, Record] = {}
        if not url:
            return
        self._files, self._root = open_store(url)
        with tempfile.TemporaryDirectory() as folder, store_faults(url):
            self._check_bucket()
            fetched = Path(folder) / STATE_FILE
            if self._files.exists(self._place(out / STATE_FILE)):
                self._files.get_file(self._place(out / STATE_FILE), str(fetched))
            self.records = read_records(fetched)

    def fetch(self, step: Step, records: Mapping[str, Record]) -> None:
        """Gets what the step reads of others, and what it wrote on another machine, unless it is here."""
        if not self._url:
            return
        known = {path: digest for record in records.values() for path, digest in record.outputs.items()}
        record = records.get(step.name)
        own: Sequence[Path] = ()
        if record is not None and record == self.records.get(step.name):
            own = step.outputs if record.status == "done" else (step.folder,)
        reads = [path for path in map(Path, step.reads) if path.is_relative_to(self._out)]
        with store_faults(self._url):
            for path in (*reads, *own):
                digest = known.get(str(path))
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
        for gone in copies - {self._place(file) for file in files}:
            self._files.rm_file(gone)

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

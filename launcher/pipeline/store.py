"""Carries the outputs of a pipeline's steps between machines, through a folder that all of them reach."""

from pathlib import Path
from typing import Any

from launcher.pipeline.pipeline import Step
from launcher.pipeline.state import STATE_FILE, Record, digest_of
from rookery.errors import SetupError


class Store:
    """A copy of the pipeline's folder behind a URL (`s3://bucket/prefix`, or a path)."""

    def __init__(self, url: str, out: Path) -> None:
        """Takes over the records of the steps.

        Raises:
            SetupError: the URL is unknown, or the package for it is missing.
        """
        try:
            from fsspec.core import url_to_fs

            self._files: Any
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SetupError(f"--store {url!r}: {error} (pip install 'rookery[s3]')") from error
        self._out = out
        self._get(out / STATE_FILE)

    def fetch(self, step: Step, record: Record | None) -> None:
        """Gets what the step reads of other steps, and what it wrote before, unless this machine has it."""
        for read in map(Path, step.reads):
            if read.is_relative_to(self._out):
                self._get(read)
        if record is None:
            return
        for path in (step.folder,) if record.status != "done" else step.outputs:
            known = record.outputs.get(str(path))
            if known is None or digest_of(path).sha256 != known.sha256:
                self._get(path)

    def keep(self, *paths: Path) -> None:
        """Replaces the copies of files and folders, and of the records."""
        for path in (*paths, self._out / STATE_FILE):
            copies = set(self._files.find(self._place(path)))
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            for file in files:
                self._files.makedirs(self._place(file.parent), exist_ok=True)
                self._files.put_file(str(file), self._place(file))
            for gone in copies - {self._place(file) for file in files}:
                self._files.rm_file(gone)

    def _get(self, path: Path) -> None:
        self._files.invalidate_cache()
        place = self._place(path)
        for copy in self._files.find(place):
            local = path / copy[len(place) + 1 :] if copy != place else path
            local.parent.mkdir(parents=True, exist_ok=True)
            self._files.get_file(copy, str(local))

    def _place(self, path: Path) -> str:
        return f"{self._root}/{path.relative_to(self._out).as_posix()}".rstrip("/.")

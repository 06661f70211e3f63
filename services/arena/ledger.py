"""The append-only file of everything that was asked, so that a killed evaluation continues where it was.

Each line is a JSON object with the key of a question to a player. The key is a hash of the player's
description and of everything that the answer depends on. An evaluation that is started again with the same
settings finds its answers by their keys; with other settings it does not, and asks again.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rookery.errors import InvalidInput

LEDGER_FILE = "answers.jsonl"


class Ledger:
    """An append-only JSONL file of answers. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Reads the file if it exists. An incomplete last line, left by a kill, is cut off.

        Raises:
            InvalidInput: another line is not one that `add` wrote.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self._records = dict(self._read(whole))
        self._file = path.open("r+b" if content else "wb")
        self._file.truncate(len(whole))
        self._file.seek(len(whole))

    def _read(self, lines: bytes) -> list[tuple[str, dict[str, Any]]]:
        records = []
        for number, line in enumerate(lines.splitlines(), start=1):
            try:
                record = json.loads(line)
                records.append((str(record["key"]), record))
            except (ValueError, KeyError, TypeError) as error:
                raise InvalidInput(f"{self.path}:{number}: no answer: {line[:120]!r}") from error
        return records

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._file.close()

    def get(self, key: str) -> dict[str, Any] | None:
        """The last record with this key."""
        return self._records.get(key)

    def add(self, key: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Appends a record, which must be JSON, and returns it as a later `get` does."""
        line = json.dumps({"key": key, **record}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self._records[key] = json.loads(line)
        return self._records[key]


def key_of(question: Mapping[str, Any]) -> str:
    """A hash of JSON values that does not depend on the order of keys.

    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:32]

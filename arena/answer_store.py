"""An append-only file of questions and answers, from which a killed evaluation continues.

Each line is a JSON object with the key of a question to a player. The key is a hash of the player's
description and of everything that the answer depends on. An evaluation that is started again with the same
settings finds its answers by their keys. With other settings the keys differ, and it asks again.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rookery.errors import Conflict, InvalidInput

ANSWERS_FILE = "answers.jsonl"


@contextmanager
def open_append_only(path: Path) -> Iterator[BinaryIO]:
    """Opens a file of lines for this process alone, or creates it. An incomplete last line is cut off. Raises
    `Conflict` if another process writes to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another process writes to {str(path)!r}") from None
        file.truncate(path.read_bytes().rfind(b"\n") + 1)
        yield file


class AnswerStore:
    """The answers of a file, by key."""

    def __init__(self, file: BinaryIO, records: dict[str, dict[str, Any]]) -> None:
        self._file = file
        self._records = records
        self.tokens = sum(map(tokens_of, records.values()))
        """Those of all answers."""

    def get(self, key: str) -> dict[str, Any] | None:
        return self._records.get(key)

    def of(self, player: str) -> list[Mapping[str, Any]]:
        """The records of a player, by its name."""
        return [record for record in self._records.values() if record.get("player") == player]

    def add(self, key: str, record: Mapping[str, Any]) -> dict[str, Any]:
        """Appends a record, which must be JSON, and returns it as a later `get` does."""
        line = json.dumps({"key": key, **record}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        self._records[key] = json.loads(line)
        self.tokens += tokens_of(record)
        return self._records[key]


@contextmanager
def open_answers(path: Path) -> Iterator[AnswerStore]:
    """Opens the store in a file, or creates it. Raises `Conflict` if another process writes to it; else as
    `read_answers`."""
    with open_append_only(path) as file:
        yield AnswerStore(file, read_answers(path))


def read_answers(path: Path) -> dict[str, dict[str, Any]]:
    """The records of a file by key; empty if there is none. Raises `InvalidInput` if a line other than an
    incomplete last one is not one that `AnswerStore.add` wrote."""
    data, records = path.read_bytes() if path.exists() else b"", {}
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            record = json.loads(line)
            records[str(record["key"])] = record
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"{path}:{number}: not an answer: {line[:120]!r}") from error
    return records


def tokens_of(record: Mapping[str, Any]) -> int:
    """The tokens of all answers to a question. Older records lack them."""
    return int(record.get("tokens") or sum(answer["tokens"] for answer in record.get("answers", ())))


def key_of(question: Mapping[str, Any]) -> str:
    """A hash of JSON values that does not depend on the order of keys.

    >>> key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:32]

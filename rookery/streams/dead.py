"""The dead letters of a run: in Redis, and in the file that its archive keeps."""

import base64
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from rookery.errors import QUOTED_CHARS, InvalidInput
from rookery.streams import lua
from rookery.streams.connection import RunConnection


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry of `dead`: its own id, the stream and id that it had, the reason, and its bytes.

    No bytes: the entry was no longer in its stream, so it is lost.
    """

    id: str
    stream: str
    entry: str
    reason: str
    data: bytes


DEAD_FILE = "dead.jsonl"
"""The file in which the archiver keeps the dead letters of a run, beside the run's groups."""

DEAD_BYTES = 16 << 20
"""Size of the newest contents in it. Of older dead letters it has all but the content."""

_LARGEST_FILE = 8 * DEAD_BYTES

_LETTERS_AT_ONCE = 16
"""Dead letters read from Redis at once. Few, because a group of long completions may take megabytes."""


def dump_letters(letters: Sequence[DeadLetter]) -> bytes:
    """Dead letters as lines of JSON."""
    lines = []
    for letter in letters:
        fields = {name: getattr(letter, name) for name in ("id", "stream", "entry", "reason")}
        lines.append(json.dumps({**fields, "data": base64.b64encode(letter.data).decode()}) + "\n")
    return "".join(lines).encode()


def load_letters(path: Path) -> list[DeadLetter]:
    """What `dump_letters` wrote to a file. Raises `InvalidInput` if it is damaged, or larger than any."""
    letters = []
    if (size := path.stat().st_size) > _LARGEST_FILE:
        raise InvalidInput(f"{path} has {size:,} bytes, more than {_LARGEST_FILE:,}")
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
            fields = {name: str(row[name]) for name in ("id", "stream", "entry", "reason")}
            letters.append(DeadLetter(**fields, data=base64.b64decode(row["data"], validate=True)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            text = line[:QUOTED_CHARS].decode(errors="replace")
            raise InvalidInput(f"{path}:{number}: {text} is no dead letter: {error!r}") from error
    return letters


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The entries that were moved to `dead` (see `Stream.dead_letter`)."""

    redis: RunConnection

    def letters(self, *, most_bytes: float = math.inf) -> list[DeadLetter]:
        """All of them, oldest first; with `most_bytes`, only the newest contents of that size in all."""
        letters: list[DeadLetter] = []
        start, size, emptied = "-", 0, 0
        while rows := self._rows(start):
            for dead_id, fields in rows:
                letter = DeadLetter(
                    id=dead_id.decode(),
                    stream=fields[b"stream"].decode(),
                    entry=fields[b"entry"].decode(),
                    reason=fields[b"reason"].decode(),
                    data=fields.get(b"data", b""),
                )
                letters.append(letter)
                size += len(letter.data)
            start = f"({letters[-1].id}"
            while size > most_bytes:
                size -= len(letters[emptied].data)
                letters[emptied] = replace(letters[emptied], data=b"")
                emptied += 1
        return letters

    def _rows(self, start: str) -> list[Any]:
        rows = self.redis.call(
            lambda client: client.xrange(self.redis.key("dead"), min=start, count=_LETTERS_AT_ONCE)
        )
        return cast(list[Any], rows)

    def replay(self, letter: DeadLetter) -> bool:
        """Adds an entry to its stream again, under a new id. Returns False if it is gone or was lost.

        A group counts as generated again, because it counts as dead once and is in the stream again.
        """
        return bool(self.redis.script(lua.REPLAY_DEAD, ["dead", letter.stream, "counts"], letter.id))

    def drop(self, letter: DeadLetter) -> bool:
        """Deletes an entry; it stays counted. Returns False if it is no longer there."""
        return bool(self.redis.call(lambda client: client.xdel(self.redis.key("dead"), letter.id)))

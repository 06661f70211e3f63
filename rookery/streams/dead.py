"""The stream `dead`: entries that could not be handled, each with the reason."""

import logging
import threading
from dataclasses import dataclass
from typing import Any, cast

from rookery.streams import lua
from rookery.streams.history import recorded
from rookery.streams.reader import Reader

logger = logging.getLogger(__name__)

DEAD_LIMIT = 1000
"""Maximum entries of `dead`. Older ones are deleted, but are still included in `counts`."""


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


class DeadLetters(Reader):
    """Moves entries of a run's streams to `dead`, and back."""

    def __init__(self, url: str, run: str, *, stopping: threading.Event | None = None) -> None:
        super().__init__(url, run, stopping=stopping)
        self._dead_letter = self._redis.register_script(lua.DEAD_LETTER)
        self._replay = self._redis.register_script(lua.REPLAY_DEAD)

    @recorded
    def dead_letter(self, stream: str, entry_id: str, *, group: str, reason: str) -> None:
        """Moves a held entry to `dead`, with the reason. `dead` keeps the newest `DEAD_LIMIT` entries."""
        keys = [*self._shared_keys(stream), self.key("dead"), self.key(f"{stream}:faults")]
        args: list[str | int] = [group, entry_id, stream, reason, DEAD_LIMIT]
        self._call(lambda: self._dead_letter(keys=keys, args=args))
        logger.error("dead-lettered entry %s of %s: %s", entry_id, stream, reason)

    def dead_letters(self) -> list[DeadLetter]:
        """The entries of `dead`, oldest first."""
        rows = cast(list[Any], self._call(lambda: self._redis.xrange(self.key("dead"))))
        return [
            DeadLetter(
                dead_id.decode(),
                fields[b"stream"].decode(),
                fields[b"entry"].decode(),
                fields[b"reason"].decode(),
                fields.get(b"data", b""),
            )
            for dead_id, fields in rows
        ]

    @recorded
    def replay_dead(self, letter: DeadLetter) -> bool:
        """Adds an entry to its stream again, under a new id. Returns False if it is gone or was lost.

        A group counts as generated again, so the account holds: it has been dead once, and is in the stream.
        """
        keys = [self.key(name) for name in ("dead", letter.stream, "counts")]
        return bool(self._call(lambda: self._replay(keys=keys, args=[letter.id])))

    @recorded
    def drop_dead(self, letter: DeadLetter) -> bool:
        """Deletes an entry from `dead`; it stays counted. Returns False if it is no longer there."""
        return bool(self._call(lambda: self._redis.xdel(self.key("dead"), letter.id)))

    def _shared_keys(self, stream: str) -> list[str]:
        parts = (stream, "counts", f"{stream}:archive", f"{stream}:settled", f"{stream}:archived")
        return [self.key(part) for part in parts]

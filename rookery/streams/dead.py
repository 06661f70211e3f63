"""The stream `dead`: entries that could not be handled, each with the reason. They can be put back."""

from dataclasses import dataclass
from typing import Any, cast

from rookery.streams import lua
from rookery.streams.connection import RunConnection


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry of `dead`: its own id, the stream and id that it had, the reason, and its bytes."""

    id: str
    stream: str
    entry: str
    reason: str
    data: bytes


class DeadLetters(RunConnection):
    """Reads the dead letters of a run, and puts them back into their streams."""

    def __init__(self, url: str, run: str) -> None:
        super().__init__(url, run)
        self._replay = self._redis.register_script(lua.REPLAY_DEAD)

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

    def replay_dead(self, letter: DeadLetter) -> bool:
        """Adds an entry to its stream again, under a new id. Returns False if it is no longer in `dead`.

        A group counts as generated again, so the account holds: it has been dead once, and is in the stream.
        """
        keys = [self.key(name) for name in ("dead", letter.stream, "counts")]
        return bool(self._call(lambda: self._replay(keys=keys, args=[letter.id])))

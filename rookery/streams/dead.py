"""The dead letters of a run: entries that could not be handled, with the reason. They can be put back."""

from dataclasses import dataclass
from typing import Any, cast

from rookery.errors import NotFound
from rookery.streams import lua
from rookery.streams.connection import RunConnection


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry of `dead`: of which stream it was, under which id, and why it could not be handled.

    `item` is the id of the position or group in it, empty if the stream had lost the entry.
    """

    id: str
    stream: str
    entry: str
    reason: str
    item: str


class DeadLetters(RunConnection):
    """Reads the dead letters of a run, and puts them back into their streams."""

    def __init__(self, url: str, run: str) -> None:
        super().__init__(url, run)
        self._replay = self._redis.register_script(lua.REPLAY)

    def newest(self, *, count: int = 100) -> list[DeadLetter]:
        """The newest dead letters, the last one first."""
        rows = self._call(lambda: self._redis.xrevrange(self.key("dead"), count=count))
        return [_letter(row) for row in cast(list[Any], rows)]

    def replay(self, id: str) -> str:
        """Puts a dead letter back at the end of its stream, in one step. Returns the id of the new entry.

        A group counts as generated once more, so the accounts of trainer and archive stay balanced.

        Raises:
            NotFound: there is no such letter, or its entry was lost.
        """
        found = cast(list[Any], self._call(lambda: self._redis.xrange(self.key("dead"), id, id)))
        letter = _letter(found[0]) if found else None
        if letter is not None:
            keys = [self.key(name) for name in ("dead", letter.stream, "counts")]
            entry = self._call(lambda: self._replay(keys=keys, args=[id, letter.stream]))
            if entry:
                return cast(bytes, entry).decode()
        raise NotFound(f"run {self.run!r} has no dead letter {id!r} that can be put back")


def _letter(row: Any) -> DeadLetter:
    id, fields = row
    text = {
        name.decode(): value.decode(errors="replace") for name, value in fields.items() if name != b"data"
    }
    return DeadLetter(id.decode(), text["stream"], text["entry"], text["reason"], text.get("id", ""))

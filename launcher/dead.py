"""`rookery dead`: shows the entries that a run could not handle, and replays or drops them."""

from collections import Counter
from contextlib import closing
from typing import Literal

from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launcher.status import RunPlace
from rookery.codec import decode_group, decode_position
from rookery.errors import NotFound, SetupError, WireError
from rookery.remote import PathOrUrl
from rookery.streams import DeadLetter, RunStreams
from rookery.terminal import SafeConsole

LOST = "has no content: its entry was lost"


class DeadSettings(RunPlace):
    """List, show, replay or drop dead letters: entries that a run could not handle, with the reason.

    `replay` adds entries to their stream again, after the cause was fixed. A group that is too old by then is
    dropped as stale. `drop` deletes entries; they stay counted as dead.
    """

    run: PathOrUrl = ""
    """The run, by name or folder. Default: the one started last in --runs-dir; `default` with --redis-url."""
    action: CliPositionalArg[Literal["list", "show", "replay", "drop"]]
    """What to do."""
    ids: CliPositionalArg[tuple[str, ...]] = ()
    """Entries, as `list` names them. `list` takes none, the others need some, or `all`."""


def dead(settings: DeadSettings, console: Console | None = None) -> int:
    """Runs one action and returns the exit status. Raises `NotFound` if there is no such entry; `SetupError`
    if the ids are missing, or there is no such run; `Unavailable` if its Redis does not answer."""
    console = console or SafeConsole(highlight=False, soft_wrap=True)
    place = settings.place()
    with closing(RunStreams(place["redis_url"], place["run"], once=True)) as run:
        letters = run.dead.letters()
        if settings.action == "list":
            console.print(_table(letters))
            return 0
        for letter in _chosen(settings, letters):
            if settings.action == "show":
                console.print(_text(letter), soft_wrap=True)
            else:
                done = (run.dead.replay if settings.action == "replay" else run.dead.drop)(letter)
                what = {"replay": f"is in {letter.stream} again", "drop": "is deleted"}[settings.action]
                failed = "is no longer there" if letter.data else LOST
                console.print(f"{letter.id} {what if done else failed}")
    return 0


def _chosen(settings: DeadSettings, letters: list[DeadLetter]) -> list[DeadLetter]:
    if settings.ids == ("all",):
        return letters
    if not settings.ids:
        raise SetupError(f"rookery dead {settings.action}: name entries of `rookery dead list`, or `all`")
    by_id = {letter.id: letter for letter in letters}
    if missing := [name for name in settings.ids if name not in by_id]:
        raise NotFound(f"no dead letter {', '.join(missing)}: `rookery dead list` shows all {len(letters)}")
    return [by_id[name] for name in settings.ids]


def _table(letters: list[DeadLetter]) -> Table:
    streams = ", ".join(f"{count} of {name}" for name, count in Counter(x.stream for x in letters).items())
    table = Table("id", "stream", "reason", title=f"dead letters: {streams or 'none'}", box=None)
    for letter in letters:
        table.add_row(letter.id, letter.stream, Text(letter.reason))
    return table


def _text(letter: DeadLetter) -> Text:
    """All of an entry: where it was, why it is dead, and its content, or its bytes if they do not decode."""
    decode = decode_position if letter.stream == "positions" else decode_group
    try:
        content = str(decode(letter.data))
    except WireError as error:
        content = f"{error}\n{letter.data[:1000]!r}" if letter.data else f"{letter.id} {LOST}"
    head = f"{letter.id}  entry {letter.entry} of {letter.stream}\nreason: {letter.reason}"
    return Text(f"{head}\n{content}\n")

"""`rookery dead`: shows the entries that a run could not handle, and replays or drops them."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launcher.status import RunPlace
from rookery.codec import decode_group, decode_position
from rookery.errors import NotFound, SetupError, Unavailable, WireError
from rookery.remote import FolderPath, PathOrUrl
from rookery.streams import DEAD_FILE, DeadLetter, RunStreams, load_letters
from rookery.terminal import SafeConsole

LOST = "has no content: its entry was lost"
LEFT_OUT = "has no content here: its entry was lost, or is in Redis alone"


class DeadSettings(RunPlace):
    """List, show, replay or drop dead letters: entries that a run could not handle, with the reason.

    `replay` adds entries to their stream again, after the cause was fixed. A group that is too old by then is
    dropped as stale. `drop` deletes entries; they stay counted as dead. Of a run whose Redis does not answer,
    `list` and `show` take what its archive kept.
    """

    run: PathOrUrl = ""
    """The run, by name or folder. Default: the one started last in --runs-dir; `default` with --redis-url."""
    action: CliPositionalArg[Literal["list", "show", "replay", "drop"]]
    """What to do."""
    ids: CliPositionalArg[tuple[str, ...]] = ()
    """Entries, as `list` names them. `list` takes none, the others need some, or `all`."""
    archive: FolderPath | None = None
    """Folder of the archive, if it is not `archive` in the run's folder."""


def dead(settings: DeadSettings, console: Console | None = None) -> int:
    """Runs one action and returns the exit status. Raises `NotFound` if there is no such entry; `SetupError`
    if the ids are missing, `list` gets some, or there is no such run; `Unavailable` if its Redis does not
    answer, and there is nothing in the archive or something is to change; `InvalidInput` if the archive's
    file is damaged."""
    console = console or SafeConsole(highlight=False, soft_wrap=True)
    if settings.action == "list" and settings.ids:
        raise SetupError(
            f"rookery dead list takes no entries (got {' '.join(settings.ids)!r}); --run names a run"
        )
    place = settings.place()
    with closing(RunStreams(place["redis_url"], place["run"], once=True)) as run:
        lost = LOST
        try:
            letters = run.dead.letters()
        except Unavailable as error:
            path = _kept_file(settings, place, error)
            console.print(Text(f"{error}; these are from {path}, as the run left them"))
            letters, lost = load_letters(path), LEFT_OUT
        if settings.action == "list":
            console.print(_table(letters))
            return 0
        for letter in _chosen(settings, letters):
            if settings.action == "show":
                console.print(_text(letter, lost), soft_wrap=True)
            else:
                done = (run.dead.replay if settings.action == "replay" else run.dead.drop)(letter)
                what = {"replay": f"is in {letter.stream} again", "drop": "is deleted"}[settings.action]
                failed = "is no longer there" if letter.data else LOST
                console.print(f"{letter.id} {what if done else failed}")
    return 0


def _kept_file(settings: DeadSettings, place: dict[str, Any], error: Unavailable) -> Path:
    """The file in which the archive keeps them. Raises `Unavailable` if there is none, or a letter is to
    change."""
    folder: Path = settings.archive or place["run_dir"] / "archive"
    path = folder / f"run={place['run']}" / DEAD_FILE
    go_on = f"go on with run {place['run']!r} (`rookery up --run`) to {settings.action} them"
    if settings.action not in ("list", "show"):
        raise Unavailable(f"{error}: {go_on}") from error
    if not path.exists():
        raise Unavailable(f"{error}, and {str(path)!r} does not exist: {go_on}") from error
    return path


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


def _text(letter: DeadLetter, lost: str) -> Text:
    """All of an entry: where it was, why it is dead, and its content, or its bytes if they do not decode."""
    decode = decode_position if letter.stream == "positions" else decode_group
    try:
        content = str(decode(letter.data))
    except WireError as error:
        content = f"{error}\n{letter.data[:1000]!r}" if letter.data else f"{letter.id} {lost}"
    head = f"{letter.id}  entry {letter.entry} of {letter.stream}\nreason: {letter.reason}"
    return Text(f"{head}\n{content}\n")

"""Reads the account of a run's groups from Redis, and its dead letters from there or from its archive."""

from contextlib import closing
from dataclasses import asdict
from typing import Any

from rookery.codec import decode_group, decode_position
from rookery.errors import NotFound, RookeryError, Unavailable, WireError
from rookery.streams import DeadLetter, RunStreams, load_letters
from services.viewer.runs import RunFolder

SHOWN = 100
"""The most dead letters that are listed."""


def account(run: RunFolder, url: str) -> dict[str, Any] | None:
    """The account of a run; None if Redis is not up, or knows nothing of it."""
    if not url:
        return None
    with closing(RunStreams(url, run.streams_name, once=True)) as streams:
        try:
            overview = streams.overview(atomic=False)
        except RookeryError:
            return None
    figures = asdict(overview) | {"astray": overview.astray, "archive_astray": overview.archive_astray}
    return figures if overview.counts.generated else None


def dead_letters(run: RunFolder, url: str) -> list[dict[str, Any]]:
    """The dead letters of a run, newest first, at most `SHOWN`, each with the id of its position or group,
    and whether it can be put back. They come from the archive if Redis is not known, or not up. Raises
    `Unavailable` if the archive has none either."""
    live = True
    try:
        with _streams(run, url) as streams:
            letters = streams.dead.letters()
    except Unavailable:
        live, path = False, run.dead_file()
        if path is None:
            raise
        letters = load_letters(path)
    names = ("id", "stream", "entry", "reason")
    return [
        {name: getattr(letter, name) for name in names}
        | {"item": _item_id(letter), "replayable": live and bool(letter.data)}
        for letter in letters[::-1][:SHOWN]
    ]


def replay(run: RunFolder, url: str, id: str) -> None:
    """Puts a dead letter back into its stream. Raises `NotFound` if there is no such letter, or its entry was
    lost; `Unavailable` if Redis is not known, or not up."""
    with _streams(run, url) as streams:
        for letter in streams.dead.letters():
            if letter.id == id and letter.data and streams.dead.replay(letter):
                return
    raise NotFound(f"run {run.name!r} has no dead letter {id[:40]!r} that can be put back")


def _item_id(letter: DeadLetter) -> str:
    try:
        return decode_group(letter.data).id if letter.stream == "traces" else decode_position(letter.data).id
    except WireError:
        return ""


def _streams(run: RunFolder, url: str) -> closing[RunStreams]:
    if not url:
        raise Unavailable(f"the Redis of run {run.name!r} is not known: start the viewer with --redis-url")
    return closing(RunStreams(url, run.streams_name, once=True))

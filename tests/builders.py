"""Positions, groups and entries for tests to which most of their fields do not matter."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import chess

from rookery.streams import Entry, RunStreams
from rookery.streams.stream import Stream
from rookery.trace import (
    Completion,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)

START = chess.STARTING_FEN


def position(
    fen: str = START,
    id: str = "p",
    *,
    ply: int = 0,
    phase: Phase = Phase.OPENING,
    last_moves: Sequence[str] = (),
) -> Position:
    return Position(id, fen, ply, phase, "g", tuple(last_moves))


def numbered_position(number: int, fen: str = START) -> Position:
    """As a feed numbers them: each of a game of its own."""
    return Position(f"x:0:{number}", fen, number, Phase.OPENING, f"game {number}")


def feed(streams: RunStreams, count: int, *, fen: str = START) -> None:
    """Adds the next `count` positions to the run's stream."""
    cursor = streams.positions.cursor()
    streams.positions.add([numbered_position(cursor + i, fen) for i in range(count)], cursor=cursor)


def read(stream: Stream, count: int, *, consumer: str = "c") -> list[Entry]:
    """The next `count` entries for a consumer; fewer if they do not come within 10 seconds."""
    entries: list[Entry] = []
    deadline = time.monotonic() + 10
    while (missing := count - len(entries)) and time.monotonic() < deadline:
        entries += stream.read(consumer=consumer, count=missing, block_s=0.05)
    return entries


def take(streams: RunStreams, count: int) -> list[Entry]:
    """Feeds `count` positions and holds them as the rollouts would."""
    feed(streams, count)
    return read(streams.positions, count)


def publish(streams: RunStreams, entry: Entry, number: int) -> bool:
    return streams.groups.publish(group(number), entry_id=entry.id)


def generated(streams: RunStreams, count: int) -> list[Entry]:
    """Entries of the traces of so many groups, as the trainer reads them."""
    for number, entry in enumerate(take(streams, count)):
        assert publish(streams, entry, number)
    return read(streams.groups, count)


def group(number: int, *, run: str = "test", version: int = 0) -> TraceGroup:
    """A group of one answer. The same number gives the same group."""
    verdict = Verdict(-0.5, Outcome.LEGAL, "test-1")
    trace = Trace(f"g{number}-0", (Turn(Completion("e4", (1,), (-0.5,), "stop", 1), verdict),))
    return TraceGroup(
        id=f"g{number}",
        run=run,
        position=numbered_position(number),
        prompt=Prompt("fen", (), START),
        prompt_token_ids=(1,),
        policy=PolicyVersion(version, "aa"),
        base_model="tiny",
        sampling=Sampling(),
        traces=(trace,),
        created_at=1.0,
    )


def changed(trace: Trace, **fields: Any) -> Trace:
    """The trace with other `fields` of its last turn."""
    return replace(trace, turns=(*trace.turns[:-1], replace(trace.turns[-1], **fields)))

"""Positions and groups for tests to which most of their fields do not matter."""

from collections.abc import Sequence

import chess

from rookery.streams import RunStreams
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
    cursor = streams.feed_cursor()
    streams.add_positions([numbered_position(cursor + i, fen) for i in range(count)], cursor=cursor)


def group(number: int, *, run: str = "test", version: int = 0) -> TraceGroup:
    """A group of one answer. The same number gives the same group."""
    verdict = Verdict(-0.5, Outcome.LEGAL, "test-1")
    trace = Trace(f"g{number}-0", Completion("e4", (1,), (-0.5,), "stop", 1), verdict)
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

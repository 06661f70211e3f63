"""`python -m services.data.feed`: keeps the `positions` stream of a run filled.

Redis stores how many positions of the seeded order have been added. A feed that restarts, or a second feed
that runs at the same time, continues from there, so no position is skipped, or repeated by mistake.
"""

import asyncio
import logging
import random
import sys
import threading
import time
from contextlib import closing, suppress

from rookery.errors import SetupError, Unavailable
from rookery.logs import configure
from rookery.metrics import FEED_WAIT_S
from rookery.serving import background_service, serve
from rookery.settings import fail
from rookery.streams import RunStreams
from rookery.streams.state import FeedState
from rookery.trace import Draw, Position
from services.data.pgn.collection import GameCollection
from services.data.positions.numbered import PositionOrder
from services.data.positions.repeats import Repeats
from services.data.settings import FeedSettings
from services.data.tasks.rookworld import RookworldMix, assign_task

logger = logging.getLogger("services.data.feed")

STREAM = "positions"

_BATCH = 64
_POLL_S = 0.1


class Feed:
    """Adds positions whenever the stream holds fewer than `depth` entries."""

    def __init__(
        self,
        streams: RunStreams,
        order: PositionOrder,
        *,
        seed: int,
        depth: int,
        mix: RookworldMix | None = None,
        repeats: Repeats | None = None,
    ) -> None:
        self._streams = streams
        self._order = order
        self._seed = seed
        self._depth = depth
        self._mix = mix
        self._repeats = repeats

    async def run(self, stopping: asyncio.Event) -> None:
        """Feeds until told to stop. Waits while Redis is unreachable."""
        while not stopping.is_set():
            try:
                added = await asyncio.to_thread(self.top_up)
            except Unavailable:
                if stopping.is_set():
                    return
                raise
            if not added:
                await _pause(stopping)

    def top_up(self) -> int:
        """Adds a batch if there is room. Returns how many entries there was room for.

        The state is read before the length. If another feed adds entries in between, the cursor moves and
        this batch is refused, so the stream is not overfilled.
        """
        state = self._streams.feed_state()
        room = min(_BATCH, self._depth - self._streams.length(STREAM))
        if room <= 0:
            return 0
        draws = self._draw(state, room, self._repeats) if self._repeats else []
        numbers = [draw.number for draw in draws] or range(state.fresh, state.fresh + room)
        batch = [self._position(number) for number in numbers]
        self._streams.add_positions(batch, cursor=state.cursor, draws=draws)
        return room

    def _draw(self, state: FeedState, count: int, repeats: Repeats) -> list[Draw]:
        """How the next `count` positions are chosen. The same state and seed give the same draws."""
        weights, fresh = repeats.weights(state.deviations, fresh=state.fresh), state.fresh
        self._streams.forget_deviations([number for number in state.deviations if number not in weights])
        draws = []
        for place in range(state.cursor, state.cursor + count):
            draw = repeats.draw(weights, fresh=fresh, rng=random.Random(f"{self._seed}:{place}:repeats"))
            weights.pop(draw.number, None)  # not again before its next group
            fresh += not draw.repeated
            draws.append(draw)
        return draws

    def _position(self, number: int) -> Position:
        position = self._order.position(number, seed=self._seed)
        return assign_task(position, seed=self._seed, mix=self._mix) if self._mix else position


async def _pause(stopping: asyncio.Event) -> None:
    start = time.monotonic()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await stopping.wait()
    finally:
        FEED_WAIT_S.inc(time.monotonic() - start)


def main(argv: list[str] | None = None) -> int:
    """Feeds until SIGINT or SIGTERM. Returns the exit status."""
    try:
        settings = FeedSettings.parse(
            sys.argv[1:] if argv is None else argv, prog="python -m services.data.feed"
        )
        configure("feed")
        asyncio.run(_serve(settings))
    except SetupError as error:
        return fail(error)
    return 0


async def _serve(settings: FeedSettings) -> None:
    stopped = threading.Event()
    streams = RunStreams(settings.redis_url, settings.run, stopping=stopped)

    async def stop_waiting(stopping: asyncio.Event) -> None:
        await stopping.wait()
        stopped.set()

    with closing(GameCollection(settings.paths)) as games:
        order = PositionOrder(games, shares=settings.shares, split=settings.split)
        feed = Feed(
            streams,
            order,
            seed=settings.seed,
            depth=settings.depth,
            mix=settings.mix,
            repeats=settings.repeats,
        )
        await serve(
            background_service(
                "feed",
                settings.host,
                settings.port,
                port_setting="--port (FEED_PORT)",
                ready=streams.unreachable,
                background=(stop_waiting, feed.run),
            )
        )


if __name__ == "__main__":
    sys.exit(main())

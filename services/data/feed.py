"""`python -m services.data.feed`: keeps the `positions` stream of a run filled.

The stream stores how many positions of the seeded order have been added to it. A feed that restarts, or
a second feed that runs at the same time, continues from there, so no position is repeated or skipped.
"""

import asyncio
import logging
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
from rookery.trace import Position
from services.data.pgn.collection import GameCollection
from services.data.positions.numbered import PositionOrder
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
    ) -> None:
        self._streams = streams
        self._order = order
        self._seed = seed
        self._depth = depth
        self._mix = mix

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

        The cursor is read before the length. If another feed adds entries in between, the cursor moves and
        this batch is refused, so the stream is not overfilled.
        """
        cursor = self._streams.feed_cursor()
        room = min(_BATCH, self._depth - self._streams.length(STREAM))
        if room <= 0:
            return 0
        batch = [self._position(cursor + i) for i in range(room)]
        self._streams.add_positions(batch, cursor=cursor)
        return room

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
        feed = Feed(streams, order, seed=settings.seed, depth=settings.depth, mix=settings.mix)
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

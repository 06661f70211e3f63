"""`python -m services.data.feed`: keeps the `positions` stream of a run filled.

Redis stores how many positions of the seeded order have been added. A feed that restarts, or a second feed
that runs at the same time, continues from there, so no position is skipped or repeated by mistake.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.sources import setting_sources
from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.positions.numbered import PositionOrder, Rounds, fixed_pool
from chess_datasets.positions.recipe import Shares
from chess_datasets.tasks.lines import Lines
from chess_datasets.tasks.rookworld import RookworldMix, assign_task
from rookery.command_line import main_of
from rookery.config.data import GENERATED, FeedSettings
from rookery.episodes import MOVE, drawn, parse_mix
from rookery.errors import Unavailable
from rookery.games import position_of
from rookery.metrics import FEED_WAIT_S
from rookery.openings import books_of
from rookery.serving import background_service, serve
from rookery.streams import RunStreams
from rookery.trace import Phase, Position

logger = logging.getLogger("services.data.feed")

_BATCH = 64
_POLL_S = 0.1


class Feed:
    """Adds positions whenever the stream holds fewer than `depth` entries."""

    def __init__(
        self,
        run: RunStreams,
        position: Callable[[int], Position],
        *,
        seed: int,
        depth: int,
        mix: RookworldMix | None = None,
        episode: str = MOVE,
    ) -> None:
        self._run = run
        self._position = position
        self._seed = seed
        self._depth = depth
        self._mix = mix
        self._episodes = parse_mix(episode)
        self._openings = books_of(episode)

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
        cursor = self._run.positions.cursor()
        room = min(_BATCH, self._depth - self._run.positions.length())
        if room <= 0:
            return 0
        batch = [self._position(number) for number in range(cursor, cursor + room)]
        if self._mix:
            batch = [assign_task(position, seed=self._seed, mix=self._mix) for position in batch]
        batch = [drawn(self._episodes, seed=self._seed, position=position) for position in batch]
        batch = [self._opened(position) for position in batch]
        self._run.positions.add(batch, cursor=cursor)
        return room

    def _opened(self, position: Position) -> Position:
        """The position, or the end of an opening if its game begins with one."""
        if position.episode not in self._openings:
            return position
        draws = random.Random(f"{self._seed}:{position.id}:opening")
        opening = draws.choice(self._openings[position.episode])
        return replace(
            position_of(opening.board()),
            id=position.id,
            phase=Phase.OPENING,
            game_id=opening.name,
            episode=position.episode,
        )


@contextmanager
def numbered_positions(settings: FeedSettings) -> Iterator[Callable[[int], Position]]:
    """Yields the positions of the settings by number. The same settings and files give the same positions.
    Raises `SetupError` if a source cannot be read, or has too few positions."""
    size, seed, shares = settings.max_positions, settings.seed, Shares(*settings.shares)
    with ExitStack() as files:
        if settings.sources == GENERATED:
            position = PositionGenerator(seed, shares, least_moves=2).position
        elif settings.has_lines:
            lines = Lines(settings.sources)
            read = lines.position if settings.targets else lambda row: replace(lines.position(row), target="")
            position = Rounds(read, len(lines), seed=seed)
            position(0)  # reports a file without a sound line at once
            if settings.targets:
                lines.warn_of_labels()
        else:
            games = files.enter_context(closing(GameCollection(setting_sources(settings.sources))))
            order = PositionOrder(games, shares=shares, split=settings.split)
            position = partial(_mixed, order, seed, settings.mate_share)
        yield fixed_pool(position, size, seed=seed) if size else position


def _mixed(order: PositionOrder, seed: int, mate_share: float, number: int) -> Position:
    if random.Random(f"{seed}:{number}:mates").random() < mate_share:
        if mate := order.rare("mate-in-one", number, seed=seed):
            return mate
        _warn_of_no_mates()
    return order.position(number, seed=seed)


@cache
def _warn_of_no_mates() -> None:
    """Warns once in each process."""
    logger.warning(
        "the games hardly have a mate in one: other positions are fed, and --mate-share costs time"
    )


async def _pause(stopping: asyncio.Event) -> None:
    start = time.monotonic()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_S):
                await stopping.wait()
    finally:
        FEED_WAIT_S.inc(time.monotonic() - start)


async def run(settings: FeedSettings) -> None:
    """Feeds until SIGINT or SIGTERM."""
    streams = RunStreams(settings.redis_url, settings.run)
    mix = RookworldMix(settings.state_share, settings.illegal_share, settings.ending_share)
    with numbered_positions(settings) as position:
        feed = Feed(
            streams,
            position,
            seed=settings.seed,
            depth=settings.depth,
            mix=mix if settings.mixes_lines else None,
            episode=settings.episode,
        )
        await serve(
            background_service(
                settings, "feed", streams.redis.stop_waiting, feed.run, ready=streams.redis.unreachable
            )
        )


main = main_of("serve feed", __name__)

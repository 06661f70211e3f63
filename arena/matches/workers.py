"""The players of a match, and where its games are played: in this process, or by workers of a Ray cluster.

A worker makes its own players from their specifications, with its own engines. It refuses to play if they are
not the same as those of the process that asks.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeAlias

from arena.matches.game import Fixture, MatchGame, Play, play
from arena.players.player import Player
from arena.players.spec import make_player
from rookery.errors import InvalidInput, SetupError
from rookery.games import Rules
from rookery.processes.workers import Workers, kept

Cast: TypeAlias = tuple[dict[str, Player], Player | None]
"""The players by name, and the referee."""


@asynccontextmanager
async def open_players(specs: Sequence[str], referee: str | None) -> AsyncIterator[Cast]:
    """The players, in the order of their specifications, and the referee; closed at the end."""
    async with AsyncExitStack() as stack:
        players: dict[str, Player] = {}
        for spec in specs:
            player = make_player(spec)
            stack.push_async_callback(player.close)
            if player.name in players:
                raise InvalidInput(f"two players named {player.name!r}: {', '.join(specs)}")
            players[player.name] = player
        judge = make_player(referee) if referee else None
        if judge:
            stack.push_async_callback(judge.close)
        yield players, judge


@contextmanager
def playing(
    ray: str | None, specs: Sequence[str], judge: str | None, cast: Cast, rules: Rules
) -> Iterator[Play]:
    """What plays a game by `rules`: `cast` in this process, or the workers of the Ray cluster at `ray`.
    `specs` are the players' specifications, and `judge` is the referee's."""
    players, referee = cast
    if ray is None:
        yield partial(play, players=players, rules=rules, referee=referee)
        return
    arguments = tuple(specs), judge, _descriptions(cast)
    with Workers(ray=ray) as workers:
        yield lambda fixture: asyncio.wrap_future(workers.submit(_play_on_worker, *arguments, fixture, rules))


def _play_on_worker(
    specs: tuple[str, ...], judge: str | None, described: list[dict[str, Any]], fixture: Fixture, rules: Rules
) -> MatchGame:
    runner, cast = kept(_open_cast, specs, judge)
    for here, there in zip(_descriptions(cast), described, strict=True):
        if here != there:
            raise SetupError(f"a player is {here} on a worker and {there} where the match began")
    players, referee = cast
    return runner.run(play(fixture, players, rules, referee=referee))


def _descriptions(cast: Cast) -> list[dict[str, Any]]:
    players, referee = cast
    return [dict(player.describe()) for player in (*players.values(), referee) if player]


@contextmanager
def _open_cast(specs: tuple[str, ...], referee: str | None) -> Iterator[tuple[asyncio.Runner, Cast]]:
    stack = AsyncExitStack()
    with asyncio.Runner() as runner:
        try:
            yield runner, runner.run(stack.enter_async_context(open_players(specs, referee)))
        finally:
            runner.run(stack.aclose())

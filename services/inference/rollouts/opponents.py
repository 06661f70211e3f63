"""Who plays against the policy in games: engines of this process, and earlier versions of the policy.

An earlier version is leased from the servers, so that it stays served while games go on, or pause.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import cache

import chess

from rookery.chosen_move import chosen_move
from rookery.engines.player import EnginePlayer, engine_player
from rookery.episodes import Opponent
from rookery.errors import Conflict, ContextExceeded, EngineFault, NotFound, PeerFault
from rookery.prompt import render
from rookery.retries import pause, retry
from rookery.trace import Position, Sampling, policy_name
from services.inference.rollouts.peers import InferenceServer, Peers

logger = logging.getLogger(__name__)

LEASE_S = 120.0
ENGINE_PAUSES_S = (0.0, 0.5)
"""Before an engine that died is asked again."""


class Players:
    """The players of all groups of this process."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._engines: dict[Opponent, asyncio.Task[EnginePlayer]] = {}
        self._leased: dict[tuple[str, int], float] = {}  # when each lease was asked for
        self.every: set[int] = set()
        """Of the versions that play: their numbers are multiples of one of these."""

    @property
    def newest(self) -> int:
        """The newest version that is served."""
        return self._peers.pick()[1].version.number

    async def close(self) -> None:
        for starting in self._engines.values():
            if starting.done() and not starting.exception():
                await starting.result().close()

    async def keep(self, stopping: asyncio.Event) -> None:
        """Renews the leases of the versions that play, also while no game asks for a move: a server that has
        dropped a version cannot serve it again."""
        while not await pause(stopping, LEASE_S / 3):
            newest = self._peers.version or 0
            numbers = {newest - newest % every for every in self.every} - {newest}
            ready = [server for server in self._peers.servers if server.adapter]
            await asyncio.gather(*(self._lease(server, number) for server in ready for number in numbers))

    async def engine_move(self, opponent: Opponent, board: chess.Board) -> chess.Move | None:
        """The move of an engine. Raises `PeerFault` if it died again and again; `SetupError` as
        `engine_player` does."""
        if opponent not in self._engines:
            start = asyncio.to_thread(engine_player, opponent)
            self._engines[opponent] = asyncio.create_task(start)
        player = await asyncio.shield(self._engines[opponent])
        try:
            reply = await retry(lambda: player.play(board, seed=0), on=EngineFault, pauses_s=ENGINE_PAUSES_S)
        except EngineFault as error:
            raise PeerFault(f"opponent: {error}") from error
        return reply.move

    async def policy_answer(
        self, number: int, position: Position, style: str, *, sampling: Sampling, seed: int
    ) -> tuple[str, bool]:
        """What version `number` answers, or the newest one if it is no longer served, and whether it was cut.
        Raises as `Peers.complete` does."""
        prompt, name = render(position, style=style), policy_name(number)
        server, adapter = self._peers.pick()
        generation = None
        if number != adapter.version.number:
            await self._lease(server, number)
            try:
                async with self._peers.asking(server):
                    generation = await server.client.complete(
                        prompt, model=name, count=1, sampling=sampling, seed=seed
                    )
            except NotFound:
                _warn_of_retired(name, server.client.url)
        if generation is None:
            _, _, generation = await self._peers.complete(prompt, sampling, seed=seed, count=1)
        (completion,) = generation.completions
        return completion.text, completion.truncated

    async def _lease(self, server: InferenceServer, number: int) -> None:
        """Keeps a version served for `LEASE_S`."""
        place, now = (server.client.url, number), time.monotonic()
        if now - self._leased.get(place, -LEASE_S) < LEASE_S / 3:
            return
        self._leased[place] = now
        try:
            await server.client.lease(number, seconds=LEASE_S)
        except (Conflict, NotFound, PeerFault) as error:
            logger.warning("version %d, an opponent, is served only while it is new: %s", number, error)


@cache
def _warn_of_retired(name: str, url: str) -> None:
    """Warns once in each process."""
    logger.warning("%s has retired %s: the newest version plays instead", url, name)


@dataclass
class GroupOpponents:
    """The opponents of one group. `version` is the policy's at its first turns."""

    players: Players
    sampling: Sampling
    version: int | None = None

    async def move(
        self, opponent: Opponent, position: Position, board: chess.Board, *, style: str, seed: int
    ) -> chess.Move | None:
        """See `rookery.episodes.Opponents`."""
        if opponent.kind != "policy":
            return await self.players.engine_move(opponent, board)
        self.players.every.add(opponent.every)
        newest = self.players.newest if self.version is None else self.version
        try:
            text, truncated = await self.players.policy_answer(
                newest - newest % opponent.every, position, style, sampling=self.sampling, seed=seed
            )
        except ContextExceeded:
            return None
        return chosen_move(text, render(position, style=style), board, truncated=truncated).move

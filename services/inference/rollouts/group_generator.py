"""Makes one group: position -> prompt -> completions -> verdicts.

Reads and writes no stream. A fault is raised as an exception and never becomes a reward.
"""

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from rookery.clients import Generation, ScoreItem
from rookery.codec import decode_position
from rookery.config.rollouts import RolloutsSettings
from rookery.errors import NotFound, PeerFault, Unavailable
from rookery.metrics import ROLLOUT_GENERATION_S, ROLLOUT_REWARD_S, ROLLOUT_TOKENS
from rookery.prompt import STATE_TASK, render, target_of, task_of
from rookery.streams import Entry
from rookery.trace import Adapter, Position, Prompt, Sampling, Trace, TraceGroup, Turn, Verdict
from rookery.waits import waiting
from services.inference.rollouts.peers import Peers

logger = logging.getLogger(__name__)

MAX_RETIRED_TRIES = 3
"""A version can be retired between its choice and the request, but hardly this often in a row."""
EXPECTED_S = 120.0
"""A group whose verdicts take longer is reported (see `rookery.waits`)."""


@dataclass(frozen=True)
class GroupGenerator:
    """Makes groups: everything a group needs except its position."""

    settings: RolloutsSettings
    peers: Peers

    async def generate(self, entry: Entry) -> TraceGroup:
        """Makes the complete group of a `positions` entry, with one server and one version.

        Raises:
            WireError: the entry is not a position.
            InvalidInput: it cannot be rendered, or a peer refuses it for good.
            PeerFault: a peer is up but failed.
            Unavailable: a peer is down or not ready.
        """
        settings, position = self.settings, decode_position(entry.data)
        prompt = render(position, style=settings.style)
        group_id = group_id_of(settings.run, entry.id, position)
        began = time.monotonic()
        task, sampling = task_of(position, style=settings.style), settings.sampling
        if task == STATE_TASK and settings.state_max_tokens:
            sampling = replace(sampling, max_tokens=settings.state_max_tokens)
        adapter, generation = await self._generate(prompt, sampling, seed=seed_of(settings.seed, group_id))
        generated = time.monotonic()
        move = position.move if task == STATE_TASK else ""
        target = target_of(position, style=settings.style)
        items = [
            ScoreItem(prompt.fen, c.text, truncated=c.truncated, task=task, move=move, target=target)
            for c in generation.completions
        ]
        verdicts = await self._score(items)
        scored = time.monotonic()
        ROLLOUT_GENERATION_S.observe(generated - began)
        ROLLOUT_REWARD_S.observe(scored - generated)
        ROLLOUT_TOKENS.inc(sum(len(c.token_ids) for c in generation.completions))
        return TraceGroup(
            id=group_id,
            run=settings.run,
            position=position,
            prompt=prompt,
            prompt_token_ids=generation.prompt_token_ids,
            policy=adapter.version,
            base_model=adapter.base_model,
            sampling=sampling,
            traces=tuple(
                Trace(f"{group_id}-{slot}", (Turn(completion, verdict),))
                for slot, (completion, verdict) in enumerate(
                    zip(generation.completions, verdicts, strict=True)
                )
            ),
            created_at=time.time(),
            generation_s=generated - began,
            reward_s=scored - generated,
        )

    async def _generate(self, prompt: Prompt, sampling: Sampling, *, seed: int) -> tuple[Adapter, Generation]:
        for _ in range(MAX_RETIRED_TRIES):
            server, adapter = self.peers.pick()
            name = adapter.version.name
            try:
                async with server.one_more_in_flight():
                    generation = await server.client.complete(
                        prompt, model=name, count=self.settings.group_size, sampling=sampling, seed=seed
                    )
            except NotFound:
                logger.info("%s has retired %s: trying again", server.client.url, name)
                await self.peers.refresh(server)
                continue
            except PeerFault as error:
                await self.peers.refresh(server)
                if server.adapter is None:
                    raise Unavailable(f"{error}, and is unavailable now: {server.reason}") from error
                raise
            return adapter, generation
        raise PeerFault(
            f"{server.client.url} reports {name} but does not serve it, {MAX_RETIRED_TRIES} times"
        )

    async def _score(self, items: Sequence[ScoreItem]) -> list[Verdict]:
        try:
            with waiting("verdicts", "reward", expected_s=EXPECTED_S):
                verdicts = await self.peers.reward.score(items)
        except PeerFault as error:
            if not await self.peers.reward.ready():
                raise Unavailable(f"{error}, and is unavailable now") from error
            raise
        if len(verdicts) != len(items):
            raise PeerFault(f"reward: {len(verdicts)} verdicts for {len(items)} answers")
        for item, verdict in zip(items, verdicts, strict=True):
            if not math.isfinite(verdict.reward):
                raise PeerFault(f"reward {verdict.reward!r} of {item.response!r} in {item.fen!r}")
        versions = sorted({verdict.reward_version for verdict in verdicts})
        if len(versions) > 1:
            raise PeerFault(f"reward: one group judged by several versions: {', '.join(versions)}")
        return verdicts


def group_id_of(run: str, entry_id: str, position: Position) -> str:
    """The group's id: the same for every attempt at an entry, in every process."""
    return blake2b(f"{run}/{entry_id}/{position.id}".encode(), digest_size=10).hexdigest()


def seed_of(seed: int, group_id: str) -> int:
    """The seed of a group's first completion, in [0, 2**48)."""
    return int.from_bytes(blake2b(f"{seed}/{group_id}".encode(), digest_size=6).digest(), "big")

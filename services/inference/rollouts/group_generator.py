"""Makes one group: position -> prompt -> completions -> verdicts, and on with the turns of its episodes.

The episodes of a group go on in rounds, so that their answers are scored together. Each round is stored
before the next one. If the scheme has `influence`, the version that wrote the answers of some of the groups
is asked what their sentences change, and they are judged again with that. A fault is raised as an exception
and never becomes a reward.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b

from rookery.clients import Generation, ScoreItem
from rookery.codec import decode_position
from rookery.config.rollouts import RolloutsSettings
from rookery.episodes import Environment, Step, environment
from rookery.errors import InvalidInput, NotFound, PeerFault, RookeryError, Unavailable
from rookery.failpoints import reach
from rookery.influence import effects_of
from rookery.metrics import ROLLOUT_GENERATION_S, ROLLOUT_REWARD_S, ROLLOUT_TOKENS, ROLLOUT_TURNS
from rookery.prompt import STATE_TASK, target_of, task_of
from rookery.streams import Entry, Positions
from rookery.trace import Adapter, Outcome, Position, Prompt, Sampling, Trace, TraceGroup, Turn, Verdict
from rookery.waits import waiting
from services.inference.rollouts.peers import InferenceServer, Peers

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

    async def generate(self, entry: Entry, positions: Positions) -> TraceGroup:
        """Makes the complete group of a `positions` entry. Its first turns are of one server and version.

        Turns after which an episode goes on are stored in `positions`, and taken up from there.

        Raises:
            WireError: the entry is not a position.
            InvalidInput: it cannot be rendered, or a peer refuses it for good.
            PeerFault: a peer is up but failed.
            Unavailable: a peer is down or not ready.
        """
        settings, position = self.settings, decode_position(entry.data)
        group_id = group_id_of(settings.run, entry.id, position)
        seed = seed_of(settings.seed, group_id)
        stored, last = await asyncio.to_thread(positions.turns, entry.id) if position.episode else ([], "")
        style = stored[0].prompt.style if stored else settings.style
        episodes = [environment(position.episode) for _ in range(settings.group_size)]
        with _faults_of(position):
            prompts = [
                episode.reset(position, style=style, seed=seed + slot, judge=self._judge)
                for slot, episode in enumerate(episodes)
            ]
        began, server = time.monotonic(), None
        if stored:
            group, going = await _played(stored, episodes)
            new = await self._turns(group, going)
        else:
            group, server, new = await self._first_turns(group_id, position, prompts[0], seed=seed)
        generation_s, reward_s = time.monotonic() - began, 0.0
        rounds = len(stored)
        while new:
            began = time.monotonic()
            ROLLOUT_TOKENS.inc(sum(len(turn.completion.token_ids) for turn in new.values()))
            new = await self._judged(group, new, episodes)
            if server and not position.episode:
                new = await self._with_effects(group, new, server)
            steps = await _steps(position, episodes, new)
            for slot, step in steps.items():
                new[slot] = replace(new[slot], observation=step.observation, rewards=step.rewards)
            group = _with_turns(group, new)
            judged = time.monotonic()
            reward_s += judged - began
            going = {slot: step.prompt for slot, step in steps.items() if step.prompt}
            if going:
                last = await self._store(positions, entry, group, new, number=rounds, after=last)
                rounds += 1
            new = await self._turns(group, going)
            generation_s += time.monotonic() - judged
        if len(group.reward_versions) > 1:
            versions = ", ".join(group.reward_versions)
            raise PeerFault(f"reward: one group judged by several versions: {versions}")
        ROLLOUT_GENERATION_S.observe(generation_s)
        ROLLOUT_REWARD_S.observe(reward_s)
        return replace(group, created_at=time.time(), generation_s=generation_s, reward_s=reward_s)

    async def _first_turns(
        self, group_id: str, position: Position, prompt: Prompt, *, seed: int
    ) -> tuple[TraceGroup, InferenceServer, dict[int, Turn]]:
        """A group without turns, its server, and the first turn of each of its episodes, by slot."""
        settings, sampling = self.settings, self._sampling(position)
        server, adapter, generation = await self._generate(
            prompt, sampling, seed=seed, count=settings.group_size
        )
        group = TraceGroup(
            id=group_id,
            run=settings.run,
            position=position,
            prompt=prompt,
            prompt_token_ids=generation.prompt_token_ids,
            policy=adapter.version,
            base_model=adapter.base_model,
            sampling=sampling,
            traces=tuple(Trace(f"{group_id}-{slot}", ()) for slot in range(settings.group_size)),
            created_at=time.time(),
        )
        turns = {slot: Turn(completion, None) for slot, completion in enumerate(generation.completions)}
        return group, server, turns

    def _sampling(self, position: Position) -> Sampling:
        sampling = self.settings.sampling
        if task_of(position, style=self.settings.style) == STATE_TASK and self.settings.state_max_tokens:
            return replace(sampling, max_tokens=self.settings.state_max_tokens)
        return sampling

    async def _store(
        self,
        positions: Positions,
        entry: Entry,
        group: TraceGroup,
        new: Mapping[int, Turn],
        *,
        number: int,
        after: str,
    ) -> str:
        """Stores a round of turns. Returns what names it for the next one."""
        reach("rollouts.played")
        traces = tuple(replace(group.traces[slot], turns=(turn,)) for slot, turn in new.items())
        turns = replace(group, traces=traces)
        stored = await asyncio.to_thread(positions.store_turns, entry.id, turns, number=number, after=after)
        reach("rollouts.stored")
        return stored

    async def _turns(self, group: TraceGroup, going: Mapping[int, Prompt]) -> dict[int, Turn]:
        """The next turns of the episodes that go on, by slot."""
        turns = await asyncio.gather(*(self._turn(group, slot, prompt) for slot, prompt in going.items()))
        return dict(zip(going, turns, strict=True))

    async def _turn(self, group: TraceGroup, slot: int, prompt: Prompt) -> Turn:
        """The next turn of an episode, by the newest version."""
        trace = group.traces[slot]
        seed = seed_of(self.settings.seed, f"{trace.id}.{len(trace.turns)}")
        _, adapter, generation = await self._generate(prompt, group.sampling, seed=seed, count=1)
        (completion,) = generation.completions
        policy = None if adapter.version == group.policy else adapter.version
        if adapter.base_model != group.base_model:
            raise PeerFault(f"group {group.id}: begun with {group.base_model}, now {adapter.base_model}")
        tokens, past = generation.prompt_token_ids, _tokens_of(group, trace)
        continues = tokens[: len(past)] == past and len(tokens) > len(past)
        ROLLOUT_TURNS.labels("continued" if continues else "own").inc()
        if continues:
            tokens = tokens[len(past) :]
            before = _messages_before(group, trace)
            prompt = replace(prompt, messages=prompt.messages[before:] or prompt.messages)
        return Turn(completion, None, prompt, tokens, continues=continues, policy=policy)

    async def _judged(
        self, group: TraceGroup, turns: Mapping[int, Turn], episodes: Sequence[Environment]
    ) -> dict[int, Turn]:
        """The turns, each with its verdict if it answers."""
        answers = [slot for slot, turn in turns.items() if episodes[slot].answers(turn.completion.text)]
        items = [_item(group, turns[slot]) for slot in answers]
        verdicts = dict(zip(answers, await self._score(items) if items else [], strict=True))
        return {slot: replace(turn, verdict=verdicts.get(slot)) for slot, turn in turns.items()}

    async def _with_effects(
        self, group: TraceGroup, turns: Mapping[int, Turn], server: InferenceServer
    ) -> dict[int, Turn]:
        """The turns, judged again with the effects of their sentences, if this group is one of those in which
        they are measured. If the server no longer has the version, they stay as they are."""
        legal = {s: t.verdict for s, t in turns.items() if t.verdict and t.verdict.outcome is Outcome.LEGAL}
        measured = seed_of(0, f"influence/{group.id}") < self.settings.influence_share * 2**48
        if not measured or not any("influence" in verdict.components for verdict in legal.values()):
            return dict(turns)
        answers = {slot: (turns[slot].completion.text, verdict) for slot, verdict in legal.items()}
        try:
            async with server.one_more_in_flight():
                effects = await effects_of(
                    server.client, group.prompt_token_ids, answers, model=group.policy.name
                )
        except NotFound:
            logger.info("%s has retired %s: no influence", server.client.url, group.policy.name)
            return dict(turns)
        items = [replace(_item(group, turns[slot]), effects=effects[slot]) for slot in legal]
        verdicts = dict(zip(legal, await self._score(items), strict=True))
        return {slot: replace(turn, verdict=verdicts.get(slot, turn.verdict)) for slot, turn in turns.items()}

    async def _judge(self, fen: str, response: str) -> Verdict:
        (verdict,) = await self._score([ScoreItem(fen, response)])
        return verdict

    async def _generate(
        self, prompt: Prompt, sampling: Sampling, *, seed: int, count: int
    ) -> tuple[InferenceServer, Adapter, Generation]:
        for _ in range(MAX_RETIRED_TRIES):
            server, adapter = self.peers.pick()
            name = adapter.version.name
            try:
                async with server.one_more_in_flight():
                    generation = await server.client.complete(
                        prompt, model=name, count=count, sampling=sampling, seed=seed
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
            return server, adapter, generation
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
        return verdicts


@contextmanager
def _faults_of(position: Position) -> Iterator[None]:
    """An environment that fails does so again: the position is wrong for it, not this process."""
    try:
        yield
    except RookeryError:
        raise
    except Exception as error:
        place = f"episode {position.episode[:80]!r} of position {position.id!r}"
        raise InvalidInput(f"{place}: {type(error).__name__}: {error}") from error


async def _steps(
    position: Position, episodes: Sequence[Environment], turns: Mapping[int, Turn]
) -> dict[int, Step]:
    with _faults_of(position):
        steps = await asyncio.gather(*(episodes[slot].step(turn) for slot, turn in turns.items()))
    return dict(zip(turns, steps, strict=True))


def _item(group: TraceGroup, turn: Turn) -> ScoreItem:
    position, style, completion = group.position, group.prompt.style, turn.completion
    task = task_of(position, style=style)
    return ScoreItem(
        group.prompt_of(turn).fen,
        completion.text,
        truncated=completion.truncated,
        task=task,
        move=position.move if task == STATE_TASK else "",
        target=target_of(position, style=style),
    )


async def _played(
    rounds: Sequence[TraceGroup], episodes: Sequence[Environment]
) -> tuple[TraceGroup, dict[int, Prompt]]:
    """The group with the turns of all stored rounds, and the next prompts, by slot."""
    group = replace(rounds[0], traces=tuple(replace(trace, turns=()) for trace in rounds[0].traces))
    going = dict[int, Prompt]()
    for stored in rounds:
        slots = {trace.id: slot for slot, trace in enumerate(group.traces)}
        turns = {slots[trace.id]: trace.turns[0] for trace in stored.traces}
        steps = await _steps(group.position, episodes, turns)
        going = {slot: step.prompt for slot, step in steps.items() if step.prompt}
        group = _with_turns(group, turns)
    return group, going


def _with_turns(group: TraceGroup, turns: Mapping[int, Turn]) -> TraceGroup:
    """The group with one more turn of some of its traces."""
    traces = list(group.traces)
    for slot, turn in turns.items():
        traces[slot] = replace(traces[slot], turns=(*traces[slot].turns, turn))
    return replace(group, traces=tuple(traces))


def _tokens_of(group: TraceGroup, trace: Trace) -> tuple[int, ...]:
    """All tokens of the conversation that the last turn of an episode belongs to."""
    tokens: tuple[int, ...] = ()
    for turn in trace.turns:
        prompt = group.prompt_tokens_of(turn)
        tokens = (tokens + prompt if turn.continues else prompt) + turn.completion.token_ids
    return tokens


def _messages_before(group: TraceGroup, trace: Trace) -> int:
    """How many messages the conversation has with the last answer."""
    messages = 0
    for turn in trace.turns:
        messages = (messages if turn.continues else 0) + len(group.prompt_of(turn).messages) + 1
    return messages


def group_id_of(run: str, entry_id: str, position: Position) -> str:
    """The group's id: the same for every attempt at an entry, in every process."""
    return blake2b(f"{run}/{entry_id}/{position.id}".encode(), digest_size=10).hexdigest()


def seed_of(seed: int, group_id: str) -> int:
    """The seed of a group's first completion, in [0, 2**48)."""
    return int.from_bytes(blake2b(f"{seed}/{group_id}".encode(), digest_size=6).digest(), "big")

"""Makes one group: position -> prompt -> completions -> verdicts, and on with the turns of its episodes.

The first answers of a group are made and scored together. From then on, no episode waits for another one, and
each turn is stored before the next one. A fault is raised as an exception and never becomes a reward.
"""

import asyncio
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

from rookery.clients import Generation, ScoreItem
from rookery.codec import decode_position
from rookery.config.rollouts import RolloutsSettings
from rookery.episodes import Environment, Step, environment
from rookery.errors import (
    ContextExceeded,
    InvalidInput,
    NotFound,
    PeerFault,
    RookeryError,
    Unavailable,
)
from rookery.failpoints import reach
from rookery.metrics import (
    ROLLOUT_EPISODES,
    ROLLOUT_GENERATION_S,
    ROLLOUT_REWARD_S,
    ROLLOUT_TOKENS,
    ROLLOUT_TURNS,
)
from rookery.prompt import STATE_TASK, target_of, task_of
from rookery.streams import Entry, Positions
from rookery.trace import Adapter, Position, Prompt, Sampling, Trace, TraceGroup, Turn, Verdict
from rookery.waits import waiting
from services.inference.rollouts.admission import Playing
from services.inference.rollouts.opponents import GroupOpponents, Players
from services.inference.rollouts.peers import Peers

logger = logging.getLogger(__name__)

MAX_RETIRED_TRIES = 3
"""A version can be retired between its choice and the request, but hardly this often in a row."""
EXPECTED_S = 120.0
"""A group whose verdicts take longer is reported (see `rookery.waits`)."""


_Episodes: TypeAlias = Sequence[Environment] | Mapping[int, Environment]
"""The environments of a group, by slot."""


@dataclass
class _Times:
    """What the longest episode of a group has spent on generation and on verdicts, in seconds."""

    generation_s: float = 0.0
    reward_s: float = 0.0


class GroupGenerator:
    """Makes groups: everything a group needs except its position."""

    def __init__(self, settings: RolloutsSettings, peers: Peers) -> None:
        self.settings, self.peers = settings, peers
        self._players = Players(peers)
        self._loads: dict[str, dict[int, float]] = {}  # of groups that play on, by episode

    @property
    def playing(self) -> Playing:
        """The groups whose episodes go on after their first turns."""
        return Playing(len(self._loads), sum(sum(loads.values()) for loads in self._loads.values()))

    async def close(self) -> None:
        await self._players.close()

    async def generate(self, entry: Entry, positions: Positions) -> TraceGroup:
        """Makes the complete group of a `positions` entry. First turns are of one version, unless some have
        prompts of their own.

        Turns after which an episode goes on are stored in `positions`, and taken up from there.

        Raises:
            WireError: the entry is not a position.
            InvalidInput: it cannot be rendered, or a peer refuses it for good.
            PeerFault: a peer is up but failed.
            Unavailable: a peer is down or not ready.
            SetupError: an engine that plays is not on this machine.
        """
        settings, position = self.settings, decode_position(entry.data)
        group_id = group_id_of(settings.run, entry.id, position)
        seed = seed_of(settings.seed, group_id)
        stored = await asyncio.to_thread(positions.turns, entry.id) if position.episode else []
        opponents = GroupOpponents(self._players, self._sampling(position))
        episodes = [
            environment(position.episode, opponents=opponents, slot=slot)
            for slot in range(settings.group_size)
        ]
        style = stored[0][0].prompt.style if stored else settings.style
        with _faults_of(position):
            prompts = [
                episode.reset(position, style=style, seed=seed + slot, judge=self._judge)
                for slot, episode in enumerate(episodes)
            ]
        times, store = _Times(), _Store(entry, positions)
        if stored:
            group, store.first = stored[0]
            await _begun(position, episodes, [trace.turns[0].prompt for trace in group.traces])
            opponents.version = group.policy.number
            steps = await _steps(
                position, episodes, {slot: trace.turns[0] for slot, trace in enumerate(group.traces)}
            )
        else:
            own = await _begun(position, episodes, [None] * len(episodes))
            began = time.monotonic()
            group, new = await self._first_turns(group_id, position, prompts[0], own, seed=seed)
            opponents.version = group.policy.number
            times.generation_s = time.monotonic() - began
            new, steps = await self._taken(group, episodes, new, times)
            group = _with_turns(group, new)
            if any(step.prompt for step in steps.values()):
                store.first = await store.turns(group)
        group = await self._played(group, episodes, steps, stored[1:], store=store, times=times)
        if len(group.reward_versions) > 1:
            versions = ", ".join(group.reward_versions)
            raise PeerFault(f"reward: one group judged by several versions: {versions}")
        ROLLOUT_GENERATION_S.observe(times.generation_s)
        ROLLOUT_REWARD_S.observe(times.reward_s)
        return replace(
            group, created_at=time.time(), generation_s=times.generation_s, reward_s=times.reward_s
        )

    async def _played(
        self,
        group: TraceGroup,
        episodes: Sequence[Environment],
        steps: Mapping[int, Step],
        stored: Sequence[tuple[TraceGroup, str]],
        *,
        store: "_Store",
        times: _Times,
    ) -> TraceGroup:
        """The group whose episodes were played to their ends. `steps` are those of the first turns, `stored`
        are the turns after them that were played before."""
        known: dict[str, list[tuple[Turn, str]]] = {}
        for turns, name in stored:
            (trace,) = turns.traces
            known.setdefault(trace.id, []).append((trace.turns[0], name))
        clocks = [_Times() for _ in episodes]
        if any(step.prompt for step in steps.values()):
            self._loads[group.id] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                playing = [
                    tasks.create_task(
                        self._play(
                            group,
                            slot,
                            {slot: episodes[slot]},
                            step,
                            known=known.get(group.traces[slot].id, []),
                            store=store,
                            times=clocks[slot],
                        )
                    )
                    for slot, step in sorted(steps.items())
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._loads.pop(group.id, None)
        longest = max(clocks, key=lambda clock: clock.generation_s + clock.reward_s)
        times.generation_s += longest.generation_s
        times.reward_s += longest.reward_s
        return replace(group, traces=tuple(task.result() for task in playing))

    async def _play(
        self,
        group: TraceGroup,
        slot: int,
        episodes: Mapping[int, Environment],
        step: Step,
        *,
        known: Sequence[tuple[Turn, str]],
        store: "_Store",
        times: _Times,
    ) -> Trace:
        """The episode of a slot, from the step after its first turn on."""
        trace, last = group.traces[slot], store.first
        for turn, last in known:  # noqa: B007 - the last one names what the next turn builds on
            step = (await _steps(group.position, episodes, {slot: turn}))[slot]
            trace = replace(trace, turns=(*trace.turns, turn))
        loads = self._loads.get(group.id, {})
        while step.prompt:
            began = time.monotonic()
            loads[slot] = _load(group, trace)
            try:
                turn = await self._turn(group, trace, step.prompt)
            except ContextExceeded as error:
                logger.info("episode %s ends after %d turns: %s", trace.id, len(trace.turns), error)
                loads.pop(slot)
                return await self._cut(group, trace, episodes[slot])
            times.generation_s += time.monotonic() - began
            taken, steps = await self._taken(group, episodes, {slot: turn}, times)
            step = steps[slot]
            trace = replace(trace, turns=(*trace.turns, taken[slot]))
            if step.prompt:
                last = await store.turn(group, trace, slot, after=last)
        loads.pop(slot, None)
        if group.position.episode:
            ROLLOUT_EPISODES.labels("finished").inc()
        return _paid(trace, step)

    async def _taken(
        self,
        group: TraceGroup,
        episodes: _Episodes,
        new: Mapping[int, Turn],
        times: _Times,
    ) -> tuple[dict[int, Turn], dict[int, Step]]:
        """The turns with what comes of them, by slot, and the steps."""
        began = time.monotonic()
        ROLLOUT_TOKENS.inc(sum(len(turn.completion.token_ids) for turn in new.values()))
        turns = await self._judged(group, new, episodes)
        steps = await _steps(group.position, episodes, turns)
        for slot, step in steps.items():
            turns[slot] = replace(turns[slot], observation=step.observation, rewards=step.rewards)
        times.reward_s += time.monotonic() - began
        return turns, steps

    async def _cut(self, group: TraceGroup, trace: Trace, episode: Environment) -> Trace:
        """The episode, which ends with its last turn, as the next prompt does not fit. If that is no answer,
        it is judged as one that was cut at the token limit."""
        *before, last = trace.turns
        with _faults_of(group.position):
            step = episode.cut(last)
        if last.verdict is None:
            last = replace(last, completion=replace(last.completion, finish_reason="length"))
            (verdict,) = await self._score([_item(group, last)])
            last = replace(last, verdict=verdict)
        last = replace(last, observation=step.observation, rewards=step.rewards)
        ROLLOUT_EPISODES.labels("context_limit").inc()
        return _paid(replace(trace, turns=(*before, last)), step)

    async def _first_turns(
        self, group_id: str, position: Position, prompt: Prompt, own: Mapping[int, Prompt], *, seed: int
    ) -> tuple[TraceGroup, dict[int, Turn]]:
        """A group without turns, and the first turn of each of its episodes, by slot. `own` are the prompts
        of slots that do not begin with `prompt`."""
        settings, sampling = self.settings, self._sampling(position)
        shared = [slot for slot in range(settings.group_size) if slot not in own]
        adapter, generation = await self._generate(prompt, sampling, seed=seed, count=len(shared))
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
        turns = {
            slot: Turn(completion, None)
            for slot, completion in zip(shared, generation.completions, strict=True)
        }
        others = await asyncio.gather(
            *(self._turn(group, group.traces[slot], prompt) for slot, prompt in own.items())
        )
        return group, {**turns, **dict(zip(own, others, strict=True))}

    def _sampling(self, position: Position) -> Sampling:
        sampling = self.settings.sampling
        if task_of(position, style=self.settings.style) == STATE_TASK and self.settings.state_max_tokens:
            return replace(sampling, max_tokens=self.settings.state_max_tokens)
        return sampling

    async def _turn(self, group: TraceGroup, trace: Trace, prompt: Prompt) -> Turn:
        """The next turn of an episode, by the newest version."""
        seed = seed_of(self.settings.seed, f"{trace.id}.{len(trace.turns)}")
        adapter, generation = await self._generate(prompt, group.sampling, seed=seed, count=1)
        (completion,) = generation.completions
        policy = None if adapter.version == group.policy else adapter.version
        if adapter.base_model != group.base_model:
            raise PeerFault(f"group {group.id}: begun with {group.base_model}, now {adapter.base_model}")
        tokens, past = generation.prompt_token_ids, _tokens_of(group, trace)
        continues = bool(past) and tokens[: len(past)] == past
        if past:
            ROLLOUT_TURNS.labels("continued" if continues else "own").inc()
        if continues:
            tokens = tokens[len(past) :]
            before = _messages_before(group, trace)
            prompt = replace(prompt, messages=prompt.messages[before:] or prompt.messages)
        return Turn(completion, None, prompt, tokens, continues=continues, policy=policy)

    async def _judged(
        self, group: TraceGroup, turns: Mapping[int, Turn], episodes: _Episodes
    ) -> dict[int, Turn]:
        """The turns, each with its role, and with its verdict if it answers."""
        answers = [slot for slot, turn in turns.items() if episodes[slot].answers(turn.completion.text)]
        items = [_item(group, turns[slot]) for slot in answers]
        verdicts = dict(zip(answers, await self._score(items) if items else [], strict=True))
        return {
            slot: replace(turn, verdict=verdicts.get(slot), role=episodes[slot].role)
            for slot, turn in turns.items()
        }

    async def _judge(self, fen: str, response: str) -> Verdict:
        (verdict,) = await self._score([ScoreItem(fen, response)])
        return verdict

    async def _generate(
        self, prompt: Prompt, sampling: Sampling, *, seed: int, count: int
    ) -> tuple[Adapter, Generation]:
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


async def _begun(
    position: Position, episodes: Sequence[Environment], played: Sequence[Prompt | None]
) -> dict[int, Prompt]:
    """The first prompts of the episodes that have their own, by slot."""
    with _faults_of(position):
        own = await asyncio.gather(
            *(episode.begin(prompt) for episode, prompt in zip(episodes, played, strict=True))
        )
    return {slot: prompt for slot, prompt in enumerate(own) if prompt}


async def _steps(position: Position, episodes: _Episodes, turns: Mapping[int, Turn]) -> dict[int, Step]:
    with _faults_of(position):
        steps = await asyncio.gather(*(episodes[slot].step(turn) for slot, turn in turns.items()))
    return dict(zip(turns, steps, strict=True))


def _paid(trace: Trace, step: Step) -> Trace:
    """The episode with what its end pays the last turn of another role."""
    turns = list(trace.turns)
    others = [number for number, turn in enumerate(turns) if turn.role != turns[-1].role]
    if step.others and others:
        turn = turns[others[-1]]
        turns[others[-1]] = replace(turn, rewards={**turn.rewards, **step.others})
    return replace(trace, turns=tuple(turns))


@dataclass
class _Store:
    """Where turns are stored after which episodes go on. `first` names what is stored of the first turns."""

    entry: Entry
    positions: Positions
    first: str = ""

    async def turns(self, group: TraceGroup) -> str:
        """Stores the first turns of all episodes. Returns what names them."""
        return await self._store(group)

    async def turn(self, group: TraceGroup, trace: Trace, slot: int, *, after: str) -> str:
        """Stores the last turn of an episode, which builds on what `after` names."""
        turn = replace(group, traces=(replace(trace, turns=trace.turns[-1:]),))
        return await self._store(turn, slot=slot, number=len(trace.turns) - 1, after=after)

    async def _store(self, turns: TraceGroup, *, slot: int = 0, number: int = 0, after: str = "") -> str:
        reach("rollouts.played")
        stored = await asyncio.to_thread(
            self.positions.store_turns, self.entry.id, turns, slot=slot, number=number, after=after
        )
        reach("rollouts.stored")
        return stored


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


def _load(group: TraceGroup, trace: Trace) -> float:
    """What the next turn of an episode occupies of a server, as a share of the first turns of its group: by
    the tokens of its prompt, about, and of its answer."""
    limit = group.sampling.max_tokens
    prompt = (
        len(_tokens_of(group, trace))
        if trace.turns[-1].continues
        else len(group.prompt_tokens_of(trace.turns[-1]))
    )
    return (prompt + limit) / (len(group.prompt_token_ids) + limit) / len(group.traces)


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

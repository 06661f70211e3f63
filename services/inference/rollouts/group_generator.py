"""Makes one group: position -> prompt -> completions -> verdicts, and on with the turns of its episodes.

The first answers of a group are made and scored together. From then on, no episode waits for another one, and
each turn is stored before the next one. If the scheme has `influence`, the version that wrote the answers of
some of the groups is asked what their sentences change, and they are judged again with that. A fault is
raised as an exception and never becomes a reward.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

from rookery.clients import ScoreItem
from rookery.codec import decode_position
from rookery.config.rollouts import RolloutsSettings
from rookery.episodes import Environment, EnvironmentStep, environment, faults_of
from rookery.errors import ContextExceeded, NotFound, PeerFault
from rookery.failpoints import reach
from rookery.influence import effects_of
from rookery.metrics import (
    ROLLOUT_EPISODES,
    ROLLOUT_GENERATION_S,
    ROLLOUT_REWARD_S,
    ROLLOUT_TOKENS,
    ROLLOUT_TURNS,
)
from rookery.prompt import STATE_TASK, target_of, task_of
from rookery.streams import Entry, Positions
from rookery.trace import Outcome, Position, Prompt, Sampling, Trace, TraceGroup, Turn, Verdict
from services.inference.rollouts.admission import Playing
from services.inference.rollouts.opponents import GroupOpponents, Players
from services.inference.rollouts.peers import InferenceServer, Peers
from services.inference.rollouts.turns import load_of, messages_before, paid, tokens_of, with_turns

logger = logging.getLogger(__name__)

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
        self.players = Players(peers)
        self._loads: dict[str, dict[int, float]] = {}  # of groups that play on, by episode
        self._warned = False

    @property
    def playing(self) -> Playing:
        """The groups whose episodes go on after their first turns."""
        return Playing(len(self._loads), sum(sum(loads.values()) for loads in self._loads.values()))

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
        opponents = GroupOpponents(self.players, self._sampling(position))
        episodes = [
            environment(position.episode, opponents=opponents, slot=slot)
            for slot in range(settings.group_size)
        ]
        self._warn_of_small_groups(position.episode, episodes)
        style = stored[0][0].prompt.style if stored else settings.style
        with faults_of(position):
            prompts = [
                episode.reset(position, style=style, seed=seed + slot, judge=self._judge)
                for slot, episode in enumerate(episodes)
            ]
        times, store = _Times(), _Store(entry, positions)
        if stored:
            group, store.first = stored[0]
            first_turns = [trace.turns[0] for trace in group.traces]
            await _first_prompts(position, episodes, list(map(group.prompt_of, first_turns)))
            opponents.version = group.policy.number
            steps = await _steps(position, episodes, dict(enumerate(first_turns)))
        else:
            own_prompts = await _first_prompts(position, episodes, [None] * len(episodes))
            began = time.monotonic()
            group, server, new = await self._first_turns(
                group_id, position, prompts[0], own_prompts, seed=seed
            )
            opponents.version = group.policy.number
            times.generation_s = time.monotonic() - began
            new, steps = await self._judge_and_step(
                group, episodes, new, times, server=None if position.episode else server
            )
            group = with_turns(group, new)
            if any(step.prompt for step in steps.values()):
                store.first = await store.turns(group)
        group = await self._play_all(group, episodes, steps, stored[1:], store=store, times=times)
        if len(group.reward_versions) > 1:
            versions = ", ".join(group.reward_versions)
            raise PeerFault(f"reward: one group judged by several versions: {versions}")
        ROLLOUT_GENERATION_S.observe(times.generation_s)
        ROLLOUT_REWARD_S.observe(times.reward_s)
        return replace(
            group, created_at=time.time(), generation_s=times.generation_s, reward_s=times.reward_s
        )

    async def _play_all(
        self,
        group: TraceGroup,
        episodes: Sequence[Environment],
        steps: Mapping[int, EnvironmentStep],
        stored: Sequence[tuple[TraceGroup, str]],
        *,
        store: "_Store",
        times: _Times,
    ) -> TraceGroup:
        """The group whose episodes were played to their ends. `steps` are those of the first turns, `stored`
        are the turns after them that were played before."""
        stored_turns: dict[str, list[tuple[Turn, str]]] = {}
        for turns, name in stored:
            (trace,) = turns.traces
            stored_turns.setdefault(trace.id, []).append((trace.turns[0], name))
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
                            known=stored_turns.get(group.traces[slot].id, []),
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

    def _warn_of_small_groups(self, episode: str, episodes: Sequence[Environment]) -> None:
        """Once; `rookery up` refuses such a run, where it knows the trainer's baseline."""
        both = any(getattr(environment, "colours", "") == "both" for environment in episodes)
        if both and len(episodes) < 4 and not self._warned:
            self._warned = True
            logger.warning(
                "episode %r: of the %d games of a group, one colour has no two: baseline=group-mean and "
                "leave-one-out give such a game no advantage. group_size of 4 or more is needed",
                episode[:80],
                len(episodes),
            )

    async def _play(
        self,
        group: TraceGroup,
        slot: int,
        episodes: Mapping[int, Environment],
        step: EnvironmentStep,
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
            loads[slot] = load_of(group, trace)
            try:
                turn = await self._turn(group, trace, step.prompt)
            except ContextExceeded as error:
                logger.info("episode %s ends after %d turns: %s", trace.id, len(trace.turns), error)
                loads.pop(slot)
                return await self._cut(group, trace, episodes[slot])
            times.generation_s += time.monotonic() - began
            taken, steps = await self._judge_and_step(group, episodes, {slot: turn}, times)
            step = steps[slot]
            trace = replace(trace, turns=(*trace.turns, taken[slot]))
            if step.prompt:
                last = await store.turn(group, trace, slot, after=last)
        loads.pop(slot, None)
        if group.position.episode:
            ROLLOUT_EPISODES.labels("finished").inc()
        return paid(trace, step)

    async def _judge_and_step(
        self,
        group: TraceGroup,
        episodes: _Episodes,
        new: Mapping[int, Turn],
        times: _Times,
        server: InferenceServer | None = None,
    ) -> tuple[dict[int, Turn], dict[int, EnvironmentStep]]:
        """The turns with what comes of them, by slot, and the steps. `server` is asked for the
        effects of their sentences."""
        began = time.monotonic()
        ROLLOUT_TOKENS.inc(sum(len(turn.completion.token_ids) for turn in new.values()))
        turns = await self._judged(group, new, episodes)
        if server:
            turns = await self._with_effects(group, turns, server)
        steps = await _steps(group.position, episodes, turns)
        for slot, step in steps.items():
            turns[slot] = replace(turns[slot], observation=step.observation, rewards=step.rewards)
        times.reward_s += time.monotonic() - began
        return turns, steps

    async def _cut(self, group: TraceGroup, trace: Trace, episode: Environment) -> Trace:
        """The episode, which ends with its last turn, as the next prompt does not fit. If that is no answer,
        it is judged as one that was cut at the token limit."""
        *before, last = trace.turns
        with faults_of(group.position):
            step = episode.cut(last)
        if last.verdict is None:
            last = replace(last, completion=replace(last.completion, finish_reason="length"))
            (verdict,) = await self.peers.verdicts([_item(group, last)])
            last = replace(last, verdict=verdict)
        last = replace(last, observation=step.observation, rewards=step.rewards)
        ROLLOUT_EPISODES.labels("context_limit").inc()
        return paid(replace(trace, turns=(*before, last)), step)

    async def _first_turns(
        self,
        group_id: str,
        position: Position,
        prompt: Prompt,
        own_prompts: Mapping[int, Prompt],
        *,
        seed: int,
    ) -> tuple[TraceGroup, InferenceServer, dict[int, Turn]]:
        """A group without turns, its server, and the first turn of each of its episodes, by slot.
        `own_prompts` are the prompts of slots that do not begin with `prompt`."""
        settings, sampling = self.settings, self._sampling(position)
        shared = [slot for slot in range(settings.group_size) if slot not in own_prompts]
        server, adapter, generation = await self.peers.complete(
            prompt, sampling, seed=seed, count=len(shared)
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
        turns = {
            slot: Turn(completion, None)
            for slot, completion in zip(shared, generation.completions, strict=True)
        }
        others = await asyncio.gather(
            *(self._turn(group, group.traces[slot], prompt) for slot, prompt in own_prompts.items())
        )
        return group, server, {**turns, **dict(zip(own_prompts, others, strict=True))}

    def _sampling(self, position: Position) -> Sampling:
        sampling = self.settings.sampling
        if task_of(position, style=self.settings.style) == STATE_TASK and self.settings.state_max_tokens:
            return replace(sampling, max_tokens=self.settings.state_max_tokens)
        return sampling

    async def _turn(self, group: TraceGroup, trace: Trace, prompt: Prompt) -> Turn:
        """The next turn of an episode, by the newest version."""
        seed = seed_of(self.settings.seed, f"{trace.id}.{len(trace.turns)}")
        _, adapter, generation = await self.peers.complete(prompt, group.sampling, seed=seed, count=1)
        (completion,) = generation.completions
        if trace.turns and completion.truncated and len(completion.token_ids) < group.sampling.max_tokens:
            # vLLM cuts an answer at the end of the context, whatever it was allowed.
            raise ContextExceeded(
                f"a prompt of {len(generation.prompt_token_ids)} tokens leaves room for "
                f"{len(completion.token_ids)} of {group.sampling.max_tokens} tokens"
            )
        policy = None if adapter.version == group.policy else adapter.version
        if adapter.base_model != group.base_model:
            raise PeerFault(f"group {group.id}: begun with {group.base_model}, now {adapter.base_model}")
        tokens, past = generation.prompt_token_ids, tokens_of(group, trace)
        continues = bool(past) and tokens[: len(past)] == past
        if past:
            ROLLOUT_TURNS.labels("continued" if continues else "own").inc()
        if continues:
            tokens = tokens[len(past) :]
            before = messages_before(group, trace)
            prompt = replace(prompt, messages=prompt.messages[before:] or prompt.messages, tools="")
        return Turn(completion, None, prompt, tokens, continues=continues, policy=policy)

    async def _judged(
        self, group: TraceGroup, turns: Mapping[int, Turn], episodes: _Episodes
    ) -> dict[int, Turn]:
        """The turns, each with its role, and with its verdict if it answers."""
        answers = [slot for slot, turn in turns.items() if episodes[slot].answers(turn.completion.text)]
        items = [_item(group, turns[slot]) for slot in answers]
        verdicts = dict(zip(answers, await self.peers.verdicts(items) if items else [], strict=True))
        return {
            slot: replace(turn, verdict=verdicts.get(slot), role=episodes[slot].role)
            for slot, turn in turns.items()
        }

    async def _with_effects(
        self, group: TraceGroup, turns: Mapping[int, Turn], server: InferenceServer
    ) -> dict[int, Turn]:
        """The turns, judged again with the effects of their sentences, if this group is one of those in which
        they are measured. If the server no longer has the version, or an answer with a move behind it does
        not fit the model's context, they stay as they are."""
        legal = {s: t.verdict for s, t in turns.items() if t.verdict and t.verdict.outcome is Outcome.LEGAL}
        measured = seed_of(0, f"influence/{group.id}") < self.settings.influence_share * 2**48
        if not measured or not any("influence" in verdict.components for verdict in legal.values()):
            return dict(turns)
        answers = {slot: (turns[slot].completion.text, verdict) for slot, verdict in legal.items()}
        try:
            async with self.peers.asking(server):
                effects = await effects_of(
                    server.client, group.prompt_token_ids, answers, model=group.policy.name
                )
        except (NotFound, ContextExceeded) as error:
            logger.info("%s, group %s: no influence: %s", server.client.url, group.id, error)
            return dict(turns)
        items = [replace(_item(group, turns[slot]), effects=effects[slot]) for slot in legal]
        verdicts = dict(zip(legal, await self.peers.verdicts(items), strict=True))
        return {slot: replace(turn, verdict=verdicts.get(slot, turn.verdict)) for slot, turn in turns.items()}

    async def _judge(self, fen: str, response: str) -> Verdict:
        (verdict,) = await self.peers.verdicts([ScoreItem(fen, response)])
        return verdict


async def _first_prompts(
    position: Position, episodes: Sequence[Environment], played: Sequence[Prompt | None]
) -> dict[int, Prompt]:
    """The first prompts of the episodes that have their own, by slot."""
    with faults_of(position):
        own_prompts = await asyncio.gather(
            *(episode.begin(prompt) for episode, prompt in zip(episodes, played, strict=True))
        )
    return {slot: prompt for slot, prompt in enumerate(own_prompts) if prompt}


async def _steps(
    position: Position, episodes: _Episodes, turns: Mapping[int, Turn]
) -> dict[int, EnvironmentStep]:
    with faults_of(position):
        steps = await asyncio.gather(*(episodes[slot].step(turn) for slot, turn in turns.items()))
    return dict(zip(turns, steps, strict=True))


@dataclass
class _Store:
    """Where turns are stored after which episodes go on. `first` names what is stored of the first turns."""

    entry: Entry
    positions: Positions
    first: str = ""

    async def turn(self, group: TraceGroup, trace: Trace, slot: int, *, after: str) -> str:
        """Stores the last turn of an episode, which builds on what `after` names."""
        turn = replace(group, traces=(replace(trace, turns=trace.turns[-1:]),))
        return await self.turns(turn, slot=slot, number=len(trace.turns) - 1, after=after)

    async def turns(self, turns: TraceGroup, *, slot: int = 0, number: int = 0, after: str = "") -> str:
        """Stores turns, by default the first ones of all episodes. Returns what names them."""
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


def group_id_of(run: str, entry_id: str, position: Position) -> str:
    """The group's id: the same for every attempt at an entry, in every process."""
    return blake2b(f"{run}/{entry_id}/{position.id}".encode(), digest_size=10).hexdigest()


def seed_of(seed: int, group_id: str) -> int:
    """The seed of a group's first completion, in [0, 2**48)."""
    return int.from_bytes(blake2b(f"{seed}/{group_id}".encode(), digest_size=6).digest(), "big")

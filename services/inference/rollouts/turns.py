"""The turns of episodes in groups: adding them, and what they make of the next prompt."""

from collections.abc import Mapping
from dataclasses import replace

from rookery.episodes import EnvironmentStep
from rookery.trace import Trace, TraceGroup, Turn


def with_turns(group: TraceGroup, turns: Mapping[int, Turn]) -> TraceGroup:
    """The group with one more turn of some of its traces."""
    traces = list(group.traces)
    for slot, turn in turns.items():
        traces[slot] = replace(traces[slot], turns=(*traces[slot].turns, turn))
    return replace(group, traces=tuple(traces))


def paid(trace: Trace, step: EnvironmentStep) -> Trace:
    """The episode with what its end pays the last turn of another role."""
    turns = list(trace.turns)
    others = [number for number, turn in enumerate(turns) if turn.role != turns[-1].role]
    if step.others and others:
        turn = turns[others[-1]]
        turns[others[-1]] = replace(turn, rewards={**turn.rewards, **step.others})
    return replace(trace, turns=tuple(turns))


def tokens_of(group: TraceGroup, trace: Trace) -> tuple[int, ...]:
    """All tokens of the conversation that the last turn of an episode belongs to."""
    tokens: tuple[int, ...] = ()
    for turn in trace.turns:
        prompt = group.prompt_tokens_of(turn)
        tokens = (tokens + prompt if turn.continues else prompt) + turn.completion.token_ids
    return tokens


def messages_before(group: TraceGroup, trace: Trace) -> int:
    """How many messages the conversation has with the last answer."""
    messages = 0
    for turn in trace.turns:
        messages = (messages if turn.continues else 0) + len(group.prompt_of(turn).messages) + 1
    return messages


def load_of(group: TraceGroup, trace: Trace) -> float:
    """What the next turn of an episode occupies of a server, as a share of the first turns of its group: by
    the tokens of its prompt, about, and of its answer."""
    limit = group.sampling.max_tokens
    prompt = (
        len(tokens_of(group, trace))
        if trace.turns[-1].continues
        else len(group.prompt_tokens_of(trace.turns[-1]))
    )
    return (prompt + limit) / (len(group.prompt_token_ids) + limit) / len(group.traces)

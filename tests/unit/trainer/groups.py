"""Groups of random tokens with random rewards."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from rookery.trace import (
    Completion,
    Message,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    Prompt,
    Sampling,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)
from services.trainer.batches.rows import Row


def prompt_places(rows: Sequence[Row]) -> set[int]:
    """Places on a micro-batch's line that predict a token of a prompt."""
    starts = accumulate((row.length for row in rows), initial=0)
    return {
        start + i for start, row in zip(starts, rows, strict=False) for i in range(len(row.prompt_ids) - 1)
    }


def make_group(
    number: int,
    *,
    version: int = 0,
    size: int = 4,
    prompt_length: int = 9,
    vocabulary: int = 80,
    finish_reason: str = "stop",
) -> TraceGroup:
    """A group of random tokens with random rewards; the same number gives the same group."""
    rng = random.Random(number)

    def trace(slot: int) -> Trace:
        length = rng.randint(1, 7)
        completion = Completion(
            text="",
            token_ids=tuple(rng.randrange(1, vocabulary) for _ in range(length)),
            logprobs=tuple(-rng.random() * 4 for _ in range(length)),
            finish_reason=finish_reason if slot == 0 else "stop",
            seed=slot,
        )
        verdict = Verdict(reward=-rng.random(), outcome=Outcome.LEGAL, reward_version="t", regret=0.1)
        return Trace(f"{number}-{slot}", (Turn(completion, verdict),))

    return TraceGroup(
        id=f"group-{number}",
        run="test",
        position=Position(f"p{number}", "8/8/8/8/8/8/8/8 w - - 0 1", 10, Phase.MIDDLEGAME, "g"),
        prompt=Prompt("mover-squares", (Message("user", "x"),), "8/8/8/8/8/8/8/8 w - - 0 1"),
        prompt_token_ids=tuple(rng.randrange(1, vocabulary) for _ in range(prompt_length)),
        policy=PolicyVersion(version, "0" * 64),
        base_model="tiny",
        sampling=Sampling(),
        traces=tuple(trace(slot) for slot in range(size)),
        created_at=0.0,
    )


def make_episodes(number: int, *, version: int = 0) -> TraceGroup:
    """A group of two episodes of three turns: the first is one conversation, the second begins anew with its
    second turn and goes on from it. The second turns are of the next version."""
    drawn = [make_group(number + 1000 * i, size=2, prompt_length=5) for i in range(3)]
    first, *later = drawn
    prompts = [(group.prompt, group.prompt_token_ids) for group in later]
    traces = []
    for slot, trace in enumerate(first.traces):
        second, third = (
            replace(group.traces[slot].turns[0], prompt=prompt, prompt_token_ids=tokens, continues=True)
            for group, (prompt, tokens) in zip(later, prompts, strict=True)
        )
        second = replace(second, continues=slot == 0, policy=PolicyVersion(version + 1, "1" * 64))
        traces.append(replace(trace, turns=(*trace.turns, second, third)))
    return replace(first, traces=tuple(traces), policy=PolicyVersion(version, "0" * 64))


def alone(group: TraceGroup) -> TraceGroup:
    """Each turn of a group as a trace of its own, with all that went before it as its prompt."""
    traces, past = [], ()
    for turn, id in zip(group.turns, group.turn_ids, strict=True):
        past = (past if turn.continues else ()) + group.prompt_tokens_of(turn)
        own = replace(turn, prompt=group.prompt, prompt_token_ids=past, continues=False)
        traces.append(Trace(id.replace(".", "-turn-"), (own,)))
        past += turn.completion.token_ids
    return replace(group, traces=tuple(traces))

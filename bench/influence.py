"""`python -m bench.influence RUN`: what it costs to measure the influence of sentences.

Each round takes other groups from the run's archive. First the run's base model generates as many answers to
their prompts as the run had, then the effects of the archived answers' sentences are measured. Rollouts
measure a share of the groups (`influence_share`), so `ratio` times that share is what it adds to the time of
generation.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench.reload import serving
from chess_datasets.store.folders import open_folder
from chess_datasets.traces.archive import TraceArchive
from rookery.clients import InferenceClient
from rookery.influence import effects_of
from rookery.trace import Outcome, TraceGroup

Work = Callable[[TraceGroup], Awaitable[int]]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.influence", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run with single moves")
    parser.add_argument("--groups", type=int, default=64, help="in a round")
    parser.add_argument("--callers", type=int, default=8, help="groups at a time")
    parser.add_argument("--rounds", type=int, default=3, help="of generating and measuring")
    parser.add_argument("--device", default="auto", help="of the server, as its --device")
    arguments = parser.parse_args()
    archive = TraceArchive(open_folder(str(arguments.run / "archive")))
    groups = list(islice(archive.groups(), arguments.groups * arguments.rounds + arguments.callers))
    warm_up, groups = groups[: arguments.callers], groups[arguments.callers :]
    if len(groups) < arguments.rounds:
        sys.exit(f"{arguments.run}/archive: too few groups to warm up and for {arguments.rounds} rounds")
    if not any(verdict.sentences for group in groups for verdict in group.verdicts):
        sys.exit(f"{arguments.run}/archive: no sentence was read; its scheme needs `truth` or `influence`")
    with (
        tempfile.TemporaryDirectory(prefix="bench-influence-") as folder,
        serving(Path(groups[0].base_model.partition("@")[0]), Path(folder), device=arguments.device) as url,
    ):
        rounds = [groups[number :: arguments.rounds] for number in range(arguments.rounds)]
        print(json.dumps(asyncio.run(_measure(url, warm_up, rounds, callers=arguments.callers)), indent=2))


async def _measure(
    url: str, warm_up: Sequence[TraceGroup], rounds: Sequence[Sequence[TraceGroup]], *, callers: int
) -> dict[str, Any]:
    """The seconds of each round; no prompt is in the server's cache before its own."""
    async with InferenceClient(url) as client:
        model = next(iter(await client.served()))

        async def generate(group: TraceGroup) -> int:
            generation = await client.complete(
                group.prompt, model=model, count=len(group.traces), sampling=group.sampling, seed=0
            )
            return sum(len(completion.token_ids) for completion in generation.completions)

        async def measure(group: TraceGroup) -> int:
            answers = {
                slot: (turn.completion.text, turn.verdict)
                for slot, turn in enumerate(group.turns)
                if turn.verdict and turn.verdict.outcome is Outcome.LEGAL
            }
            effects = await effects_of(client, group.prompt_token_ids, answers, model=model)
            return sum(map(len, effects.values()))

        for work in (generate, measure):  # compiles kernels
            await _timed(work, warm_up, callers)
        pairs = [
            (await _timed(generate, groups, callers), await _timed(measure, groups, callers))
            for groups in rounds
        ]
    ratios = [measured[0] / generated[0] for generated, measured in pairs]
    return {
        "groups": sum(map(len, rounds)),
        "generated_tokens": sum(generated[1] for generated, _ in pairs),
        "effects": sum(measured[1] for _, measured in pairs),
        "generation_s": [round(generated[0], 2) for generated, _ in pairs],
        "influence_s": [round(measured[0], 2) for _, measured in pairs],
        "ratio": round(statistics.median(ratios), 2),
        "share_that_costs_20_percent": round(min(1.0, 0.2 / statistics.median(ratios)), 3),
    }


async def _timed(work: Work, groups: Sequence[TraceGroup], callers: int) -> tuple[float, int]:
    """The seconds of the work on all groups, `callers` at a time, and the sum of what it returns."""
    room = asyncio.Semaphore(callers)

    async def one(group: TraceGroup) -> int:
        async with room:
            return await work(group)

    began = time.perf_counter()
    counts = await asyncio.gather(*map(one, groups))
    return time.perf_counter() - began, sum(counts)


if __name__ == "__main__":
    main()

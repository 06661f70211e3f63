"""`rookery data pairs`: writes preference pairs and their manifest. Can be stopped and continued."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from typing import Any

from chess_datasets.commands.engines import scorer_of
from chess_datasets.commands.positions import chosen_positions
from chess_datasets.commands.settings.positions import PairsSettings
from chess_datasets.jobs import Progress
from chess_datasets.pairs.dataset import PairMaker, PairPolicy, write_pairs
from chess_datasets.pairs.preference import PAIRS, PairRecipe
from chess_datasets.store.datasets import Parts
from chess_datasets.store.folders import open_folder
from rookery.access import AccessSettings
from rookery.clients import InferenceClient
from rookery.processes.workers import process_pool
from rookery.trace import Sampling


def pairs(settings: PairsSettings) -> int:
    """Runs the command and returns the exit status."""
    manifest = asyncio.run(_run(settings))
    sys.stderr.write(
        f"{manifest['pairs']} pairs from {manifest['positions']} positions, {manifest['by_origin']}, "
        f"mean gap {manifest['mean_gap']}; left out: {manifest['left_out']}\n"
    )
    if manifest["pairs"] < settings.count:
        sys.stderr.write(f"{settings.count} were asked for; there are no more positions\n")
    return 0


async def _run(settings: PairsSettings) -> dict[str, Any]:
    recipe = settings.recipe(PairRecipe)
    folder = open_folder(settings.out)
    pool = process_pool(settings.jobs) if settings.jobs > 1 else nullcontext()  # one job: this process
    with chosen_positions(settings) as (positions, origin), pool as executor, Progress() as progress:
        terms = {"positions": origin, "recipe": asdict(recipe), **_judge_terms(settings)}
        parts = Parts(folder, PAIRS, terms=terms)
        async with _policy(settings) as policy:
            maker = PairMaker(
                positions, recipe, parts, wanted=settings.count, policy=policy, executor=executor
            )
            progress.begin("pairs", unit="pairs", total=settings.count)
            progress.advance(maker.pair_count)
            async with scorer_of(settings, nodes=settings.nodes) as scorer:
                await maker.run(scorer, in_flight=settings.in_flight, advance=progress.advance)
        manifest = write_pairs(maker, folder, terms=terms, jsonl=settings.jsonl)
        parts.clear()
    return manifest


def _judge_terms(settings: PairsSettings) -> dict[str, Any]:
    """The settings that determine the pairs, besides positions and recipe, for the manifest."""
    terms: dict[str, Any] = {"reward": settings.reward} if settings.reward else {"nodes": settings.nodes}
    if settings.inference:
        terms |= {"model": settings.model, "completions": settings.completions}
        terms |= {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
    return terms


@asynccontextmanager
async def _policy(settings: PairsSettings) -> AsyncIterator[PairPolicy | None]:
    if not settings.inference:
        yield None
        return
    access = AccessSettings().access
    if settings.key_env or settings.key_file:
        access = access.with_key(settings.key_env, settings.key_file)
    servers = [InferenceClient(url, access=access) for url in settings.inference]
    sampling = Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens)
    try:
        yield PairPolicy(servers, settings.model, settings.completions, sampling)
    finally:
        await asyncio.gather(*(server.close() for server in servers))

"""`rookery data pairs`: writes preference pairs and their manifest. Can be stopped and continued."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chess_datasets.commands.engines import add_reward, scorer_of
from chess_datasets.commands.flags import (
    add_jobs,
    add_jsonl,
    add_number,
    add_positions,
    add_style,
    chosen_positions,
    command_parser,
    positive,
    recipe_of,
    share,
)
from chess_datasets.jobs import Progress
from chess_datasets.pairs.dataset import PairMaker, PairPolicy, write_pairs
from chess_datasets.pairs.preference import PAIRS, PairRecipe
from chess_datasets.store.datasets import Parts
from chess_datasets.store.folders import open_folder
from rookery.access import AccessSettings
from rookery.clients import InferenceClient
from rookery.processes.workers import process_pool
from rookery.prompt import STYLES
from rookery.trace import Sampling

EXAMPLES = """  rookery data pairs --count 1000 --out runs/pairs
  rookery data pairs --count 100000 --source games/*.pgn.zst --nodes 20000 --out s3://bucket/pairs
  rookery data pairs --count 5000 --inference http://localhost:8000 --model policy --out runs/student
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    options = _parser().parse_args(argv)
    manifest = asyncio.run(_run(options))
    sys.stderr.write(
        f"{manifest['pairs']} pairs from {manifest['positions']} positions, {manifest['by_origin']}, "
        f"mean gap {manifest['mean_gap']}; left out: {manifest['left_out']}\n"
    )
    if manifest["pairs"] < options.count:
        sys.stderr.write(f"{options.count} were asked for; there are no more positions\n")
    return 0


async def _run(options: argparse.Namespace) -> dict[str, Any]:
    recipe = recipe_of(PairRecipe, options)
    folder = open_folder(options.out)
    pool = process_pool(options.jobs) if options.jobs > 1 else nullcontext()  # one job: this process
    with chosen_positions(options) as (positions, origin), pool as executor, Progress() as progress:
        terms = {"positions": origin, "recipe": asdict(recipe), **_judge_terms(options)}
        parts = Parts(folder, PAIRS, terms=terms)
        async with _policy(options) as policy:
            maker = PairMaker(
                positions, recipe, parts, wanted=options.count, policy=policy, executor=executor
            )
            progress.begin("pairs", unit="pairs", total=options.count)
            progress.advance(maker.pair_count)
            async with scorer_of(options, nodes=options.nodes) as scorer:
                await maker.run(scorer, in_flight=options.in_flight, advance=progress.advance)
        manifest = write_pairs(maker, folder, terms=terms, jsonl=options.jsonl)
        parts.clear()
    return manifest


def _judge_terms(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that determine the pairs, besides positions and recipe, for the manifest."""
    terms: dict[str, Any] = {"reward": options.reward} if options.reward else {"nodes": options.nodes}
    if options.inference:
        terms |= {"model": options.model, "completions": options.completions}
        terms |= {"temperature": options.temperature, "max_tokens": options.max_tokens}
    return terms


@asynccontextmanager
async def _policy(options: argparse.Namespace) -> AsyncIterator[PairPolicy | None]:
    if not options.inference:
        yield None
        return
    access = AccessSettings().access
    if options.key_env or options.key_file:
        access = access.with_key(options.key_env, options.key_file)
    servers = [InferenceClient(url, access=access) for url in options.inference]
    sampling = Sampling(temperature=options.temperature, max_tokens=options.max_tokens)
    try:
        yield PairPolicy(servers, options.model, options.completions, sampling)
    finally:
        await asyncio.gather(*(server.close() for server in servers))


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "pairs",
        "Writes preference pairs: the engine's move in a position is preferred to a weaker one, and both\n"
        "have their win probability. The weaker move is the policy's own (--inference) or else the best of\n"
        "some random legal moves that are worse than the engine's. A stopped command continues when it is\n"
        "called again with the same flags.",
        examples=EXAMPLES,
    )
    parser.add_argument("--count", type=positive, required=True, help="number of pairs")
    parser.add_argument("--out", required=True, help="folder or URL for pairs.parquet and manifest.json")
    add_jsonl(parser, "JSON lines")
    position_flags = add_positions(parser)
    add_jobs(position_flags, "processes that generate positions")
    add_style(position_flags, default="mover-squares")
    group = parser.add_argument_group("the weaker move")
    add_number(group, "--candidates", positive, 4, "random legal moves per position")
    add_number(group, "--min-gap", share, 0.05, "the least win probability that it loses")
    add_number(group, "--max-gap", share, 1.0, "the most win probability that it loses")
    add_reward(parser)
    add_number(group, "--nodes", positive, 5000, "nodes per search of the reward service that is started")
    _add_policy(parser)
    return parser


def _add_policy(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the policy")
    group.add_argument("--inference", nargs="+", metavar="URL", help="inference servers with the same model")
    key = group.add_mutually_exclusive_group()
    key.add_argument(
        "--key-env", default="", metavar="NAME", help="variable with the servers' key (the run's token)"
    )
    key.add_argument("--key-file", type=Path, metavar="PATH", help="file with the servers' key")
    group.add_argument("--model", default="policy", help="name of the model on these servers (policy)")
    group.add_argument(
        "--policy-style",
        choices=sorted(STYLES),
        default="",
        metavar="STYLE",
        help="how positions are shown to the policy, such as game-san (as in the pairs)",
    )
    add_number(group, "--completions", positive, 4, "answers per position")
    add_number(group, "--temperature", float, 1.0, "sampling temperature")
    add_number(group, "--max-tokens", positive, 64, "the most tokens of an answer")
    add_number(group, "--in-flight", positive, 64, "positions in work at the same time")

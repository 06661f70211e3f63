"""Runs one evaluation, from settings to report files, with progress bars in the terminal."""

import hashlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from rookery.clients import InferenceClient, RewardClient
from rookery.errors import InvalidInput
from rookery.masking import mask_setting
from rookery.prompt import STYLES
from rookery.trace import Position, Sampling
from services.arena.evaluate import Policy, Questions, ask, find_policy
from services.arena.evaluation import Evaluation
from services.arena.measures import ALL, Answers, Part, measure
from services.arena.positions import Chosen, choose, fetch, read_jsonl
from services.arena.report import write
from services.arena.settings import EvaluateSettings
from services.arena.stats import Estimate
from services.arena.wording import NAMES, figure, interval, judgement

_TIMEOUT_S = 120.0

_COLOURS = {"better": "green", "worse": "red", "unclear": "dim"}


async def run(settings: EvaluateSettings, *, console: Console | None = None) -> dict[str, Any]:
    """Evaluates, writes the report and returns the content of report.json.

    Raises:
        InvalidInput: there is no such prompt style, or the positions cannot be used.
        RookeryError: see also `find_policy`, `choose` and `ask`.
    """
    console = console or Console()
    if settings.style not in STYLES:
        raise InvalidInput(f"no prompt style {settings.style!r}: choose from {', '.join(sorted(STYLES))}")
    started = time.monotonic()
    chosen = await _positions(settings)
    questions = Questions(
        style=settings.style,
        samples=settings.samples,
        sampling=Sampling(max_tokens=settings.max_tokens),
        seed=settings.seed,
    )
    policies, before, after = await _both(settings, chosen.positions, questions, console=console)
    with console.status("resampling"):
        parts = measure(before, after, seed=settings.seed)
    evaluation = Evaluation(
        chosen=chosen,
        questions=questions,
        policies=policies,
        before=before,
        after=after,
        parts=parts,
        seconds=time.monotonic() - started,
    )
    report = write(evaluation, settings.out)
    console.print(table(policies, parts[ALL]))
    console.print(f"report: {settings.out / 'report.html'}", soft_wrap=True, highlight=False)
    return report


async def _positions(settings: EvaluateSettings) -> Chosen:
    seen = read_jsonl(settings.exclude) if settings.exclude else []
    if settings.positions is not None:
        pool = read_jsonl(settings.positions)
        source, digest = settings.positions.name, hashlib.sha256(settings.positions.read_bytes()).hexdigest()
    else:
        url = str(settings.data_url)
        # Twice as many as needed, because duplicates and excluded positions are removed.
        pool = await fetch(url, count=2 * settings.count, seed=settings.seed)
        source, digest = mask_setting(url), None
    positions = choose(pool, count=settings.count, seed=settings.seed, seen=seen)
    return Chosen(tuple(positions), source, digest)


async def _both(
    settings: EvaluateSettings, positions: Sequence[Position], questions: Questions, *, console: Console
) -> tuple[tuple[Policy, Policy], list[Answers], list[Answers]]:
    async with (
        InferenceClient(settings.inference_url, timeout_s=_TIMEOUT_S) as inference,
        _reward_client(settings.reward_target) as reward,
    ):
        policies = (
            await find_policy(inference, settings.before),
            await find_policy(inference, settings.after),
        )
        with _progress(console) as progress:
            bars = [progress.add_task(policy.name, total=len(positions)) for policy in policies]
            before, after = [
                await ask(
                    positions,
                    policy=policy.name,
                    questions=questions,
                    inference=inference,
                    reward=reward,
                    concurrency=settings.concurrency,
                    answered=partial(progress.advance, bar),
                )
                for policy, bar in zip(policies, bars, strict=True)
            ]
    return policies, before, after


@asynccontextmanager
async def _reward_client(target: str) -> AsyncIterator[RewardClient]:
    client = RewardClient(target, timeout_s=_TIMEOUT_S)
    try:
        yield client
    finally:
        await client.close()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def table(policies: tuple[Policy, Policy], part: Part) -> Table:
    """The terminal's table: before, after and difference of each metric in `NAMES`."""
    made = Table(
        title=f"{part.positions:,} held-out positions, 95% intervals",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    made.add_column("", no_wrap=True)
    for head in (policies[0].name, policies[1].name, "difference"):
        made.add_column(head, justify="right", no_wrap=True)
    made.add_column("", no_wrap=True)
    for name, (title, _) in NAMES.items():
        comparison = part.comparisons[name]
        verdict = judgement(name, comparison)
        made.add_row(
            title,
            _cell(name, comparison.before),
            _cell(name, comparison.after),
            _cell(name, comparison.difference, signed=True),
            Text(verdict, _COLOURS[verdict]),
        )
    return made


def _cell(name: str, estimate: Estimate, *, signed: bool = False) -> Text:
    mean, bounds = figure(name, estimate.mean, signed=signed), interval(name, estimate, signed=signed)
    return Text.assemble(mean, "\n", (bounds, "dim"))

"""Makes the examples of one task, and writes them as `tasks.parquet` and `manifest.json`."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass
from typing import Any

from rookery.errors import InvalidInput
from rookery.trace import Position
from services.data.jobs.engine import WorkerEngine
from services.data.positions.numbered import Shard
from services.data.store.datasets import write_manifest
from services.data.store.folders import Folder
from services.data.store.jsonl import jsonl_writer
from services.data.store.parquet import record_writer
from services.data.tasks.engine_moves import TARGETS, CandidateTargets, engine_moves
from services.data.tasks.example import (
    ENGINE_MOVES,
    EXAMPLES,
    LEGAL_MOVES,
    NEXT_FEN,
    Example,
    legal_moves,
    next_fen,
    rookworld_example,
)
from services.data.tasks.rookworld import MIX, RookworldMix, Searcher, labelled_lines

PARQUET = "tasks.parquet"

ROOKWORLD = "rookworld"
"""The task that mixes `P:` and `A:` lines."""


@dataclass(frozen=True, slots=True)
class TaskRecipe:
    """The settings that determine the examples, besides the positions.

    `layout` and `mix` apply to the task `rookworld`, `style` and `targets` to `engine-moves`, `nodes` to
    both. `form` applies to `legal-moves` and `next-fen`.
    """

    task: str
    seed: int = 0
    form: str = "fen"
    nodes: int = 20_000
    layout: str = "published"
    mix: RookworldMix = MIX
    style: str = "fen"
    targets: CandidateTargets = TARGETS


def needs_engine(task: str) -> bool:
    """Whether an engine judges the moves of the task's examples."""
    return task in (ROOKWORLD, ENGINE_MOVES)


def task_shard(
    recipe: TaskRecipe, engine: WorkerEngine | None, shard: Shard
) -> list[tuple[int, Example | None]]:
    """The example of each position; None for one that kills engines.

    Raises:
        Unavailable: the engine is away.
    """

    async def work(engines: Searcher | None) -> list[tuple[int, Example | None]]:
        examples: list[tuple[int, Example | None]] = []
        for number, position in shard:
            async with aclosing(_examples([position], recipe, engines)) as made:
                examples.append((number, await anext(made, None)))
        return examples

    return engine.run(work) if engine else asyncio.run(work(None))


async def _examples(
    positions: Iterable[Position], recipe: TaskRecipe, engines: Searcher | None
) -> AsyncGenerator[Example]:
    if recipe.task == NEXT_FEN:
        for example in next_fen(positions, seed=recipe.seed, form=recipe.form):
            yield example
    elif recipe.task == LEGAL_MOVES:
        for example in legal_moves(positions, form=recipe.form):
            yield example
    elif needs_engine(recipe.task) and engines is not None:
        async with aclosing(_judged(positions, recipe, engines)) as judged:
            async for example in judged:
                yield example
    else:
        raise InvalidInput(f"no examples of {recipe.task!r} can be made from positions")


async def _judged(
    positions: Iterable[Position], recipe: TaskRecipe, engines: Searcher
) -> AsyncGenerator[Example]:
    nodes, seed = recipe.nodes, recipe.seed
    if recipe.task == ENGINE_MOVES:
        style, targets = recipe.style, recipe.targets
        made = engine_moves(positions, engines, style=style, nodes=nodes, targets=targets, seed=seed)
        async with aclosing(made) as examples:
            async for example in examples:
                yield example
        return
    async with aclosing(
        labelled_lines(positions, engines, nodes=nodes, seed=seed, mix=recipe.mix)
    ) as labelled:
        async for position, line in labelled:
            yield rookworld_example(position, line, layout=recipe.layout)


def write_tasks(
    examples: Iterable[Example],
    folder: Folder,
    *,
    terms: Mapping[str, Any],
    jsonl: str | None = None,
    text: str | None = None,
) -> dict[str, Any]:
    """Writes the examples and the manifest, and returns the manifest.

    `jsonl` names a second file with the conversations and what they are about, `text` one with plain lines
    like RookWorld's own files.
    """
    by_task: Counter[str] = Counter()
    with ExitStack() as files:
        table = files.enter_context(record_writer(folder, PARQUET, EXAMPLES))
        chats = files.enter_context(jsonl_writer(folder, jsonl)) if jsonl else None
        plain = files.enter_context(folder.write(text)) if text else None
        for example in examples:
            by_task[example.task] += 1
            table.add(example)
            if chats:
                soft = {"alternatives": [asdict(part) for part in example.alternatives]}
                about = {"id": example.id, "task": example.task, "fen": example.fen, "move": example.move}
                chats.add({"messages": example.messages, **about} | (soft if example.alternatives else {}))
            if plain:
                plain.write(example.text.encode() + b"\n")
    written = [file.written for file in (table, chats, plain) if file]
    facts = {"examples": by_task.total(), "by_task": dict(sorted(by_task.items()))}
    return write_manifest(folder, EXAMPLES.name, written, terms=terms, facts=facts)

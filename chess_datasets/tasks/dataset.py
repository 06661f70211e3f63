"""Makes the examples of one task, and writes them as `tasks.parquet` and `manifest.json`."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from chess_datasets.jobs import WorkerEngine
from chess_datasets.positions.numbered import Shard
from chess_datasets.store.datasets import write_manifest
from chess_datasets.store.folders import Folder
from chess_datasets.store.jsonl import jsonl_writer
from chess_datasets.store.parquet import record_writer
from chess_datasets.tasks.board import BOARD, board_question
from chess_datasets.tasks.engine_moves import TARGETS, CandidateTargets, engine_moves
from chess_datasets.tasks.example import (
    ENGINE_MOVES,
    EXAMPLES,
    LEGAL_MOVES,
    NEXT_FEN,
    Example,
    legal_moves,
    next_fen,
    rookworld_example,
)
from chess_datasets.tasks.rookworld import MIX, RookworldMix, Searcher, labelled_line
from rookery.errors import InvalidInput
from rookery.prompt import Notation
from rookery.trace import Position

PARQUET = "tasks.parquet"

ROOKWORLD = "rookworld"
"""The task that mixes `P:` and `A:` lines."""


@dataclass(frozen=True, slots=True)
class TaskRecipe:
    """The settings that determine the examples, besides the positions.

    `layout` and `mix` apply to the task `rookworld`, `style` and `targets` to `engine-moves`, `nodes` to
    both. `form` applies to `board`, `legal-moves` and `next-fen`, `box`, the notation of moves in answers,
    to `board` and `engine-moves`.
    """

    task: str
    seed: int = 0
    form: str = "fen"
    nodes: int = 20_000
    layout: str = "published"
    mix: RookworldMix = MIX
    style: str = "fen"
    box: Notation = "uci"
    targets: CandidateTargets = TARGETS


def needs_engine(task: str) -> bool:
    """Whether an engine judges the moves of the task's examples."""
    return task in (ROOKWORLD, ENGINE_MOVES)


def task_shard(
    recipe: TaskRecipe, engine: WorkerEngine | None, shard: Shard
) -> list[tuple[int, Example | None]]:
    """The example of each position; None for one that kills engines. Raises `Unavailable` if the engine is
    away."""

    async def work(engines: Searcher | None) -> list[tuple[int, Example | None]]:
        return [(number, await _example(position, recipe, engines)) for number, position in shard]

    return engine.run(work) if engine else asyncio.run(work(None))


async def _example(position: Position, recipe: TaskRecipe, engines: Searcher | None) -> Example | None:
    nodes, seed = recipe.nodes, recipe.seed
    if recipe.task == NEXT_FEN:
        return next_fen(position, seed=seed, form=recipe.form)
    if recipe.task == BOARD:
        return board_question(position, seed=seed, form=recipe.form, notation=recipe.box)
    if recipe.task == LEGAL_MOVES:
        return legal_moves(position, form=recipe.form)
    if recipe.task == ENGINE_MOVES and engines:
        return await engine_moves(
            position,
            engines,
            style=recipe.style,
            nodes=nodes,
            targets=recipe.targets,
            seed=seed,
            box=recipe.box,
        )
    if recipe.task == ROOKWORLD and engines:
        line = await labelled_line(position, engines, nodes=nodes, seed=seed, mix=recipe.mix)
        return None if line is None else rookworld_example(position, line, layout=recipe.layout)
    raise InvalidInput(f"no examples of {recipe.task!r} can be made from positions")


def write_tasks(
    examples: Iterable[Example],
    folder: Folder,
    *,
    terms: Mapping[str, Any],
    jsonl: str | None = None,
    text: str | None = None,
) -> dict[str, Any]:
    """Writes the examples and the manifest, and returns the manifest. `jsonl` names a second file with the
    conversations and what they are about, `text` one with plain lines like RookWorld's own files."""
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

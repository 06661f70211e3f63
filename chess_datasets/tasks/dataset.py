"""Makes the examples of one task, and writes them as `tasks.parquet` and `manifest.json`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from chess_datasets.jobs import Searcher
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
from chess_datasets.tasks.rookworld import MIX, RookworldMix, labelled_line
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

    async def example(self, position: Position, engines: Searcher | None) -> Example | None:
        """The example of a position; None for one that kills engines. Raises `Unavailable` if the engines are
        away; `InvalidInput` if the task needs other things than positions."""
        nodes, seed, box = self.nodes, self.seed, self.box
        if self.task == NEXT_FEN:
            return next_fen(position, seed=seed, form=self.form)
        if self.task == BOARD:
            return board_question(position, seed=seed, form=self.form, notation=box)
        if self.task == LEGAL_MOVES:
            return legal_moves(position, form=self.form)
        if self.task == ENGINE_MOVES and engines:
            return await engine_moves(
                position, engines, style=self.style, nodes=nodes, targets=self.targets, seed=seed, box=box
            )
        if self.task == ROOKWORLD and engines:
            line = await labelled_line(position, engines, nodes=nodes, seed=seed, mix=self.mix)
            return None if line is None else rookworld_example(position, line, layout=self.layout)
        raise InvalidInput(f"no examples of {self.task!r} can be made from positions")


def needs_engine(task: str) -> bool:
    """Whether an engine judges the moves of the task's examples."""
    return task in (ROOKWORLD, ENGINE_MOVES)


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

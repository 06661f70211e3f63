"""`rookery data tasks`: writes questions with their answers. Can be stopped and continued."""

import sys
from collections import Counter
from dataclasses import asdict
from itertools import chain
from typing import Any

from chess_datasets.commands.engines import made_parts
from chess_datasets.commands.positions import report_exams
from chess_datasets.commands.settings.positions import TasksSettings
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.store.files import identify
from chess_datasets.store.folders import open_folder
from chess_datasets.tasks.dataset import TaskRecipe, needs_engine, write_tasks
from chess_datasets.tasks.engine_moves import CandidateTargets
from chess_datasets.tasks.example import ENGINE_MOVES, EXAMPLES, PUZZLE
from chess_datasets.tasks.puzzles import (
    PuzzleCounts,
    PuzzleFilter,
    puzzle_examples,
    read_puzzles,
    select_puzzles,
)
from chess_datasets.tasks.rookworld import RookworldMix
from rookery.masking import mask_setting, printable


def tasks(settings: TasksSettings) -> int:
    """Runs the command and returns the exit status."""
    manifest = _puzzles(settings) if settings.task == PUZZLE else _from_positions(settings)
    sys.stderr.write(f"{manifest['examples']} examples: {manifest['by_task']}\n")
    count = manifest["terms"].get("puzzles", {}).get("chosen", manifest["examples"])
    if count < settings.count:
        sys.stderr.write(f"{settings.count} were asked for; there are only {count}\n")
    return 0


def _from_positions(settings: TasksSettings) -> dict[str, Any]:
    mix = RookworldMix(settings.state_share, settings.illegal_share, settings.ending_share)
    targets = settings.recipe(
        CandidateTargets, best=settings.best_share, uniform=settings.uniform_share, mate=settings.mate_bonus
    )
    box = settings.engine_box if settings.task == ENGINE_MOVES else settings.box or "uci"
    recipe = settings.recipe(TaskRecipe, form=settings.format, mix=mix, targets=targets, box=box)
    with made_parts(
        settings,
        EXAMPLES,
        recipe.example,
        stage=settings.task,
        terms={"recipe": asdict(recipe)},
        has_engine=needs_engine(settings.task),
    ) as (parts, terms):
        examples = chain.from_iterable(map(parts.read, sorted(parts.done)))
        return write_tasks(examples, parts.folder, terms=terms, jsonl=settings.jsonl, text=settings.text)


def _puzzles(settings: TasksSettings) -> dict[str, Any]:
    themes, without = frozenset(settings.themes), frozenset(settings.without)
    puzzle_filter = settings.recipe(PuzzleFilter, themes=themes, without=without)
    counts = PuzzleCounts()
    excluded, exams = read_evaluation_files(settings.exam)
    puzzles = read_puzzles(
        settings.puzzles, wanted=puzzle_filter, excluded=excluded if exams else None, counts=counts
    )
    chosen = select_puzzles(
        puzzles,
        count=settings.count,
        seed=settings.seed,
        themes=settings.themes if settings.balance_themes else None,
    )
    by_theme = Counter(theme for puzzle in chosen for theme in puzzle.themes)
    source = identify(settings.puzzles)
    terms = {
        "puzzles": {"size": source.size, "sha256": source.sha256, "rows": counts.rows, "chosen": len(chosen)},
        "wanted": {
            name: sorted(v) if isinstance(v, frozenset) else v for name, v in asdict(puzzle_filter).items()
        },
        "count": settings.count,
        "seed": settings.seed,
        "style": settings.style,
        "box": settings.box or "san",
        "balance_themes": settings.balance_themes,
        "exams": [exam.summary for exam in exams],
        "in_exams": counts.in_exams,
        "skipped": dict(sorted(counts.skipped.items())),
        "dropped": dict(sorted(counts.dropped.items())),
        "by_theme": dict(by_theme.most_common()),
    }
    if exams:
        report_exams(counts.in_exams)
    name = mask_setting(settings.puzzles)
    sys.stderr.writelines(f"{name}: {kind} dropped: {n}\n" for kind, n in sorted(counts.dropped.items()))
    sys.stderr.writelines(printable(f"  skipped {name} {line}\n") for line in counts.first)
    return write_tasks(
        puzzle_examples(chosen, style=settings.style, box=settings.box or "san"),
        open_folder(settings.out),
        terms=terms,
        jsonl=settings.jsonl,
        text=settings.text,
    )

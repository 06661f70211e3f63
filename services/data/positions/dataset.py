"""Writes a set of positions and its manifest to disk or a bucket.

The same files, recipe, exams and versions give the same bytes. The number of processes, the order of the
games and their compression do not matter.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rookery.errors import InvalidInput
from rookery.trace import Phase, Position
from services.data.pgn import native
from services.data.pgn.sources import find_sources, skipped_facts, sources_terms
from services.data.positions.distinct import read_evaluation_files
from services.data.positions.recipe import PositionRecipe
from services.data.positions.sampling import PositionSampler
from services.data.store.datasets import write_manifest
from services.data.store.folders import Folder, WrittenFile, open_folder
from services.data.store.jsonl import write_jsonl
from services.data.store.parquet import Kind, write_records

POSITIONS = Kind("positions", Position)


def position_value(position: Position) -> dict[str, Any]:
    """A position as data sets and the service show it, without the task that a run assigns to it."""
    value = asdict(position)
    del value["task"], value["move"], value["target"]
    return value


def write_positions(
    sources: Sequence[str | Path],
    out: str | Path,
    recipe: PositionRecipe,
    *,
    exams: Sequence[str] = (),
    form: str = "parquet",
    jobs: int = 1,
) -> dict[str, Any]:
    """Writes `positions.parquet` (or `.jsonl`, `.jsonl.zst`) and `manifest.json`. Returns the manifest.

    `sources` may be files, folders, patterns, URLs and `-`. Positions that occur in a file of `exams` are
    left out.

    Raises:
        SetupError: a file cannot be read, or the games have no suitable position.
        InvalidInput: an exam has no positions, or the form is unknown.
    """
    if form not in FORMS:
        raise InvalidInput(f"form {form!r}: choose from {', '.join(FORMS)}")
    locations = find_sources(sources)
    excluded, read = read_evaluation_files(exams)
    with PositionSampler(locations, recipe, excluded) as drawing:
        drawing.run(jobs=jobs)
        folder = open_folder(out)
        written = FORMS[form](folder, f"positions.{form}", drawing.positions())
    terms = {
        "sources": sources_terms(drawing.sources),
        "exams": [exam.summary for exam in read],
        "recipe": json.loads(json.dumps(asdict(recipe))),
        "parser": native.name(),
    }
    return write_manifest(folder, POSITIONS.name, [written], terms=terms, facts=_facts(drawing))


def _write_table(folder: Folder, name: str, positions: Iterable[Position]) -> WrittenFile:
    return write_records(folder, name, POSITIONS, positions)


def _write_lines(folder: Folder, name: str, positions: Iterable[Position]) -> WrittenFile:
    return write_jsonl(folder, name, map(position_value, positions))


FORMS = MappingProxyType({"parquet": _write_table, "jsonl": _write_lines, "jsonl.zst": _write_lines})
"""The file formats, by extension."""


def _facts(drawing: PositionSampler) -> dict[str, Any]:
    found, counts = drawing.found, drawing.counts
    looked_at = found.sound + found.rejected.total() + found.skipped.total()
    return {
        "games": {
            "seen": found.games,
            "not_looked_at": found.games - looked_at,
            "rejected": dict(sorted(found.rejected.items())),
            "read": found.sound,
        },
        "skipped": skipped_facts(found.skipped, found.named),
        "candidates": counts["candidates"],
        "in_exams": counts["in_exams"],
        "positions": sum(counts[phase] for phase in Phase),
        "by_phase": {phase.value: counts[phase] for phase in Phase},
    }

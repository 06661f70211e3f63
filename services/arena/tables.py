"""The result of a section of an evaluation: tables of metrics, by player, with differences from the first.

`report.json` and the page are both made from these tables, so they never disagree.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from services.arena.stats import Bootstrap, Estimate, Ratio
from services.arena.wording import Metric


@dataclass(frozen=True, slots=True)
class Cell:
    """The estimate of one player. `difference` is from the first player; None for that one and references."""

    estimate: Estimate
    difference: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of all players, by their names. A player without the metric has no cell."""

    metric: Metric
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title. `name` is the key in report.json."""

    name: str
    title: str
    rows: Sequence[Row]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report. `facts` are further values of report.json, which the page does not show."""

    name: str
    title: str
    note: str
    tables: Sequence[Table]
    facts: Mapping[str, Any] = field(default_factory=dict)


def compared(
    measured: Iterable[tuple[Metric, Mapping[str, Ratio]]], *, players: Sequence[str], seed: int
) -> list[Row]:
    """Rows with intervals. The first of `players` is the baseline of the others; all else are references."""
    rows = list(measured)
    ratios = {(row, name): ratio for row, (_, by_name) in enumerate(rows) for name, ratio in by_name.items()}
    if not ratios:
        return []
    bootstrap, baseline = Bootstrap(ratios, seed=seed), players[0]

    def cell(row: int, name: str) -> Cell:
        compares = name in players[1:] and (row, baseline) in ratios
        difference = bootstrap.difference((row, name), (row, baseline)) if compares else None
        return Cell(bootstrap.estimate((row, name)), difference)

    return [
        Row(metric, {name: cell(i, name) for name in by_name}) for i, (metric, by_name) in enumerate(rows)
    ]


def section_json(section: Section) -> dict[str, Any]:
    """The section's part of report.json: tables by name, metrics by name, then players by name."""
    return {
        **{
            table.name: {
                row.metric.name: {name: _cell_json(cell) for name, cell in row.cells.items()}
                for row in table.rows
            }
            for table in section.tables
        },
        **section.facts,
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    difference = {} if cell.difference is None else {"difference": estimate_json(cell.difference)}
    return {**estimate_json(cell.estimate), **difference}


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """`mean` and `ci95`; an infinite bound is None."""
    bounds = estimate.ci95 and [None if math.isinf(bound) else bound for bound in estimate.ci95]
    return {"mean": estimate.mean, "ci95": bounds}

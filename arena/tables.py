"""The result of a section of an evaluation: tables of metrics, by player, with differences from the first.

`report.json`, the page and the terminal all show these tables, so they never disagree.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from arena.stats import Bootstrap, Estimate, Ratio


@dataclass(frozen=True, slots=True)
class Metric:
    """What a row of a table measures: its key in report.json, its title, and how its values are read."""

    name: str
    title: str
    explanation: str = ""
    unit: Literal["share", "number", "count", "whole"] = "share"
    better: Literal["higher", "lower", "neither"] = "higher"
    signed: bool = False
    """Whether it is a change, which has a sign."""


METRICS: Mapping[str, Mapping[str, Metric]] = {
    section: {name: Metric(name, **values) for name, values in metrics.items()}
    for section, metrics in tomllib.loads(Path(__file__).with_name("metrics.toml").read_text()).items()
}
"""The metrics of metrics.toml, by section and name."""


def figure(metric: Metric, value: float | None, *, signed: bool = False) -> str:
    """The value as text, in the metric's unit; `-` for None.

    >>> legal, reward = Metric("legal_rate", "Legal"), Metric("reward", "Reward", unit="number")
    >>> figure(legal, 0.875), figure(legal, 0.25, signed=True), figure(reward, None)
    ('87.5%', '+25.0 pts', '-')
    >>> figure(reward, -0.25), figure(reward, 0.25, signed=True)
    ('-0.250', '+0.250')
    """
    if value is None:
        return "-"
    signed = signed or metric.signed
    unit = (" pts" if signed else "%") if metric.unit == "share" else ""
    return _number(metric, value, signed=signed) + unit


def interval(metric: Metric, estimate: Estimate, *, signed: bool = False) -> str:
    """The interval in brackets, one bound if the other is infinite, or `no interval`; nothing for a count.

    >>> interval(Metric("legal_rate", "Legal"), Estimate(0.5, (0.45, 0.55)))
    '[45.0, 55.0]'
    >>> interval(Metric("rating", "Rating", unit="whole"), Estimate(None, (-math.inf, 812.4)))
    'below 812'
    """
    if estimate.ci95 is None:
        return "no interval" if metric.unit in ("share", "number") else ""
    low, high = (_number(metric, bound, signed=signed or metric.signed) for bound in estimate.ci95)
    if math.isinf(estimate.ci95[0]):
        return f"below {high}"
    return f"above {low}" if math.isinf(estimate.ci95[1]) else f"[{low}, {high}]"


_SCALES = {"share": (100, 1), "number": (1, 3), "count": (1, 1), "whole": (1, 0)}


def _number(metric: Metric, value: float, *, signed: bool) -> str:
    scale, digits = _SCALES[metric.unit]
    # "z" prints a negative value that rounds to zero without its minus.
    return f"{scale * value:{'+' if signed else ''}z.{digits}f}"


def change(metric: Metric, difference: Estimate) -> str:
    """A difference with its interval, as text; of a one-sided bound, the bound."""
    bounds = interval(metric, difference, signed=True)
    return bounds if difference.mean is None else f"{figure(metric, difference.mean, signed=True)} {bounds}"


def judgement(metric: Metric, difference: Estimate) -> str:
    """`better` or `worse` if the interval of the difference lies on one side of zero, else `unclear`."""
    ci95 = difference.ci95
    if metric.better == "neither" or ci95 is None or ci95[0] <= 0 <= ci95[1]:
        return "unclear"
    return "better" if (ci95[0] > 0) == (metric.better == "higher") else "worse"


@dataclass(frozen=True, slots=True)
class Cell:
    """The estimate of one player. `difference` is from the first player; None for that one and references."""

    estimate: Estimate
    difference: Estimate | None = None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of all players, by their names. A player without the metric has no cell."""

    metric: Metric
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a title. `name` is the key in report.json."""

    name: str
    title: str
    rows: Sequence[MetricRow]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report. `facts` are further values of report.json, which the page does not show."""

    name: str
    title: str
    note: str
    tables: Sequence[Table]
    facts: Mapping[str, Any] = field(default_factory=dict)


Measured = Sequence[tuple[Metric, Mapping[str, Ratio]]]
"""The rows of a table, with a ratio for each player."""


def compared(measured: Measured, *, players: Sequence[str], seed: int) -> list[MetricRow]:
    """Rows with intervals. The first of `players` is the baseline of the others; all else are references. A
    player without an answer that counts has no cell, and a metric without cells is left out."""
    counted = [(metric, {n: r for n, r in by_name.items() if r.counts.any()}) for metric, by_name in measured]
    rows = [row for row in counted if row[1]]
    ratios = {(row, name): ratio for row, (_, by_name) in enumerate(rows) for name, ratio in by_name.items()}
    if not ratios:
        return []
    bootstrap, baseline = Bootstrap(ratios, seed=seed), players[0]

    def cell(row: int, name: str) -> Cell:
        compares, share = name in players[1:] and (row, baseline) in ratios, rows[row][0].unit == "share"
        difference = bootstrap.difference((row, name), (row, baseline), share=share) if compares else None
        return Cell(bootstrap.estimate((row, name), share=share), difference)

    return [
        MetricRow(metric, {name: cell(i, name) for name in by_name})
        for i, (metric, by_name) in enumerate(rows)
    ]


def by_part(measured: Measured, masks: Mapping[str, Sequence[bool]], *, what: str) -> Measured:
    """The rows of each part: of the positions in its mask alone. `what` is what a position is called."""
    return [
        (
            replace(metric, name=f"{part}/{metric.name}", explanation=f"{sum(mask):,} {what}",
                    title=f"{part[0].upper()}{part[1:]}: {metric.title}"),
            {player: ratio.within(mask) for player, ratio in by_name.items()},
        )
        for part, mask in masks.items()
        for metric, by_name in measured
    ]  # fmt: skip


_HEADLINES = frozenset(
    {
        "legal_rate", "legal_rate_greedy", "action_accuracy_greedy", "regret_legal_greedy",
        "regret_both_legal", "solved", "right",
    }
)  # fmt: skip
"""The metrics that decide who is better."""


AGAINST = "against/"
"""What the names of sections begin with that repeat figures of others beside those of elsewhere."""


def summary(sections: Sequence[Section], *, players: Sequence[str]) -> list[str]:
    """A line for each player but the first: in what it is surely better or worse than the first, and by how
    much. Then for each player what surely changes if it is asked otherwise, and a line for each pair that has
    played. With more than two players, the first line says which are better."""
    ours = [section for section in sections if section.tables and not section.name.startswith(AGAINST)]
    first = [(section, row) for section in ours for row in section.tables[0].rows]
    lines = []
    judged: dict[str, list[str]] = {}
    for name in players[1:]:
        words: dict[str, list[str]] = {"better": [], "worse": [], "unclear": []}
        for section, row in first:
            cell, metric = row.cells.get(name), row.metric
            if metric.name.rpartition("/")[2] in _HEADLINES and cell and cell.difference:
                text = f"{section.title}: {metric.title} {change(metric, cell.difference)}"
                words[judgement(metric, cell.difference)].append(text)
        parts = [f"{kind} in {'; '.join(words[kind])}" for kind in ("better", "worse") if words[kind]]
        sure = " and ".join(kind for kind in ("better", "worse") if words[kind]) or "no sure difference"
        judged.setdefault(sure, []).append(name)
        parts += [f"{len(words['unclear'])} other differences may be chance"] * bool(words["unclear"])
        lines.append(f"{name} against {players[0]}: {'. '.join(parts) or 'nothing compares them'}.")
    if len(players) > 2:
        order = ("better", "better and worse", "no sure difference", "worse")
        said = "; ".join(f"{sure}: {', '.join(judged[sure])}" for sure in order if sure in judged)
        lines.insert(0, f"Against {players[0]}, by 95% intervals: {said}.")
    for name in players:
        changes = [
            f"{row.metric.title} {change(row.metric, cell.estimate)}"
            for _, row in first
            if row.metric.signed and (cell := row.cells.get(name))
            and judgement(row.metric, cell.estimate) != "unclear"
        ]  # fmt: skip
        lines += [f"{name}, asked otherwise: {'; '.join(changes)}."] if changes else []
    rows = [(section.title, row) for section in ours for table in section.tables for row in table.rows]
    for title, row in rows:
        if row.metric.name == "elo":
            lines += [
                f"{title}: {pair}: Elo {change(row.metric, cell.estimate)}."
                for pair, cell in row.cells.items()
                if cell.estimate.ci95
            ]
    return lines


def section_json(section: Section) -> dict[str, Any]:
    """The section's part of report.json: tables by name, metrics by name, then players by name."""
    return {
        **{
            table.name: {
                row.metric.name: {
                    name: {
                        **estimate_json(cell.estimate),
                        **({"difference": estimate_json(cell.difference)} if cell.difference else {}),
                    }
                    for name, cell in row.cells.items()
                }
                for row in table.rows
            }
            for table in section.tables
        },
        **section.facts,
    }


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """`mean` and `ci95`; an infinite bound is None."""
    bounds = estimate.ci95 and [None if math.isinf(bound) else bound for bound in estimate.ci95]
    return {"mean": estimate.mean, "ci95": bounds}


_PLAYER_CHARS, _REFERENCE_CHARS = 26, 18
_COLOURS = {"better": "green", "worse": "red", "unclear": "dim"}


def terminal_table(section: Section, *, players: Sequence[str], width: int) -> RichTable:
    """The section's first table: the players, then references if they fit into `width` characters."""
    table = RichTable(
        title=f"{section.title}: {section.tables[0].title}, 95% intervals",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    rows = section.tables[0].rows
    columns = {name for row in rows for name in row.cells}
    players = [name for name in players if name in columns] or sorted(columns)
    for name in players:
        table.add_column(name, justify="right")
    references = list(dict.fromkeys(name for row in rows for name in row.cells if name not in players))
    if width < _PLAYER_CHARS * (len(players) + 1) + _REFERENCE_CHARS * len(references):
        references = []
    for name in references:
        table.add_column(name, justify="right", style="dim")
    for row in rows:
        means = [
            figure(row.metric, row.cells[n].estimate.mean) if n in row.cells else "-" for n in references
        ]
        table.add_row(row.metric.title, *(_words(row, row.cells.get(name)) for name in players), *means)
    return table


def _words(row: MetricRow, cell: Cell | None) -> Text:
    if cell is None:
        return Text("-", "dim")
    metric, difference = row.metric, cell.difference
    text = Text.assemble(figure(metric, cell.estimate.mean), " ", (interval(metric, cell.estimate), "dim"))
    if difference is not None:
        text.append(f"\n{change(metric, difference)}", _COLOURS[judgement(metric, difference)])
    return text

"""Renders the evaluation as one self-contained HTML page, without scripts or network, in light and dark.

The layout is in page.html. Every text from a model, a file or a flag is escaped here or in `examples`.
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from rookery.plots.picture import Theme
from services.arena.answers import Answers
from services.arena.examples import render_examples
from services.arena.stats import Estimate
from services.arena.tables import Cell, Row, Section, Table
from services.arena.wording import Metric, figure, interval, judgement

_WHISKERS_PX = 140
_INTRODUCTION = (
    "Brackets are 95% intervals. A second line is the difference from the first player, paired on the same "
    "questions: green if it is better, red if it is worse, grey if it may be chance."
)


def render_page(
    sections: Sequence[Section],
    answers: Mapping[str, Sequence[Answers]],
    report: Mapping[str, Any],
    curves: Mapping[Theme, bytes],
) -> str:
    """The page of an evaluation.

    `answers` are those to the positions, by player and reference; some are shown. `report` is the content of
    report.json, `curves` has PNGs by theme.
    """
    players = list(report["players"])
    parts = [_section(section, players) for section in sections]
    if curves:
        parts.append(f'<h2>Learning curve</h2><div class="card">{_curve(curves)}</div>')
    if answers:
        parts.append(render_examples({name: answers[name] for name in players}))
    return Template(files(__package__).joinpath("page.html").read_text()).substitute(
        title=escape(" and ".join(players)),
        introduction=_INTRODUCTION,
        parts="\n".join(parts),
        settings="".join(_settings(report)),
    )


def _section(section: Section, players: Sequence[str]) -> str:
    tables = "".join(_table(table, players) for table in section.tables)
    return f'<h2>{escape(section.title)}</h2><p class="soft">{escape(section.note)}</p>{tables}'


def _table(table: Table, players: Sequence[str]) -> str:
    """A table with a column for each player, then for each reference."""
    known = dict.fromkeys(name for row in table.rows for name in row.cells)
    names = sorted(known, key=lambda name: name not in players)
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = "".join(_row(row, names, players) for row in table.rows)
    note = f'<p class="soft">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>{note}<div class="card"><table>'
        f"<thead><tr><th></th>{heads}<th></th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(row: Row, names: Sequence[str], players: Sequence[str]) -> str:
    metric = row.metric
    small = f"<small>{escape(metric.explanation)}</small>" if metric.explanation else ""
    cells = "".join(
        f"<td{'' if name in players else ' class=soft'}>{_cell(metric, row.cells.get(name))}</td>"
        for name in names
    )
    whiskers = _whiskers([row.cells[name].estimate for name in players if name in row.cells])
    return f'<tr><td class="name">{escape(metric.title)}{small}</td>{cells}<td>{whiskers}</td></tr>'


def _cell(metric: Metric, cell: Cell | None) -> str:
    if cell is None:
        return "-"
    text = f'{figure(metric, cell.estimate.mean)} <span class="ci">{interval(metric, cell.estimate)}</span>'
    if cell.difference is None:
        return text
    difference = cell.difference
    words = f"{figure(metric, difference.mean, signed=True)} {interval(metric, difference, signed=True)}"
    return f'{text}<br><span class="ci {judgement(metric, difference)}">{words}</span>'


def _whiskers(estimates: Sequence[Estimate]) -> str:
    """An SVG of the intervals on one axis, the first player's on top; empty if there are fewer than two."""
    drawn = [
        (place, e.mean, e.ci95)
        for place, e in enumerate(estimates)
        if e.mean is not None and e.ci95 and all(map(math.isfinite, e.ci95))
    ]
    if len(drawn) < 2:
        return ""
    low = min(ci[0] for _, _, ci in drawn)
    span = max(ci[1] for _, _, ci in drawn) - low or 1.0
    marks = []
    for place, mean, ci in drawn:
        x0, x, x1 = (6 + (_WHISKERS_PX - 12) * (value - low) / span for value in (ci[0], mean, ci[1]))
        y = 9 + 14 * place
        marks.append(
            f'<g class="{"before" if place == 0 else "after"}" stroke="currentColor" fill="currentColor">'
            f'<line x1="{x0:.1f}" x2="{x1:.1f}" y1="{y}" y2="{y}" stroke-width="2" stroke-linecap="round"/>'
            f'<circle cx="{x:.1f}" cy="{y}" r="3.4"/></g>'
        )
    size = f'width="{_WHISKERS_PX}" height="{14 * len(estimates) + 4}"'
    return f'<svg {size} role="img" aria-label="intervals">{"".join(marks)}</svg>'


def _curve(curves: Mapping[Theme, bytes]) -> str:
    light, dark = (
        f"data:image/png;base64,{base64.b64encode(curves[theme]).decode()}" for theme in ("light", "dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img class="curve" src="{light}" alt="Training statistics by step"></picture>'
    )


def _settings(report: Mapping[str, Any]) -> Iterable[str]:
    for name in (
        "players",
        "positions",
        "settings",
        "interval",
        "reward_version",
        "engine",
        "versions",
    ):
        yield f"<dt>{escape(name.replace('_', ' '))}</dt><dd>{escape(_plain(report[name]))}</dd>"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "unknown" if value is None else str(value)

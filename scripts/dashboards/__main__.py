"""`python -m scripts.dashboards` writes deploy/grafana/dashboards/*.json from the tables beside this file.

In a table, `[ROW.PANEL]` is a graph over time, or with `number` the last value in large type. Its queries are
expressions of PromQL, each with the legend that names its series, with labels as `{{label}}`.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphGradientMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
)

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards"

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
"""As deploy/grafana/provisioning names it."""

WIDTH, HEIGHT, STAT_WIDTH, STAT_HEIGHT = 8, 8, 4, 4
"""In Grafana's grid, which is 24 wide."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or a number. A query is an expression and its legend."""

    title: str
    unit: str
    description: str
    queries: tuple[tuple[str, str], ...]
    number: bool = False
    stacked: bool = False
    red_from: float | None = None
    """The value from which on a number is red; it is green below."""


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: rows of panels, with their titles."""

    name: str
    description: str
    rows: Sequence[tuple[str, Sequence[Panel]]]


def read_board(path: Path) -> Board:
    """The dashboard of a table."""
    table: dict[str, Any] = tomllib.loads(path.read_text())
    description = table.pop("description")
    for panel in (panel for panels in table.values() for panel in panels.values()):
        panel["queries"] = tuple(panel["queries"].items())
    rows = [
        (row, [Panel(title, **panel) for title, panel in panels.items()]) for row, panels in table.items()
    ]
    return Board(path.stem, description, rows)


BOARDS = [read_board(path) for path in sorted(Path(__file__).parent.glob("*.toml"))]


def texts() -> dict[Path, str]:
    """What each file should hold."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {FOLDER / f"{board.name}.json": encoder.encode(build(board).build()) + "\n" for board in BOARDS}


def build(board: Board) -> dashboard.Dashboard:
    """Grafana's dashboard."""
    built = (
        dashboard.Dashboard(f"Rookery / {board.name.capitalize()}")
        .uid(f"rookery-{board.name}")
        .description(board.description)
        .tags(["rookery"])
        .editable()
        .refresh("10s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("Rookery")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["rookery"])
            .as_dropdown(False)
            .keep_time(True)
        )
    )
    y, ids = 0, count(1)
    for title, panels in board.rows:
        built.with_row(dashboard.Row(title).id(next(ids)).grid_pos(GridPos(h=1, w=24, x=0, y=y)))
        y += 1
        x = 0
        for spec in panels:
            width, height = (STAT_WIDTH, STAT_HEIGHT) if spec.number else (WIDTH, HEIGHT)
            if x + width > 24:
                x, y = 0, y + height
            graph = _graph(spec).id(next(ids))
            built.with_panel(graph.grid_pos(GridPos(h=height, w=width, x=x, y=y)))
            x += width
        y += height
    return built


def _graph(spec: Panel) -> stat.Panel | timeseries.Panel:
    last = common.ReduceDataOptions().calcs(["lastNotNull"])
    graph = stat.Panel().reduce_options(last) if spec.number else _lines(stacked=spec.stacked)
    if spec.red_from is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=spec.red_from, color="red")]
        graph.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    graph.title(spec.title).description(spec.description).unit(spec.unit).datasource(SOURCE)
    for letter, (expression, legend) in zip("ABCDEFGH", spec.queries, strict=False):
        graph.with_target(
            prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(expression).legend_format(legend)
        )
    return graph


def _lines(*, stacked: bool) -> timeseries.Panel:
    graph = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(40 if stacked else 8)
        .gradient_mode(GraphGradientMode.NONE)
        .legend(
            common.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "mean"])
        )
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if stacked:
        graph.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return graph


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)

"""`python -m scripts.dashboards` writes deploy/grafana/dashboards/*.json from the tables beside this file.

In a table, `[ROW.PANEL]` is a graph over time; with `kind`, the last value in large type (`number`) or the
list of alerts that fire (`alerts`). Its queries are expressions of PromQL, each with the legend that names
its series, with labels as `{{label}}`. Every metric in them is limited to the chosen runs.
"""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    GraphGradientMode,
    GraphThresholdsStyleMode,
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
    VariableOption,
    VariableRefresh,
    VariableSort,
)

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards"

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
"""As deploy/grafana/provisioning names it."""

OF_RUN = 'run=~"$run|"'
"""Of the chosen runs, or without that label: an alert about an absent service has none."""

_SELECTOR = re.compile(r"\b(rookery_\w+|vllm:\w+|up|ALERTS)\b(?:\{(.*?)\})?")

ALERTS = {
    "datasource": "Prometheus",
    "alertInstanceLabelFilter": f"{{{OF_RUN}}}",
    "viewMode": "list",
    "groupMode": "default",
    "sortOrder": 3,  # by importance
    "maxItems": 20,
    "dashboardAlerts": False,
    "showInactiveAlerts": False,
    "stateFilter": {"firing": True, "pending": True, "error": True, "noData": False, "normal": False},
}
"""Options of the panel that lists alerts, which the SDK lacks."""

WIDTH, HEIGHT, STAT_WIDTH, STAT_HEIGHT = 8, 8, 4, 4
"""In Grafana's grid, which is 24 wide."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, a number or the list of alerts. A query is an expression and its legend."""

    title: str
    description: str
    unit: str = "none"
    queries: tuple[tuple[str, str], ...] = ()
    kind: Literal["graph", "number", "alerts"] = "graph"
    stacked: bool = False
    red_from: float | None = None
    """The value from which on a number is red, and green below; a red line in a graph."""


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
        queries = panel.get("queries", {}).items()
        panel["queries"] = tuple((of_chosen_run(expression), legend) for expression, legend in queries)
    rows = [
        (row, [Panel(title, **panel) for title, panel in panels.items()]) for row, panels in table.items()
    ]
    return Board(path.stem, description, rows)


def of_chosen_run(expression: str) -> str:
    """An expression of PromQL, limited to the chosen runs.

    >>> of_chosen_run('sum(rate(rookery_a_total{job="b"}[5m])) / count(up)')
    'sum(rate(rookery_a_total{job="b", run=~"$run|"}[5m])) / count(up{run=~"$run|"})'
    """
    return _SELECTOR.sub(
        lambda match: f"{match[1]}{{{', '.join(filter(None, (match[2], OF_RUN)))}}}", expression
    )


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
        .with_variable(
            dashboard.QueryVariable("run")
            .label("Run")
            .datasource(SOURCE)
            .query("label_values(up, run)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_DESC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(VariableOption(text=["All"], value=["$__all"]))
        )
        .link(
            dashboard.DashboardLink("Rookery")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["rookery"])
            .as_dropdown(False)
            .keep_time(True)
            .include_vars(True)
        )
    )
    y, ids = 0, count(1)
    for title, panels in board.rows:
        built.with_row(dashboard.Row(title).id(next(ids)).grid_pos(GridPos(h=1, w=24, x=0, y=y)))
        y += 1
        x = 0
        for spec in panels:
            width, height = (STAT_WIDTH, STAT_HEIGHT) if spec.kind == "number" else (WIDTH, HEIGHT)
            if x + width > 24:
                x, y = 0, y + height
            graph = _graph(spec).id(next(ids))
            built.with_panel(graph.grid_pos(GridPos(h=height, w=width, x=x, y=y)))
            x += width
        y += height
    return built


def _graph(spec: Panel) -> dashboard.Panel | stat.Panel | timeseries.Panel:
    if spec.kind == "alerts":
        return (
            dashboard.Panel()
            .type("alertlist")
            .title(spec.title)
            .description(spec.description)
            .options(ALERTS)
        )
    graph = (
        stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        if spec.kind == "number"
        else _lines(stacked=spec.stacked, red_line=spec.red_from is not None)
    )
    if spec.red_from is not None:
        steps = [Threshold(value=None, color="green"), Threshold(value=spec.red_from, color="red")]
        graph.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    graph.title(spec.title).description(spec.description).unit(spec.unit).datasource(SOURCE)
    for letter, (expression, legend) in zip(ascii_uppercase[: len(spec.queries)], spec.queries, strict=True):
        graph.with_target(
            prometheus.Dataquery().ref_id(letter).datasource(SOURCE).expr(expression).legend_format(legend)
        )
    return graph


def _lines(*, stacked: bool, red_line: bool) -> timeseries.Panel:
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
    if red_line:
        graph.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    if stacked:
        graph.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return graph


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)

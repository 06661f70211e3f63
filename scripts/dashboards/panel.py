"""What a dashboard is made of here, and how it becomes Grafana's."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
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
)

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
"""As deploy/grafana/provisioning names it."""

WINDOW = "$__rate_interval"

WIDTH, HEIGHT, STAT_WIDTH, STAT_HEIGHT = 8, 8, 4, 4
"""In Grafana's grid, which is 24 wide."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph over time, or with `number` the last value in large type.

    A query is a PromQL expression and a legend, which names its series, with labels as `{{label}}`.
    """

    title: str
    unit: str
    description: str
    queries: tuple[tuple[str, str], ...]
    number: bool = False
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard: rows of panels."""

    name: str
    description: str
    rows: Sequence[tuple[str, Sequence[Panel]]]


def panel(
    title: str,
    unit: str,
    description: str,
    /,
    *queries: tuple[str, str],
    number: bool = False,
    stacked: bool = False,
) -> Panel:
    """A panel of queries, each an expression and its legend."""
    return Panel(title, unit, description, queries, number, stacked)


def row(title: str, *panels: Panel) -> tuple[str, tuple[Panel, ...]]:
    """Panels under a title."""
    return title, panels


def rate(metric: str, selector: str, *, by: str = "") -> str:
    """Sum of the rates of a counter."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{{{selector}}}[{WINDOW}]))"


def mean(histogram: str, selector: str, *, by: str = "") -> str:
    """Mean of what a histogram observed; no point where it observed nothing."""
    count = rate(f"{histogram}_count", selector, by=by)
    return f"{rate(f'{histogram}_sum', selector, by=by)} / ({count} > 0)"


def quantile(q: float, histogram: str, selector: str, *, by: str = "") -> str:
    """A quantile of what a histogram observed."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, {rate(f'{histogram}_bucket', selector, by=labels)})"


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

"""The dashboards say what they show, show all there is of a run, never a version, and fit its schema."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from rookery import metrics
from scripts.dashboards.__main__ import BOARDS, FOLDER, Board, Panel, _graph, texts

PANELS = [
    pytest.param(board, panel, id=f"{board.name}-{panel.title}")
    for board in BOARDS
    for _, panels in board.rows
    for panel in panels
]
REGISTRY = {name: metric for name, metric in vars(metrics).items() if isinstance(metric, MetricWrapperBase)}


def exported(metric: MetricWrapperBase) -> str:
    """The name under which Prometheus knows it."""
    name = next(iter(metric.describe())).name
    return f"{name}_total" if isinstance(metric, Counter) else name


def test_the_files_are_what_the_code_says() -> None:
    found = {path: path.read_text() for path in FOLDER.iterdir()}
    assert found.keys() == texts().keys()
    for path, text in texts().items():
        assert found[path] == text, f"{path} is stale: make dashboards"


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_says_what_it_shows(board: Board, panel: Panel) -> None:
    assert panel.description.endswith("."), panel.description
    assert bool(panel.queries) is (panel.kind != "alerts")
    for expression, legend in panel.queries:
        assert expression.count("$run|") == len(
            re.findall(r"\b(?:rookery_\w+|vllm:\w+|up|ALERTS)\b", expression)
        )
        assert legend


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_grafana_knows_every_field(file: Path) -> None:
    """Its SDK, which is generated from its schema, reads the file and leaves nothing out."""
    register_default_plugins()
    content = json.loads(file.read_text())
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(content))) == content


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_a_run_is_chosen(file: Path) -> None:
    (variable,) = json.loads(file.read_text())["templating"]["list"]
    assert (variable["name"], variable["query"]) == ("run", "label_values(up, run)")
    assert (variable["includeAll"], variable["allValue"]) == (True, ".*")


def test_lost_groups_are_red() -> None:
    steps = built("Groups astray")["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [(step["value"], step["color"]) for step in steps] == [(None, "green"), (1, "red")]


def test_alerts_are_listed() -> None:
    listed = built("Alerts that fire, or are about to")
    assert listed["type"] == "alertlist"
    assert listed["options"]["stateFilter"]["firing"]


def test_a_panel_with_many_queries_keeps_all() -> None:
    queries = tuple((f"up == {number}", "up") for number in range(26))
    refs = [target["refId"] for target in encoded(Panel("many", "Many.", queries=queries))["targets"]]
    assert len(set(refs)) == 26
    with pytest.raises(ValueError, match="longer"):
        _graph(Panel("too many", "Too many.", queries=(*queries, ("up", "up"))))


def built(title: str) -> dict[str, Any]:
    """The JSON of the panel with that title."""
    return encoded(
        *(panel for board in BOARDS for _, row in board.rows for panel in row if panel.title == title)
    )


def encoded(panel: Panel) -> dict[str, Any]:
    return json.loads(JSONEncoder().encode(_graph(panel).build()))  # type: ignore[no-any-return]


def test_titles_are_unique_within_a_board() -> None:
    for board in BOARDS:
        titles = [panel.title for _, panels in board.rows for panel in panels]
        assert len(titles) == len(set(titles))


def test_every_metric_is_shown() -> None:
    expressions = " ".join(query for _, panel in (p.values for p in PANELS) for query, _ in panel.queries)
    shown = set(re.findall(r"rookery_\w+", expressions))
    missing = {
        name
        for name in map(exported, REGISTRY.values())
        if not {name, f"{name}_sum", f"{name}_bucket", f"{name}_count"} & shown
    }
    assert missing == set()


def test_every_metric_that_is_shown_is_declared() -> None:
    declared = set()
    for metric in REGISTRY.values():
        name = exported(metric)
        parts = ("sum", "count", "bucket") if isinstance(metric, Histogram) else ()
        declared |= {name, *(f"{name}_{part}" for part in parts)}
    for _, panel in (p.values for p in PANELS):
        for query, _ in panel.queries:
            assert set(re.findall(r"rookery_\w+", query)) <= declared, panel.title


def test_no_metric_has_a_version_for_a_label() -> None:
    forbidden = {"version", "adapter", "policy", "step", "fen", "game", "model_name"}
    for metric in REGISTRY.values():
        assert not forbidden & set(metric._labelnames), exported(metric)

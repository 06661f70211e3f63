"""The arena's page of several players in a real Chromium: what is seen first, and whether plots fit."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from arena.page import render_page
from arena.stats import Estimate
from arena.tables import METRICS, Cell, MetricRow, Section, Table, summary
from tests.conftest import require

pytestmark = pytest.mark.chromium

PLAYERS = [
    "policy-v000000",
    "policy-v000100",
    "Qwen/Qwen3-4B-Instruct-2507-with-a-name-that-does-not-end-soon,temperature=0.7",
    "stockfish,nodes=100",
    "http://10.0.0.7:8000#policy-v000042,style=mover-squares,max-tokens=32",
]


def row(name: str, shift: float) -> MetricRow:
    metric = METRICS["positions"][name]
    sign = -1 if metric.better == "lower" else 1
    cells = {
        player: Cell(
            Estimate(mean := 0.5 + 0.06 * place * sign, (mean - 0.03, mean + 0.03)),
            Estimate(by := 0.06 * (place - shift) * sign, (by - 0.04, by + 0.04)) if place else None,
        )
        for place, player in enumerate(PLAYERS)
    }
    return MetricRow(metric, cells | {"random legal move": Cell(Estimate(0.2, (0.1, 0.3)))})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    rows = [row(name, shift) for shift, name in enumerate(METRICS["positions"])]
    sections = [
        Section(name, title, "Of a test.", [Table(str(n), f"Table {n}", rows) for n in range(3)])
        for name, title in (("positions", "Positions"), ("puzzles/mates", "Mates"))
    ]
    report = {
        "summary": summary(sections, players=PLAYERS), "players": {player: {} for player in PLAYERS},
        "positions": {}, "settings": {}, "files": {}, "prompts": {}, "cost": {}, "interval": {},
        "reward_version": "delta-1", "engine": [], "versions": {},
    }  # fmt: skip
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render_page(sections, {}, report, {}))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("chromium"), args=["--no-sandbox"])
        with closing(browser.new_page()) as page:
            page.goto(path.as_uri())
            yield page
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_point_comes_first_and_plots_fit(page: Any, width: int, scheme: str) -> None:
    page.set_viewport_size({"width": width, "height": 860})
    page.emulate_media(color_scheme=scheme)
    if folder := os.environ.get("ROOKERY_SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"report-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    first = page.locator(".summary li").first
    assert first.inner_text().startswith("Against policy-v000000, by 95% intervals: better")
    assert first.bounding_box()["y"] < 300
    assert page.locator(".legend li").count() == len(PLAYERS)
    plots = page.locator("table").first.locator("svg")
    assert plots.count() == len(METRICS["positions"])
    box = plots.first.bounding_box()
    assert box["x"] + box["width"] < width, "seen without scrolling"
    colours = page.locator(".legend .swatch").evaluate_all(
        "all => all.map(e => getComputedStyle(e).backgroundColor)"
    )
    assert len(set(colours)) == len(PLAYERS)
    drawn = plots.first.locator("g").evaluate_all("all => all.map(e => getComputedStyle(e).fill)")
    assert drawn == colours, "the same colours in plots"
    assert page.locator("table:visible").count() == 2, "one for each section"
    assert page.evaluate("document.documentElement.scrollHeight") < 8000

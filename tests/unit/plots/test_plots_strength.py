"""The file of evaluated versions, and its panels."""

import json
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import InvalidInput
from rookery.plots.picture import overview
from rookery.plots.steps import STRENGTH_FILE, read_strength, strength_steps


def row(version: int, *, settings: str = "a", sha256: str = "x", **metrics: Any) -> dict[str, Any]:
    head = {"version": version, "sha256": sha256, "settings": settings, "time": 1.0, "seconds": 2.0}
    return {**head, "metrics": {name: {"mean": mean, "ci95": ci95} for name, (mean, ci95) in metrics.items()}}


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    (folder / STRENGTH_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_nothing_is_read_where_nothing_was_evaluated(tmp_path: Path) -> None:
    assert read_strength(tmp_path) == []


def test_what_a_run_that_went_back_made_again_replaces_the_rest(tmp_path: Path) -> None:
    written(tmp_path, row(0), row(5), row(10), row(5, sha256="again"))
    assert [(r["version"], r["sha256"]) for r in read_strength(tmp_path)] == [(0, "x"), (5, "again")]


def test_only_figures_of_the_same_settings_are_compared(tmp_path: Path) -> None:
    written(tmp_path, row(0), row(5), row(10, settings="b"))
    assert [r["version"] for r in read_strength(tmp_path)] == [10]


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"version": 3}', '{"version": 3, "seconds": 1, "metrics": {"a": 1}}']
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    written(tmp_path, row(0))
    with (tmp_path / STRENGTH_FILE).open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InvalidInput, match=r"strength\.jsonl:2: not an evaluation"):
        read_strength(tmp_path)


def test_the_learning_curve_gets_panels_of_the_strength(tmp_path: Path) -> None:
    steps = [{"step": 1.0, "reward": -1.0}, {"step": 2.0, "reward": -0.5}]
    written(
        tmp_path,
        row(0, legal_rate_greedy=(0.5, [0.4, 0.6]), elo=(None, [None, -53.0])),
        row(5, legal_rate_greedy=(0.6, [0.5, 0.7]), elo=(10.0, [-60.0, 80.0])),
    )
    assert strength_steps(tmp_path)[0]["evaluation_elo_high"] == -53.0
    plain, more = overview(steps), overview(steps, strength_steps(tmp_path))
    assert _width(more) > _width(plain)


def _width(png: bytes) -> int:
    return int.from_bytes(png[16:20], "big")

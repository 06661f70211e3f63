import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread

from rookery.errors import InvalidInput, NotFound
from rookery.plots.panels import choose
from rookery.plots.picture import Curve, _draw_panel, draw, overview
from rookery.plots.steps import keys_of, read_metrics, smooth

STEPS = [{"step": float(i), "reward": -1 + i / 50, "legal_rate": i / 60} for i in range(50)]


def test_a_legend_of_many_curves_is_above_them() -> None:
    steps = [
        {"step": float(i), **{f"component_{name}": -2.0 + i / 50 for name in "abcdefg"}} for i in range(50)
    ]
    axes = Figure().add_subplot()
    _draw_panel(axes, choose(keys_of(steps))[0], [Curve("", (steps,))], theme="light")
    low, high = axes.get_ylim()
    assert high - (-2.0 + 49 / 50) > 0.2 * (high - low)


def test_a_torn_last_line_and_a_repeated_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": 1, "reward": -1.0}, {"step": 2, "reward": -0.8}, {"step": 2, "reward": -0.7}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "rew')
    assert read_metrics(path) == [{"step": 1.0, "reward": -1.0}, {"step": 2.0, "reward": -0.7}]


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "run": "x", "kl": NaN, "reward": -1.5}\n')
    assert read_metrics(path) == [{"step": 1.0, "reward": -1.5}]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(InvalidInput, match=r"metrics\.jsonl:2.*nonsense"):
        read_metrics(path)


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        "7",
        "null",
        "{}",
        '{"step": null}',
        '{"step": Infinity}',
        '{"step": 2, "n": 1%s}' % ("0" * 400),
        "",
        "\xff",
    ],
    ids=lambda line: repr(line[:20]),
)
@pytest.mark.parametrize("after", ["", '{"step": 3}\n'], ids=["last", "in the middle"])
def test_a_whole_line_that_is_no_step_is_named_wherever_it_is(line: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(f'{{"step": 1}}\n{line}\n{after}'.encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"metrics\.jsonl:2: not a step"):
        read_metrics(path)


def test_no_metrics_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"metrics\.jsonl"):
        read_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(InvalidInput, match=r"nothing to draw.*the steps have lr, step"):
        overview([{"step": 1.0, "lr": 2.0}])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_curve_is_a_picture_in_its_theme(theme) -> None:
    picture = imread(io.BytesIO(overview(STEPS, theme=theme)), format="png")
    assert picture.shape[1] > 800
    assert (picture[2, 2, :3].mean() > 0.5) == (theme == "light")


@pytest.mark.parametrize("runs", [1, 2])
def test_references_are_drawn_beside_the_statistics_of_one_run(runs: int) -> None:
    steps = [
        {"step": float(i), "regret": 0.2, "regret_random": 0.3, "moves_rook": 0.7, "best_moves_rook": 0.2}
        for i in range(5)
    ]
    curves = [Curve(f"run {number}", (steps,)) for number in range(runs)]
    picture = draw(curves, choose(keys_of(steps)), kind="svg").decode()
    assert ("random legal move" in picture) == (runs == 1)
    assert ("stroke-dasharray" in picture) == (runs == 1)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=200))
def test_smoothing_keeps_length_and_range(values: list[float]) -> None:
    smoothed = smooth(values)
    assert len(smoothed) == len(values)
    assert min(values) - 1e-6 <= min(smoothed)
    assert max(smoothed) <= max(values) + 1e-6

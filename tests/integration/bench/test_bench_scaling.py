"""The scaling law of `rookery sft`: what it was made from is found again."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from bench.scaling import ScalingLaw, ScalingSettings, SftRun, fit, read_run, run
from rookery.errors import InvalidInput, NotFound, SetupError

pytestmark = pytest.mark.torch

LAW = ScalingLaw(e=0.6, a=40.0, alpha=0.4, b=30.0, beta=0.3)
SIZES, TOKENS = (200_000, 800_000, 3_000_000), (1_000_000, 6_000_000, 40_000_000)


def test_the_fit_finds_the_law_behind_the_runs() -> None:
    runs = [SftRun("", n, d, LAW.loss(n, d)) for n, d in product(SIZES, TOKENS)]
    found = fit(runs)
    assert (found.e, found.alpha, found.beta) == pytest.approx((0.6, 0.4, 0.3), rel=0.02)
    assert found.loss(30_000_000, 10**9) == pytest.approx(LAW.loss(30_000_000, 10**9), abs=0.002)


@pytest.mark.parametrize("compute", [1e12, 1e15])
def test_no_other_size_is_better_than_the_best(compute: float) -> None:
    best = LAW.best_size(compute)
    losses = {times: LAW.loss(times * best, compute / (6 * times * best)) for times in (0.8, 1.0, 1.25)}
    assert min(losses, key=losses.__getitem__) == 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    import torch
    from safetensors.torch import save_file

    def write(weights: int = 100, tokens: int = 1000, *, loss: float = 1.0, lr: float = 0.0) -> Path:
        folder = tmp_path / f"{weights}-{tokens}"
        (folder / "model").mkdir(parents=True)
        save_file(
            {"one": torch.zeros(weights // 2), "two": torch.zeros(2, weights // 4)},
            folder / "model/model.safetensors",
        )
        rows = [
            {"step": 1, "tokens": tokens / 4, "lr": 1e-3},
            {"step": 2, "tokens": tokens * 3 / 4, "lr": lr},
        ]
        rows[-1] |= {"eval_loss": loss}
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return write


def test_a_run_is_read_to_its_end(folder: Callable[..., Path]) -> None:
    assert read_run(folder(100, 1000, loss=0.7)) == SftRun("100-1000", weights=100, tokens=1000, loss=0.7)


def test_a_run_that_was_stopped_is_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInput, match=r"100-1000 was stopped early: its last learning rate, 5\.0e-04"):
        read_run(folder(lr=5e-4))


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no metrics file"):
        read_run(tmp_path)


def test_the_command_prints_each_run_and_plots_them(
    folder: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [folder(n, d, loss=LAW.loss(n, d)) for n, d in product((400, 4000, 40000), (10**5, 10**6, 10**7))]
    run(ScalingSettings(runs=runs, out=tmp_path / "plots" / "scaling.png"))
    printed = capsys.readouterr().out
    assert f"{LAW.loss(4000, 10**6):.4f}" in printed
    assert "lowest loss" in printed
    assert (tmp_path / "plots" / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("sizes", [[400], [400, 4000, 40000]])
def test_too_few_runs_are_refused(folder: Callable[..., Path], sizes: list[int]) -> None:
    lengths = (10**5, 10**6)[: len(sizes)]
    runs = [folder(n, d) for n, d in product(sizes, lengths)][:5]
    with pytest.raises(SetupError, match=f"{len(runs)} runs of {len(sizes)} sizes"):
        run(ScalingSettings(runs=[*runs, *runs]))


def test_runs_of_one_size_are_refused(folder: Callable[..., Path]) -> None:
    with pytest.raises(SetupError, match="6 runs of 1 sizes and 6 lengths"):
        run(ScalingSettings(runs=[folder(400, 10**k) for k in range(2, 8)]))


def test_a_loss_that_does_not_fall_has_no_law(folder: Callable[..., Path]) -> None:
    runs = [folder(n, d, loss=n**0.05 * d**0.1) for n, d in product((400, 4000, 40000), (10**5, 10**6))]
    with pytest.raises(InvalidInput, match="the loss does not fall with size and tokens"):
        run(ScalingSettings(runs=runs))


def test_what_is_no_run_of_all_weights_is_refused(folder: Callable[..., Path]) -> None:
    found = folder()
    (found / "model/model.safetensors").unlink()
    with pytest.raises(InvalidInput, match="a scaling run trains all weights"):
        read_run(found)
    (found / "metrics.jsonl").write_text('{"step": 1, "lr": 0.0, "tokens": 5}\n')
    with pytest.raises(InvalidInput, match="has no eval_loss"):
        read_run(found)
    (found / "metrics.jsonl").write_text('{"step": 1}\n')
    with pytest.raises(InvalidInput, match="it has no lr or tokens"):
        read_run(found)

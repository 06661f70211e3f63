"""Which figures meet the targets of the benchmarks, and what their options change."""

import sys
from pathlib import Path

import pytest

from bench.data.__main__ import report
from bench.reward import __main__ as reward
from bench.reward.outcome import Case, Outcome, Sample
from bench.train.scale import SMALL, Scale, run
from bench.train.work import build_model
from bench.usage import Usage

MEASURED = {"clocks": (1006, 422), "rated": (1112, 235), "masters": (999, 180)}
"""MB a second of `zstd -dc` and of `sample`, from chess_datasets/README.md."""


def test_the_documented_speeds_of_reading_games_meet_the_targets() -> None:
    names = {name: pair for kind, (zstd, ours) in MEASURED.items()
             for name, pair in ((f"zstd -dc {kind}", zstd), (f"sample {kind}", ours))}  # fmt: skip
    turn = {name: {"seconds": 1 / speed, "cpu_s": 1 / speed, "peak_mb": 1.0} for name, speed in names.items()}
    found = report([turn], dict.fromkeys(MEASURED, 1.0), jobs=2)
    assert {kind: ratio["by_cpu"] for kind, ratio in found["one_process_to_zstd"].items()} == pytest.approx(
        {"clocks": 0.42, "rated": 0.21, "masters": 0.18}, abs=0.01
    )
    assert [target["met"] for target in found["targets"].values()] == [True]


@pytest.mark.parametrize(("ours_s", "status"), [(1.0, 0), (2.0, 1)])
def test_a_missed_target_of_the_reward_is_an_exit_status(
    ours_s: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def side(seconds: float) -> Sample:
        return Sample(100, 200, Usage(seconds, 0.4, 2.0, 0.1, 0.0, 0.0))

    def run_case(case: Case, *_: object, **__: object) -> Outcome:
        return Outcome(case, [{"limit": side(1.0), "grpc": side(ours_s)}])

    monkeypatch.setattr(reward, "find_engine", lambda *_, **__: Path("stockfish"))
    monkeypatch.setattr(reward, "positions", lambda *_: [])
    monkeypatch.setattr(reward, "run_case", run_case)
    argv = ["bench", "--workloads", "distinct", "--nodes", "1000", "--routes", "grpc"]
    monkeypatch.setattr(sys, "argv", argv)
    assert reward.main() == status


@pytest.mark.torch
def test_scale_uses_the_threads_that_it_is_given(tmp_path: Path) -> None:
    import torch

    given = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = build_model(tmp_path / "model", SMALL)
        assert run(Scale(str(model), "small", 64, 128, False, steps=1)).device == "a CPU, 2 threads"
    finally:
        torch.set_num_threads(given)

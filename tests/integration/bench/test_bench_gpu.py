"""The GPU suite: what it runs, what it makes of canaries and steps, and its report."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.report import PAGE, REPORT, Report
from bench.gpu.runs import gpu_memory_gib, run_figures
from bench.gpu.serving import KINDS, SCALES, Served, mistakes, summary
from bench.gpu.suite import PARTS, GpuSettings
from rookery.errors import SetupError
from tests import gpus

RIGHT, UNAPPLIED, ANOTHERS = KINDS


def suite(folder: Path, **settings: Any) -> GpuSettings:
    return GpuSettings(**{"device": "cpu", "out": folder, **settings})


def test_parts_are_chosen_by_name_and_run_in_order(tmp_path: Path) -> None:
    assert suite(tmp_path).selected() == list(PARTS)
    assert suite(tmp_path, parts="plan,smoke").selected() == ["smoke", "plan"]
    with pytest.raises(SetupError, match=r"there is no part 'smok'.*smoke, reload"):
        GpuSettings.parse(["--parts", "smok"], prog="gpu")
    assert (suite(tmp_path, device="1,0").serving, suite(tmp_path, device="1,0").training) == ("1", "0")
    assert suite(tmp_path).preset_name == "tiny-cpu"
    assert suite(tmp_path, device="auto").preset_name == "qwen3-0.6b"


def test_a_report_goes_on_and_shows_what_failed(tmp_path: Path) -> None:
    report = Report.open(suite(tmp_path))
    report.add("reload", seconds=3.0, figures={"first_token_s": {"p50": 0.12}})
    report.add("smoke", seconds=2.0, figures={"a | b": 1}, error="no engine\nmore", log="the end")
    again = Report.open(suite(tmp_path, parts="kills", limit_s=9.0))
    assert list(again.parts) == ["smoke", "reload"]
    written = json.loads((tmp_path / REPORT).read_text())
    assert written["parts"]["reload"]["status"] == "passed"
    assert {"torch", "vllm", "GPUs", "NVIDIA driver"} <= written["machine"].keys()
    assert {row["measured"] for row in written["references"]} == {None}, "a CPU's figures are not compared"
    page = (tmp_path / PAGE).read_text()
    for line in (
        "no figure here is of a GPU",
        "| first_token_s: p50 | 0.12 |",
        "**Failed**: no engine\n\n```\nthe end\n```",
        f"| kills | {PARTS['kills']} |  | not run |",
    ):
        assert line in page


@pytest.mark.parametrize(
    "content", ['{"course": {}, "parts": {}}', '{"suite": {}, "par', "[]", '{"suite": 1, "parts": 2}']
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / REPORT).write_text(content)
    with pytest.raises(SetupError, match=r"is not a report of this suite .*--out"):
        Report.open(suite(tmp_path))


def test_a_report_is_of_one_machine_and_of_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus.install(monkeypatch, tmp_path / "smi", ["8.0"])
    report = Report.open(suite(tmp_path, device="auto"))
    report.add("reload", seconds=3.0, figures={"first_token_s": {"p50": 0.12}})
    assert report.measured(reference("reload")) == 0.12
    assert report.measured(reference("scale")) is None, "it has not run"
    with pytest.raises(SetupError, match=r"steps=20, and this suite has steps=5"):
        Report.open(suite(tmp_path, device="auto", steps=5))
    gpus.install(monkeypatch, tmp_path / "smi", ["8.0", "8.0"])
    with pytest.raises(SetupError, match=r"report of gpus="):
        Report.open(suite(tmp_path, device="auto"))


def reference(part: str) -> Any:
    from bench.gpu.report import REFERENCES

    return next(reference for reference in REFERENCES if reference.part == part)


def served(wrong: dict[str, float] | None, *, shift: float) -> Served:
    """One version of each kind and scale; `wrong` is what the server says of those that are not right."""
    told = {"noise": 0.01, "shift": shift, "distance": 0.002, "applied": 1.0}
    kinds = ((RIGHT, told), (UNAPPLIED, wrong), (ANOTHERS, wrong))
    return [(kind, scale, canary) for scale in SCALES for kind, canary in kinds]


def test_a_wrong_version_must_be_refused_where_it_can_be_told() -> None:
    figures = summary(served(None, shift=0.5))
    assert figures[f"{RIGHT}, 0.03"] | figures[f"{UNAPPLIED}, 0.03"] == {
        "served": 0, "refused": 1,
        "noise, at most": 0.01, "shift, at least": 0.5, "distance, at most": 0.002, "applied, at least": 1.0,
    }  # fmt: skip
    assert list(mistakes(figures)) == []
    taken: dict[str, float] = {"noise": 0.01, "shift": 0.5, "distance": 0.5, "applied": 0.0}
    found = list(mistakes(summary(served(taken, shift=0.5))))
    assert len(found) == 2 * len(SCALES)
    assert "1 versions of scale 0.03 were served though they are not applied" in found
    assert list(mistakes(summary(served(taken, shift=0.05)))) == [], "no change beyond the noise"
    refused = [(kind, scale, None) for kind, scale, _ in served(None, shift=0.5)]
    assert "1 right versions of scale 0.03 were refused" in list(mistakes(summary(refused)))


def test_the_first_steps_of_a_preset_do_not_count() -> None:
    row = {
        "completions": 8.0,
        "completion_length": 50.0,
        "tokens_per_s": 100.0,
        "step_s": 2.0,
        "train_s": 1.0,
    }
    row |= {"cuda_peak_mib": 2048.0, "mismatch_mean": 0.01}
    cold = {**row, "step_s": 99.0, "cuda_peak_mib": 1.0}
    figures = run_figures([cold, cold, row, row, row])
    assert (figures["steps"], figures["step_s"], figures["generated_tokens_per_s"]) == (5, 2.0, 200.0)
    assert (figures["trainer_peak_gib"], figures["train_s"], figures["mfu"]) == (2.0, 1.0, None)
    assert run_figures([cold])["step_s"] == 99.0, "a short run has no others"


def test_the_memory_of_cards_is_asked_again_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=None)
    assert gpu_memory_gib() == ({}, {})
    tool = tmp_path / "nvidia-smi"
    for used in (1024, 2048):
        answers = f"--query-gpu=index,memory.used) echo '0, {used}' ;; *) echo '41, 512'; echo '42, [N/A]' ;;"
        tool.write_text(f'#!/bin/sh\ncase "$1" in\n {answers}\nesac\n')
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        assert gpu_memory_gib() == ({41: 0.5}, {"card 0": used / 1024})

"""`make gpu DEVICE=cpu`: its whole suite, and what becomes of a part that fails or takes too long."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from bench.gpu.__main__ import main
from bench.gpu.suite import PARTS

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def suite(folder: Path, *flags: str) -> tuple[int, dict[str, Any]]:
    status = main(["--device", "cpu", "--out", str(folder), *flags])
    return status, json.loads((folder / "gpu-report.json").read_text())["parts"]


def test_a_part_that_fails_or_hangs_does_not_stop_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, parts = suite(tmp_path, "--parts", "plan,mismatch-v2")
    assert status == 1
    assert (parts["mismatch-v2"]["status"], parts["plan"]["status"]) == ("passed", "failed")
    assert "the part `preset` makes it" in parts["plan"]["error"]
    assert "the part `preset` makes it" in parts["plan"]["log"]
    assert "failed: plan" in capfd.readouterr().out
    status, parts = suite(tmp_path, "--parts", "smoke,mismatch-v2", "--limit-s", "0.5")
    assert (status, parts["smoke"]["error"]) == (1, "stopped after 0 s (--limit-s)")
    assert "mismatch-v2: has passed" in capfd.readouterr().out
    status, parts = suite(tmp_path, "--parts", "mismatch-v2", "--again", "mismatch-v2")
    assert (status, "has passed" in capfd.readouterr().out) == (0, False)


@pytest.mark.nightly
@pytest.mark.redis
@pytest.mark.stockfish
@pytest.mark.vllm
@pytest.mark.timeout(3600)
def test_the_whole_suite_on_a_cpu(tmp_path: Path) -> None:
    status, parts = suite(tmp_path, "--versions", "4", "--steps", "7")
    assert {name: part.get("error") for name, part in parts.items()} == dict.fromkeys(PARTS)
    assert status == 0
    figures = {name: part["figures"] for name, part in parts.items()}
    assert figures["reload"]["first_token_s"]["count"] == 4
    assert figures["mismatch-v1"]["mismatch_mean"] < 0.02
    assert set(figures["preset"]["memory_gib"]) == {"inference", "trainer"}
    assert (figures["kills"]["lost"], figures["kills"]["doubled"]) == (0, 0)
    assert figures["plan"]["predicted_to_measured"] > 0

"""`rookery evaluate` and `battery` with players that need no model: it starts the reward service itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.command import main
from tests.commands import call
from tests.conftest import ROOT

pytestmark = [pytest.mark.stockfish, pytest.mark.timeout(300)]


def test_every_section_of_engines_and_random_movers(tmp_path: Path) -> None:
    suite = tmp_path / "suite.epd"
    suite.write_text('4k3/8/8/8/8/8/4P3/4K3 w - - bm e4; id "push";\n')
    argv = [
        sys.executable, "-m", "launcher", "battery",
        "random", "stockfish,nodes=50", "--data", "random=samples/mates_in_1.csv",
        "--count", "12", "--samples", "2", "--nodes", "100", "--puzzle-count", "8", "--suites", str(suite),
        "--pairs", "2", "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert list(report["players"]) == ["random", "stockfish-nodes=50"]
    sections = report["sections"]
    assert set(sections) == {
        "positions", "brittleness", "puzzles/puzzles", "puzzles/mates_in_1", "suites/suite", "matches",
        "contamination",
    }  # fmt: skip
    seen = sections["contamination"]["seen"]
    assert (seen["mates_in_1.csv"]["random"]["mean"], seen["suite.epd"]["random"]["mean"]) == (1.0, 0.0)
    assert report["summary"][0].startswith("stockfish-nodes=50 against random: better in ")
    assert sections["positions"]["metrics"]["legal_rate"]["random"]["mean"] == 1.0
    mates = sections["puzzles/mates_in_1"]["metrics"]["solved"]
    assert mates["stockfish-nodes=50"]["mean"] > mates["random"]["mean"]
    assert "rating" in sections["puzzles/puzzles"]["metrics"]
    assert "rating" not in sections["puzzles/mates_in_1"]["metrics"]
    [pairing] = sections["matches"]["encounters"]["wins"].values()
    losses = sections["matches"]["players"]["losses"]
    assert pairing["mean"] == losses["stockfish-nodes=50"]["mean"]
    page = (tmp_path / "out" / "report.html").read_text()
    for title in ("Positions", "Puzzles: mates_in_1", "Test suite: suite", "Matches: after an illegal move"):
        assert f"<h2>{title}" in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "player 'nobody': no such kind of player"),
        (("random", "--sections", "matches"), "a match needs two players"),
        (("random", "--sections", "chess960"), "no section 'chess960'"),
        (("run:nowhere",), "player 'run:nowhere': no run 'nowhere'"),
    ],
)
def test_mistakes_are_said_in_a_line(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = call(main, ["evaluate", *arguments, "--count", 2, "--out", tmp_path])
    assert done.returncode == 2
    told = done.stderr + capfd.readouterr().err  # of the arena, which is a process of its own
    assert said in told
    assert "Traceback" not in told

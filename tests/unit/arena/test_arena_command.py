from pathlib import Path

import pytest

from arena.__main__ import main


def test_curve_draws_into_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": -1}\n{"step": 2, "reward": -0.5}\n')
    assert main(["curve", str(tmp_path)]) == 0
    assert (tmp_path / "learning_curve.png").exists()


def test_mistakes_are_said_in_a_line(tmp_path: Path, capsys) -> None:
    assert main(["curve", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: no metrics file ")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "exactly one of --positions and --data-url"),
        (["--positions", "p.jsonl", "--data-url", "http://localhost:1"], "exactly one of --positions and"),
        (["--sections", "puzzles"], "the section puzzles needs --puzzles"),
        (["--sections", "suites"], "the section suites needs --suites"),
        (
            ["--sections", "chess960"],
            "no section 'chess960': choose from brittleness, chessqa, contamination, matches, positions",
        ),
    ],
)
def test_what_a_section_needs_is_said(flags: list[str], said: str, capsys) -> None:
    assert main(["evaluate", "random", "--out", "runs/x", *flags]) == 2
    assert said in capsys.readouterr().err

"""`score` on the command line: one answer, standard input, files, and what is wrong with them."""

import json
from pathlib import Path

import pytest

from services.reward.__main__ import main
from tests.commands import call

pytestmark = pytest.mark.stockfish

FEN = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"


@pytest.fixture
def score(stockfish_path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REWARD_ENGINE_PATH", stockfish_path)
    monkeypatch.setenv("REWARD_NODES", "500")
    return lambda *arguments, stdin="": call(main, ["score", *arguments], stdin=stdin)


def test_a_completion_from_standard_input(score) -> None:
    done = score(
        FEN, "-", "--json", "--scheme", "accuracy + 0.5*format", stdin=r"<think>!</think>\boxed{Ra8}"
    )
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["components"] == {"accuracy": 1.0, "format": 0.5}
    assert verdict["reward"] == 1.5
    assert "/nodes-500/" in verdict["reward_version"]


def test_flags_go_before_the_environment(score) -> None:
    done = score(FEN, r"\boxed{Ra8}", "--json", "--nodes", "600")
    assert "/nodes-600/" in json.loads(done.stdout)["reward_version"]


def test_a_file_has_a_line_for_each_of_its_lines(score, tmp_path: Path) -> None:
    lines = [
        json.dumps({"fen": FEN, "response": r"\boxed{Ra8#}"}),
        json.dumps({"fen": FEN, "response": r"\boxed{Ra8#}", "task": "P"}),
        "not JSON",
        json.dumps({"fen": "no position", "response": ""}),
        json.dumps({"fen": FEN}),
        json.dumps({"fen": FEN, "response": r"\boxed{Kd1}", "scheme": "best"}),
    ]
    path = tmp_path / "answers.jsonl"
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    done = score("--file", str(path))
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and "7 answers, 4 of them could not be judged" in done.stderr
    assert [result.get("reward") for result in results] == [0.0, -0.3, None, None, None, 0.0, None]
    assert "line 3" in results[2]["detail"] and "'not JSON\\n'" in results[2]["detail"]
    assert "'no position'" in results[3]["detail"]
    assert "line 5: response" in results[4]["detail"]
    assert score("--file", "-", stdin=lines[0] + "\n").returncode == 0


def test_flags_are_for_the_lines_of_a_file_that_have_no_such_field(score) -> None:
    lines = [
        {"fen": FEN, "response": "The rook"},
        {"fen": FEN, "response": "The rook", "scheme": "delta", "truncated": False},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = score("--file", "-", "--scheme", "best", "--truncated", stdin=text)
    truncated, complete = (json.loads(line) for line in done.stdout.splitlines())
    assert (truncated["outcome"], complete["outcome"]) == ("truncated", "no_box")
    assert truncated["reward_version"].startswith("best-2/") and complete["reward_version"].startswith(
        "delta-1/"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        ((), 2, "give FEN and RESPONSE, or --file"),
        ((FEN,), 2, "give FEN and RESPONSE, or --file"),
        (("8/8/8/8/8/8/8/8 w - - 0 1", ""), 2, "impossible position '8/8/8/8/8/8/8/8 w - - 0 1'"),
        ((FEN, "", "--scheme", "nice"), 2, "no scheme 'nice'"),
        (("--file", "none.jsonl"), 2, "cannot read 'none.jsonl': No such file"),
    ],
)
def test_what_cannot_be_is_said(score, arguments: tuple[str, ...], status: int, why: str) -> None:
    done = score(*arguments)
    assert done.returncode == status
    assert why in done.stderr


def test_help_teaches(score) -> None:
    text = score("--help").stdout
    for word in ("--file answers.jsonl", "accuracy+0.1*format", "--task P", "exit status", r"'\boxed{Nf3}'"):
        assert word in text

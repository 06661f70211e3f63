import json
from pathlib import Path

import pytest
from services.arena.evaluate import Policy, Questions
from services.arena.evaluation import Evaluation

from rookery.trace import Outcome, Sampling
from services.arena.measures import measure
from services.arena.positions import Chosen
from services.arena.report import replace_file, write

HOSTILE = "<script>alert(1)</script>\\boxed{</code>\"'&${title}$title}"


@pytest.fixture
def evaluation(positions, judged, answering) -> Evaluation:
    legal, hostile = judged(Outcome.LEGAL, regret=0.1), judged(Outcome.UNPARSABLE, text=HOSTILE)
    before, after = answering([[hostile, legal, hostile]] * 4), answering([[legal, legal, legal]] * 4)
    return Evaluation(
        chosen=Chosen(tuple(positions), "<positions>.jsonl", "0" * 64),
        questions=Questions(style="mover-squares", samples=2, sampling=Sampling(max_tokens=32), seed=3),
        policies=(Policy("policy-v000000", "a" * 64), Policy("<b>policy</b>", None)),
        before=before,
        after=after,
        parts=measure(before, after, seed=3),
        seconds=1.0,
    )


def test_report_has_exactly_the_promised_metrics(evaluation: Evaluation, tmp_path: Path) -> None:
    write(evaluation, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    metrics = report["metrics"]
    assert list(metrics) == ["legal_rate", "legal_rate_greedy", "reward", "regret_legal", "box_rate"]
    for metric in metrics.values():
        assert list(metric) == ["before", "after", "difference"]
        assert all(list(side) == ["mean", "ci95"] for side in metric.values())
    assert metrics["legal_rate"]["difference"] == {"mean": 0.5, "ci95": [0.5, 0.5]}
    assert metrics["legal_rate_greedy"]["before"] == {"mean": 0.0, "ci95": [0.0, 0.0]}
    assert report["positions"]["count"] == 4
    assert report["policies"]["before"] == {"name": "policy-v000000", "sha256": "a" * 64}
    assert report["outcomes"]["before"] == {"legal": 4, "unparsable": 4}
    assert set(report["by_colour"]) == {"white", "black"}


def test_the_page_escapes_what_models_and_files_say(evaluation: Evaluation, tmp_path: Path) -> None:
    write(evaluation, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "<b>policy" not in page
    assert "<positions>" not in page
    assert (
        "&lt;script&gt;alert(1)&lt;/script&gt;\\boxed{&lt;/code&gt;&quot;&#x27;&amp;${title}$title}" in page
    )


def test_the_page_needs_nothing_from_outside(evaluation: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": -1}\n{"step": 2, "reward": -0.5}\n')
    write(evaluation, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("data:image/png;base64,") == 2
    assert page.count("data:image/svg+xml;base64,") == 4
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_without_metrics_there_is_a_report_but_no_curve(evaluation, tmp_path: Path, caplog) -> None:
    write(evaluation, tmp_path)
    assert "no learning curve" in caplog.text
    assert not (tmp_path / "learning_curve.png").exists()
    assert "None: the run folder has no metrics.jsonl" in (tmp_path / "report.html").read_text()


def test_answers_are_kept_for_a_second_look(evaluation: Evaluation, tmp_path: Path) -> None:
    write(evaluation, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert [answer["outcome"] for answer in lines[0]["before"]] == ["unparsable", "legal", "unparsable"]


def test_writing_again_replaces_and_leaves_nothing_beside(evaluation: Evaluation, tmp_path: Path) -> None:
    write(evaluation, tmp_path)
    write(evaluation, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answers.jsonl", "report.html", "report.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    replace_file(path, b"old")
    with pytest.raises(TypeError):
        replace_file(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

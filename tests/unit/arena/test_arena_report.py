"""The files of a report: what they promise, that the page is self-contained and escapes everything."""

import io
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from arena.answer_store import ANSWERS_FILE, open_answers
from arena.page import render_examples
from arena.pieces import BEST, RANDOM
from arena.positions import Chosen
from arena.report import EvaluationResult, learning_curve, write
from arena.sections.against import against, published
from arena.sections.positions import PositionQuestions
from arena.sections.reasoning import reasoning_section
from arena.session import run
from arena.stats import Estimate
from arena.tables import Cell, Metric, MetricRow, Section, Table, section_json, summary
from rookery.config.arena import ArenaEvaluateSettings
from rookery.errors import InvalidInput
from rookery.files import replace_file
from rookery.intervals import wilson
from rookery.prompt import mover_board
from rookery.trace import Outcome

HOSTILE = "<script>alert(1)</script>\\boxed{</code>\"'&${title}$title}"
NAMES = ("policy-v000000", "<b>policy</b>")


@pytest.fixture
def evaluation(positions, judged, answering, tmp_path: Path) -> EvaluationResult:
    hostile = judged(Outcome.UNPARSABLE, text=HOSTILE)
    firsts = [next(iter(mover_board(position.fen).legal_moves)).uci() for position in positions]
    legal = [judged(Outcome.LEGAL, regret=0.1, uci=uci, best=uci) for uci in firsts]
    good = answering([[answer] * 3 for answer in legal])
    bad = answering([[hostile, answer, hostile] for answer in legal])
    sides = dict(zip((*NAMES, RANDOM, BEST), (bad, good, good, good), strict=True))
    source = PositionQuestions(positions, 2, styles=False, seed=3)
    asked = {name: {"move": side, "mirrored": side} for name, side in sides.items()}
    return EvaluationResult(
        settings=ArenaEvaluateSettings(players=("a", "b"), positions=tmp_path / "p", out=tmp_path),
        chosen=Chosen(tuple(positions), "<positions>.jsonl", "0" * 64),
        players={name: {"kind": "<i>model</i>"} for name in NAMES},
        reward_version="delta-1",
        sections=[
            source.section(asked, players=NAMES),
            reasoning_section({name: sides[name] for name in NAMES}, players=NAMES, seed=3),
        ],
        answers=sides,
    )


def test_report_has_every_player_s_figures_and_the_differences_from_the_first(
    evaluation, tmp_path: Path
) -> None:
    written = write(evaluation, tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report == written
    metrics = report["sections"]["positions"]["metrics"]
    none, half, whole = ({"mean": right / 4, "ci95": list(wilson(right, 4))} for right in (0, 2, 4))
    difference = metrics["legal_rate"][NAMES[1]].pop("difference")
    assert metrics["legal_rate"] == {NAMES[0]: half, NAMES[1]: whole, RANDOM: whole, BEST: whole}
    assert (difference["mean"], difference["ci95"]) == (0.5, pytest.approx([-0.102, 0.85], abs=1e-3))
    assert metrics["legal_rate_greedy"][NAMES[0]] == none
    assert NAMES[0] not in metrics["regret_legal_greedy"]  # no greedy answer of it is legal
    assert report["positions"]["count"] == 4
    assert report["sections"]["positions"]["outcomes"][NAMES[0]] == {"unparsable": 8, "legal": 4}
    parts = report["sections"]["positions"]["parts"]
    assert {name.partition("/")[0] for name in parts} == {
        "opening",
        "endgame",
        "white to move",
        "black to move",
    }


def test_claims_are_marked_in_the_examples(judged, answering) -> None:
    text = "<think>Material is level. White is a rook up.\nBlack's king is in check.</think>\\boxed{e2e4}"
    page = render_examples({"a": answering([[judged(Outcome.LEGAL, text=text)]])})
    assert (
        '&lt;think&gt;<span class="better">Material is level</span>. '
        '<span class="worse">White is a rook up</span>.\n'
        '<span class="worse">Black&#x27;s king is in check</span>.&lt;/think&gt;\\boxed{e2e4}'
    ) in page


def test_the_learning_curve_shows_the_regret_of_a_random_move(evaluation, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "regret": 0.2}\n{"step": 2, "regret": 0.1}\n')
    write(evaluation, tmp_path)
    drawn = (tmp_path / "learning_curve.png").read_bytes()
    assert drawn == learning_curve(tmp_path, random_regret=0.1) != learning_curve(tmp_path)


class Links(HTMLParser):
    """Collects whatever could load something, and counts elements."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.places += [str(value) for name, value in attrs if name in ("src", "srcset", "href", "action")]


def test_the_page_needs_nothing_from_outside(evaluation: EvaluationResult, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "reward": -1}\n{"step": 2, "reward": -0.5}\n')
    write(evaluation, tmp_path)
    links = Links()
    links.feed((tmp_path / "report.html").read_text())
    loaded = [place for place in links.places if not place.startswith("#")]
    assert len(loaded) == 2 + 4  # the curve in two themes, four boards
    assert all(place.startswith("data:image/") for place in loaded)
    assert not {"script", "link", "iframe", "object"} & set(links.tags)
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_escapes_what_models_files_and_flags_say(
    evaluation: EvaluationResult, tmp_path: Path
) -> None:
    row = MetricRow(Metric("<u>m</u>", "<u>t</u>", "<u>e</u>"), {NAMES[0]: Cell(Estimate(0.5, None))})
    hostile = Section("<u>s</u>", "<u>s</u>", "<u>n</u>", [Table("<u>t</u>", "<u>t</u>", [row], "<u>n</u>")])
    sections = [*evaluation.sections, hostile]
    write(replace(evaluation, sections=sections), tmp_path)
    page = (tmp_path / "report.html").read_text()
    links = Links()
    links.feed(page)
    assert not {"script", "b", "i", "u", "positions"} & set(links.tags)
    assert (
        "&lt;script&gt;alert(1)&lt;/script&gt;\\boxed{&lt;/code&gt;&quot;&#x27;&amp;${title}$title}" in page
    )


def test_a_one_sided_bound_is_json_without_infinity() -> None:
    row = MetricRow(Metric("r", "R", unit="whole"), {"a": Cell(Estimate(None, (-float("inf"), 812.0)))})
    assert section_json(Section("s", "S", "", [Table("t", "T", [row])])) == {
        "t": {"r": {"a": {"mean": None, "ci95": [None, 812.0]}}}
    }


def test_writing_again_replaces_and_leaves_nothing_beside(
    evaluation: EvaluationResult, tmp_path: Path
) -> None:
    write(evaluation, tmp_path)
    write(evaluation, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    replace_file(path, b"old")
    with pytest.raises(TypeError):
        replace_file(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_summary_says_who_is_better_and_how_surely(evaluation, tmp_path: Path) -> None:
    report = write(evaluation, tmp_path)
    (line,) = report["summary"]
    assert line.startswith(f"{NAMES[1]} against {NAMES[0]}: better in Positions: Legal, greedy +100.0 pts [")
    assert line.endswith("other differences may be chance.")
    page = (tmp_path / "report.html").read_text()
    said = '<li>&lt;b&gt;policy&lt;/b&gt; against policy-v000000: <strong class="better">better</strong> in'
    assert said in page.partition("<h2")[0], "before all else"
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("- \\<b\\>policy\\</b\\> against policy-v000000: better in")
    rows = [line for line in text.splitlines() if line.startswith("| Legal, greedy |")]
    assert rows[0].startswith("| Legal, greedy | 0.0% [0.0, 49.0] | 100.0% [51.0, 100.0]; +100.0 pts [")


def test_of_several_players_the_first_line_says_which_are_better() -> None:
    metric = Metric("legal_rate", "Legal moves")
    differences = {"a": 0.2, "b": -0.2, "c": 0.0}
    cells = {"first": Cell(Estimate(0.5, (0.4, 0.6)))} | {
        name: Cell(Estimate(0.5 + by, (0.4, 0.6)), Estimate(by, (by - 0.1, by + 0.1)))
        for name, by in differences.items()
    }
    section = Section("positions", "Positions", "", [Table("metrics", "All", [MetricRow(metric, cells)])])
    first, *lines = summary([section], players=["first", *differences])
    assert first == "Against first, by 95% intervals: better: a; no sure difference: c; worse: b."
    assert [line.partition(" ")[0] for line in lines] == ["a", "b", "c"]


def test_another_report_and_published_figures_stand_beside(evaluation, tmp_path: Path) -> None:
    report = write(evaluation, tmp_path / "mine")
    figure = {
        "metric": "positions/metrics/legal_rate", "player": "theirs", "mean": 0.4, "ci95": [0.3, 0.5],
        "source": "a paper", "date": "2026-03", "differs": "other positions",
    }  # fmt: skip
    path = tmp_path / "paper.json"
    path.write_text(json.dumps({"figures": [figure, {**figure, "metric": "puzzles/none"}]}))
    section = against(published(path), evaluation.sections, report=report)
    (row,) = section.tables[0].rows
    assert row.metric.explanation == "a paper; 2026-03; other positions"
    assert row.cells["theirs (paper)"].estimate == Estimate(0.4, (0.3, 0.5))
    assert row.cells[NAMES[1]].estimate.mean == 1.0
    own = published(tmp_path / "mine" / "report.json")
    assert against(own, evaluation.sections, report=report).note == "Both asked the same questions."
    other = against(own, evaluation.sections, report={**report, "reward_version": "delta-2"})
    assert other.note == "Not equal in both reports: reward_version."
    row = next(r for r in other.tables[0].rows if r.metric.name.endswith("/legal_rate_greedy"))
    assert row.cells[f"{NAMES[1]} (mine)"].estimate == row.cells[NAMES[1]].estimate
    for content, why in (
        ("{}", "figures: Field required"),
        ('{"figures": [{"mean": 1}]}', "figures.0.metric: Field required"),
        ("[", "Invalid JSON"),
        (
            _report('{"mean": NaN}'),
            r"sections\.positions\.metrics\.legal\.p\.mean: Input .* finite number \(got 'nan'",
        ),
        (_report('{"mean": "high"}'), r"legal\.p\.mean: Input should be a valid number.* \(got 'high'"),
        (_report('{"mean": 1, "ci95": 3}'), r"p\.ci95: Input should be a valid tuple \(got '3'"),
        (_report('{"mean": 1}', player="p" * 101), "player: String should have at most 100"),
        (_report('{"mean": 1}', row="m" * 200), "metric: String should have at most 200"),
        (json.dumps({"figures": [{**figure, "mean": "high"}]}), r"figures\.0\.mean: .*valid number.*'high'"),
        (
            json.dumps({"figures": [figure, figure]}),
            "two figures of 'theirs' for 'positions/metrics/legal_rate'",
        ),
    ):
        path.write_text(content)
        with pytest.raises(InvalidInput, match=rf"^against '.*paper.json': .*{why}"):
            published(path)


def _report(estimate: str, *, row: str = "legal", player: str = "p") -> str:
    return f'{{"sections": {{"positions": {{"metrics": {{"{row}": {{"{player}": {estimate}}}}}}}}}}}'


def test_the_summary_repeats_nothing_of_what_stands_beside(evaluation, tmp_path: Path) -> None:
    row = MetricRow(
        Metric("x/legal_change", "Legal", signed=True), {NAMES[0]: Cell(Estimate(-0.5, (-0.6, -0.4)))}
    )
    level = replace(row, metric=replace(row.metric, name="x/legal", signed=False))
    tables = [Table("changes", "Changes", [row]), Table("levels", "Each form", [level])]
    section = Section("brittleness", "Brittleness", "", tables)
    write(replace(evaluation, sections=[section]), tmp_path / "mine")
    beside = against(published(tmp_path / "mine" / "report.json"), [section], report={})
    assert beside.tables
    assert [row.metric.title for row in beside.tables[0].rows] == [
        "Brittleness: Legal", "Brittleness, Each form: Legal"
    ]  # fmt: skip
    assert summary([section, beside], players=NAMES) == summary([section], players=NAMES)


async def test_two_reports_of_one_name_are_refused(evaluation, tmp_path: Path) -> None:
    paths = [tmp_path / place / "same" / "report.json" for place in "ab"]
    for path in paths:
        write(evaluation, path.parent)
    settings = ArenaEvaluateSettings(
        players=("random",), sections="matches", against=tuple(paths), out=tmp_path
    )
    with pytest.raises(InvalidInput, match=r"--against: two have the same name: 'same', 'same'"):
        await run(settings)


async def test_a_dry_run_counts_answers_to_its_own_questions(tmp_path: Path) -> None:
    suite, out = tmp_path / "suite.epd", tmp_path / "out"
    suite.write_text(
        '4k3/8/8/8/8/8/4P3/4K3 w - - bm e4; id "one";\n4k3/8/8/8/8/8/4P3/4K3 b - - bm Kd7; id "two";\n'
    )
    out.mkdir()
    with open_answers(out / ANSWERS_FILE) as store:
        for key, name in enumerate(("one", "one", "puzzle 7", "server")):
            store.add(str(key), {"player": "random", "question": name, "seed": 0, "tokens": 1})
        store.add("5", {"player": "random", "question": "two", "seed": 1, "tokens": 1})
    settings = ArenaEvaluateSettings(
        players=("random",), sections="suites", suites=(suite,), out=out, dry_run=True
    )
    shown, elsewhere = io.StringIO(), settings.model_copy(update={"out": tmp_path / "new"})
    assert await run(elsewhere, console=Console(file=shown, width=100)) == {}
    assert not elsewhere.out.exists()
    with open_answers(out / ANSWERS_FILE):  # of an evaluation that goes on
        shown = io.StringIO()
        assert await run(settings, console=Console(file=shown, width=100)) == {}
    assert next(line for line in shown.getvalue().splitlines() if "random" in line).split()[:3] == [
        "random",
        "2",
        "1",
    ]
    await run(settings.model_copy(update={"dry_run": False}), console=Console(file=io.StringIO()))
    *_, one, two = map(json.loads, (out / ANSWERS_FILE).read_text().splitlines())
    for record, name in ((one, "one"), (two, "two")):  # what the viewer filters by
        assert (record["section"], record["question"], record["seed"]) == ("suites/suite", name, 0)
        assert record["outcome"] == ("solved" if record["move"] in ("e2e4", "e8d7") else "failed")
        assert record["fen"].startswith("4k3/8/8/8/8/8/4P3/4K3")

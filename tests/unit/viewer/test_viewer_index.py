"""What the viewer says about an archive, beside the same computed from its records."""

import asyncio
import gzip
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, pstdev
from types import SimpleNamespace
from typing import Literal

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery.config.trainer import TrainerSettings
from rookery.errors import InvalidInput, NotFound
from rookery.folder_lock import locked
from rookery.trace import Outcome, PolicyVersion, Trace, TraceGroup
from services.trainer.batches.advantages import advantages
from services.trainer.batches.rows import prepare_batch
from services.viewer import queries
from services.viewer.filters import Filter
from services.viewer.group import whole_group
from services.viewer.index import Index
from services.viewer.queries import Side
from services.viewer.rescoring import rescore
from services.viewer.runs import RunFolder, Runs
from tests.builders import changed
from tests.unit.rookery.records import EPISODES
from tests.viewed_runs import BATCH, SIZE, START_MS, STEPS, add_file, game_group, groups, write_run

GOLDEN = Path(__file__).parents[1] / "rookery" / "golden"


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """Two runs on the same positions, and their index."""
    folder = tmp_path_factory.mktemp("viewed")
    runs = Runs(folder / "runs")
    made = {name: write_run(runs.folder, name, seed=seed) for seed, name in enumerate(("one", "two"))}
    index = Index(folder / "index.duckdb")
    for name in made:
        index.refresh(runs.find(name))
    yield SimpleNamespace(index=index, runs=runs, groups=made["one"], others=made["two"])
    index.close()


def listed(
    viewed: SimpleNamespace, *, sort: queries.Sort = "time", descending: bool = True, **chosen: object
) -> list[str]:
    wanted = Filter.model_validate(chosen)
    rows = queries.page(viewed.index, "one", wanted, sort=sort, descending=descending, number=0)
    assert queries.summary(viewed.index, "one", wanted)["groups"] == len(rows)
    return [row["id"] for row in rows]


def surprise(trace: Trace) -> float:
    return -fmean(trace.completion.logprobs)


def length(trace: Trace) -> int:
    return len(trace.completion.token_ids)


@pytest.mark.parametrize(
    ("chosen", "passes"),
    [
        ({}, lambda g, t: True),
        ({"outcome": ["illegal"]}, lambda g, t: t.verdict.outcome is Outcome.ILLEGAL),
        ({"phase": ["middlegame"]}, lambda g, t: g.position.phase == "middlegame"),
        ({"phase": ["opening"], "version_min": 3}, lambda g, t: g.position.ply < 21 and g.policy.number > 2),
        ({"reward_min": -0.2, "reward_max": -0.05}, lambda g, t: -0.2 <= t.verdict.reward <= -0.05),
        ({"regret_min": 0.4, "length_min": 12}, lambda g, t: t.verdict.regret == 0.4 and length(t) >= 12),
        ({"surprise_min": 0.7}, lambda g, t: surprise(t) >= 0.7),
        ({"component": "delta", "component_min": 0.0}, lambda g, t: t.verdict.components.get("delta") == 0.0),
        ({"text": "THINK>A2A4"}, lambda g, t: "<think>a2a4" in t.completion.text),
        ({"text": "%' OR 1=1 --"}, lambda g, t: False),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_filter_shows_the_groups_with_an_answer_that_passes(
    viewed: SimpleNamespace, chosen, passes
) -> None:  # type: ignore[no-untyped-def]
    wanted = [g.id for g in viewed.groups if any(passes(g, t) for t in g.traces)]
    assert listed(viewed, **chosen) == wanted[::-1]
    summary = queries.summary(viewed.index, "one", Filter.model_validate(chosen))
    answers = [t.verdict for g in viewed.groups for t in g.traces if passes(g, t)]
    assert summary["answers"] == len(answers)
    if "outcome" not in chosen:
        counted = {each["outcome"]: each["count"] for each in summary["outcomes"]}
        assert counted == Counter(v.outcome for v in answers)
    assert summary["reward"] == (pytest.approx(fmean(v.reward for v in answers)) if answers else None)


def test_a_choice_is_counted_as_if_it_were_not_made_yet(viewed: SimpleNamespace) -> None:
    bins = queries.summary(viewed.index, "one", Filter(reward_min=-0.1))["bins"]
    rewards = [reward for group in viewed.groups for reward in group.rewards]
    assert sum(each["legal"] + each["other"] for each in bins) == len(rewards)
    outcomes = queries.summary(viewed.index, "one", Filter(outcome=["illegal"]))["outcomes"]
    assert {each["outcome"] for each in outcomes} == {"legal", "illegal"}
    assert (bins[0]["low"], bins[-1]["high"]) == (pytest.approx(min(rewards)), pytest.approx(max(rewards)))


def test_the_link_of_each_bar_shows_what_the_bar_counts(tmp_path: Path) -> None:
    made = write_run(tmp_path, "one", seed=0)
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    # Hundredths, of which every third is an edge but for rounding.
    index.query(f"UPDATE answers SET reward = round((g * {SIZE} + i) % 121 / 100 - 1.2, 2)")
    index.query("UPDATE groups SET reward_min = -1.2, reward_max = 0")
    bins = queries.summary(index, "one", Filter())["bins"]
    links = [Filter(reward_min=b["low"], reward_below=b["high"]) for b in bins[:-1]]
    links.append(Filter(reward_min=bins[-1]["low"]))
    counts = [queries.summary(index, "one", link)["answers"] for link in links]
    assert counts == [each["legal"] + each["other"] for each in bins]
    assert sum(counts) == SIZE * len(made)
    index.close()


def test_groups_are_sorted(viewed: SimpleNamespace) -> None:
    def by(value) -> list[float]:  # type: ignore[no-untyped-def]
        return sorted(map(value, viewed.groups))

    of = {group.id: group for group in viewed.groups}
    spread = [pstdev(of[id].rewards) for id in listed(viewed, sort="spread", descending=False)]
    assert spread == pytest.approx(by(lambda g: pstdev(g.rewards)))
    surprises = [max(map(surprise, of[id].traces)) for id in listed(viewed, sort="surprise")]
    assert surprises == pytest.approx(by(lambda g: max(map(surprise, g.traces)))[::-1])


@pytest.mark.parametrize(
    "settings",
    [{}, {"baseline": "none"}, {"normalise": False}, {"baseline": "leave-one-out"}, {"sigma_floor": 0.5}],
)
def test_advantages_are_the_trainers(tmp_path: Path, settings: dict[str, object]) -> None:
    made = write_run(tmp_path, "one", seed=0)
    lines = [
        f"{name} = {str(value).lower() if value in (True, False) else repr(value)}"
        for name, value in settings.items()
    ]
    (tmp_path / "one" / "trainer.toml").write_text("\n".join(["[trainer]", *lines]))
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    found = index.query("SELECT advantage FROM answers ORDER BY g, i")
    if settings.get("baseline") == "none":  # of the critic, for each token
        assert {row["advantage"] for row in found} == {None}
        index.close()
        return
    used = {"baseline": "group-mean", "normalise": True, **settings}
    expected = advantages([group.rewards for group in made], averages=None, **used)  # type: ignore[arg-type]
    assert [row["advantage"] for row in found] == pytest.approx([a for group in expected for a in group])
    index.close()


def game(name: str, *turns: tuple[str, float, float], result: str = "1-0") -> Trace:
    """Turns by their roles, the rewards of their verdicts, and what the environment pays."""
    (like,) = groups("one", seed=0, count=1)[0].traces[0].turns
    made = [
        replace(like, verdict=replace(like.verdict, reward=reward), rewards={"result": paid}, role=role)
        for role, reward, paid in turns
    ]
    return Trace(name, (*made[:-1], replace(made[-1], observation=f": {result}, checkmate")))


SELF_PLAY = game("0", ("white", 0, 0), ("black", 0, 1)), game("1", ("white", 0, 0), ("black", 0, 0))
BOTH_COLOURS = game("0", ("white", 0, 0), ("white", 0.5, 1)), game("1", ("black", 0, 0), ("black", 0.25, 0))


@pytest.mark.parametrize(
    ("games", "turn_rewards", "shown"),
    [
        (SELF_PLAY, "sum", [0.0, 0.5, 0.0, -0.5]),
        (BOTH_COLOURS, "sum", [0.0] * 4),
        ((game("0", *[("white", 0.5, 0)] * 2), game("1", ("white", 0.5, 0))), "mean", [0.0] * 3),
        ((game("0", *[("white", 0, 0.5)] * 2), game("1", ("white", 0, 0.5))), "mean", [0.25, 0.0, -0.25]),
    ],
    ids=["self-play", "both colours", "mean of verdicts", "sum of payments"],
)
def test_advantages_of_turns_are_the_trainers(
    tmp_path: Path, games: tuple[Trace, ...], turn_rewards: Literal["sum", "mean"], shown: list[float]
) -> None:
    group = replace(groups("one", seed=0, count=1)[0], traces=games)
    settings = TrainerSettings(model=Path(), run_dir=Path(), normalise=False, turn_rewards=turn_rewards)
    rows = prepare_batch([group], version=0, settings=settings, averages=None).rows
    trained = {each.turn: each.advantage for row in rows for each in row.completions}
    assert [trained[id] for id in group.turn_ids] == pytest.approx(shown)
    add_file(tmp_path, "one", [group], first=0)
    lines = ["[trainer]", "normalise = false", f'turn_rewards = "{turn_rewards}"']
    (tmp_path / "one" / "trainer.toml").write_text("\n".join(lines))
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    rows = index.query("SELECT advantage FROM answers ORDER BY i")
    assert [row["advantage"] for row in rows] == pytest.approx(shown)
    index.close()


@pytest.mark.parametrize("with_roles", [True, False])
def test_a_game_is_won_by_the_role_of_its_turns(tmp_path: Path, with_roles: bool) -> None:
    """The first archives with turns have no roles: there, the policy plays the side to move."""
    group = replace(groups("one", seed=0, count=1)[0], traces=(*SELF_PLAY, *BOTH_COLOURS))
    assert " b " in group.position.fen
    add_file(tmp_path, "one", [group], first=0)
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    (path,) = run.update()
    if not with_roles:
        table = pq.read_table(path)
        trace = table.schema.field("traces").type.value_type
        turn = pa.struct([field for field in trace.field("turns").type.value_type if field.name != "role"])
        traces = pa.list_(pa.struct([trace.field("id"), ("turns", pa.list_(turn))]))
        place = table.schema.get_field_index("traces")
        pq.write_table(
            pa.Table.from_pylist(table.to_pylist(), table.schema.set(place, pa.field("traces", traces))), path
        )
    index.refresh(run)
    assert index.problem("one") == ""
    results = [trace["result"] for trace in whole_group(index, run, group.id)["traces"]]
    assert results == (["won", "lost"] * 2 + ["won"] * 2 + ["lost"] * 2 if with_roles else ["lost"] * 8)
    index.close()


def test_advantages_are_not_known_before_the_trainers_settings(tmp_path: Path) -> None:
    made = write_run(tmp_path, "one", seed=0)
    kept = tmp_path / "one" / "trainer.toml"
    kept.rename(tmp_path / "trainer.toml")
    (tmp_path / "one" / "ratios" / "policy-v000002.jsonl.gz").write_bytes(
        b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 9
    )
    index, run = Index(tmp_path / "index.duckdb"), Runs(tmp_path).find("one")
    index.refresh(run)
    shown = whole_group(index, run, made[7].id)["traces"][0]
    known = [shown[name] for name in ("advantage", "ratios", "token_advantages")]
    assert known == [None, None, None]  # a damaged file of ratios is as none
    (tmp_path / "trainer.toml").rename(kept)
    index.refresh(run)
    assert index.query("SELECT count(advantage) AS n FROM answers")[0]["n"] == SIZE * len(made)
    index.close()


@pytest.mark.parametrize(
    "line", ['["one-007"]', '"one-007"', '{"ratios": "one-007"}', '{"group": "one-007", "ratios": [[1.0]]}']
)
def test_figures_that_do_not_fit_a_group_are_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "ratios").mkdir()
    with gzip.open(tmp_path / "ratios" / "policy-v000002.jsonl.gz", "wt") as file:
        file.write(line + "\n")
    figures = RunFolder("run", tmp_path, tmp_path).token_figures(2, "one-007", answers=3)
    assert figures == {"ratios": [None] * 3, "advantages": [None] * 3}


def test_a_group_is_shown_as_it_was_archived(viewed: SimpleNamespace) -> None:
    group: TraceGroup = viewed.groups[7]
    shown = whole_group(viewed.index, viewed.runs.find("one"), group.id)
    assert shown["fate"] == "trained in step 2, on version 1, at age 1"
    assert shown["policy"] == {"number": group.policy.number, "sha256": group.policy.sha256}
    assert [trace["completion"]["text"] for trace in shown["traces"]] == [
        t.completion.text for t in group.traces
    ]
    assert shown["traces"][0]["candidates"][0]["uci"] in group.traces[0].completion.text
    assert len(shown["traces"][0]["tokens"]) == len(group.traces[0].completion.token_ids)
    for name in ("ratios", "token_advantages"):
        assert [trace[name] and len(trace[name]) for trace in shown["traces"]] == [
            *(len(trace.completion.token_ids) for trace in group.traces[:-1]),
            None,
        ]
    assert (
        "not trained yet" in whole_group(viewed.index, viewed.runs.find("one"), viewed.groups[-1].id)["fate"]
    )
    with pytest.raises(NotFound, match="no group 'nothing'"):
        whole_group(viewed.index, viewed.runs.find("one"), "nothing")


def test_a_text_that_names_another_move_than_its_box_is_false(tmp_path: Path) -> None:
    (group,) = groups("one", seed=0, count=1)
    trace = next(trace for trace in group.traces if trace.verdict.move)
    said = replace(trace.completion, text=f"<think>So I play Na1.</think>\\boxed{{{trace.verdict.move.uci}}}")
    add_file(tmp_path, "one", [replace(group, traces=(changed(trace, completion=said),))], first=0)
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    index.refresh(run)
    (sentence,) = whole_group(index, run, group.id)["traces"][0]["sentences"]
    assert [(claim["concept"], claim["true"]) for claim in sentence["claims"]] == [("choice", False)]
    index.close()


def test_files_of_version_1_and_the_turns_of_version_2_are_shown(tmp_path: Path) -> None:
    """In files of version 1, a trace was one completion and its verdict."""
    first = replace(EPISODES, id="g2", run="one")
    call = replace(first.traces[1].turns[0], policy=PolicyVersion(44, "ef" * 32))
    traces = (first.traces[0], replace(first.traces[1], turns=(call, *first.traces[1].turns[1:])))
    add_file(tmp_path, "one", [replace(first, traces=traces)], first=0)
    (new,) = (tmp_path / "one").glob("**/*.parquet")
    shutil.copy(GOLDEN / "archive_v1.parquet", new.with_name(f"{START_MS - 9}-0_{START_MS - 9}-0.parquet"))
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    index.refresh(run)
    assert index.problem("one") == ""
    assert rescore(index, "one", Filter(), "best")["answers"] == 4, "all but the call"
    rows = index.query("SELECT id, size, reward_mean, reward_max FROM groups ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [
        ("g1", 2, pytest.approx(-0.6625), -0.125),
        ("g2", 3, pytest.approx(0.375), 0.875),  # 1 - 0.125 and -0.125
    ]
    answers = index.query(
        "SELECT episode, turn, version, outcome, reward, length FROM answers ORDER BY g DESC, i"
    )
    assert [tuple(row.values()) for row in answers[:3]] == [
        (0, 0, 43, "legal", 0.875, 2),
        (1, 0, 44, "call", 0.0, 1),
        (1, 1, 42, "legal", -0.125, 2),
    ]
    assert [row["outcome"] for row in answers[3:]] == ["legal", "no_box"]
    shown = whole_group(index, run, "g2")["traces"]
    assert [(t["id"], t["turn"], t["verdict"]["outcome"], t["observation"]) for t in shown] == [
        ("g1-0", 0, "legal", "You won."),
        ("g1-1", 0, "call", "Legal moves: e4"),
        ("g1-1", 1, "legal", ""),
    ]
    assert shown[0]["verdict"]["components"] == {"regret": -0.125, "format": 0.0, "result": 1.0}
    assert [t["id"] for t in whole_group(index, run, "g1")["traces"]] == ["g1-0", "g1-1"]
    index.close()


def test_every_trained_group_has_its_step(viewed: SimpleNamespace) -> None:
    rows = viewed.index.query("SELECT id, step, age, version FROM groups WHERE run = 'one' ORDER BY g")
    assert [row["step"] for row in rows] == [n // BATCH + 1 for n in range(BATCH * STEPS)] + [None] * BATCH
    assert all(row["age"] == row["step"] - 1 - row["version"] for row in rows if row["step"])


def test_a_run_says_how_far_it_came_and_how_to_go_on(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    run, folder = Runs(tmp_path).find("one"), tmp_path / "one"
    first, *_, last = run.metrics()
    assert (run.course()["state"], run.course()["change"]["reward"]) == (
        "stopped",
        [first["reward"], last["reward"]],
    )
    for goal, state, steps in ((STEPS, "ended", 2 * STEPS), (STEPS + 2, "interrupted", STEPS + 2)):
        (folder / "settings.json").write_text(json.dumps({"steps": goal, "eval_positions": 5}))
        course = run.course()
        assert (course["state"], course["step"], course["goal"]) == (state, STEPS, goal)
        assert course["go_on"] == f"rookery demo --run one --runs-dir {tmp_path} --steps {steps}"
    with locked(folder):
        assert (run.course()["state"], run.course()["go_on"]) == ("running", "")
    (folder / "settings").mkdir()
    (folder / "settings" / "reward.toml").write_text('[reward]\nscheme = "delta+0.5*mate"\n')
    assert run.scheme() == "delta+0.5*mate"
    (folder / "settings.json").unlink()
    assert run.course()["state"] == "unknown"


def test_the_manifest_of_a_run_has_its_id_and_its_starts(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    run, file = Runs(tmp_path).find("one"), tmp_path / "one" / "run.json"
    assert run.manifest() == {}
    starts = [
        {"time": 1.0, "command": f"rookery up --seed {n}", "commit": "", "version": "1"} for n in (0, 1)
    ]
    file.write_text(json.dumps({"id": "0123", "starts": starts}))
    shown = {"id": "0123", "starts": 2, "first_start": starts[0], "last_start": starts[1]}
    assert run.manifest() == shown
    for damaged in ("", "[]", '{"id": 7}', '{"id": "0123", "starts": [7]}', '{"id":' * 10**5):
        file.write_text(damaged)
        assert run.manifest() == {}
    for line in ("7", "[" * 10**4):  # the list of runs asks each of them
        (run.path / "metrics.jsonl").write_text(f"{line}\n")
        assert run.last_step() == {}


def test_a_renamed_run_keeps_its_name_in_redis(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    (tmp_path / "one" / "endpoints.json").write_text('{"run": "one"}')
    (tmp_path / "one").rename(tmp_path / "two")
    assert Runs(tmp_path).find("two").streams_name == "one"
    (tmp_path / "two" / "endpoints.json").write_text('{"run": "../one"}')
    assert Runs(tmp_path).find("two").streams_name == "two"


def test_of_many_answers_the_histograms_are_of_some_groups(
    viewed: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MOST_MEASURED", len(viewed.groups) * SIZE // 3)
    found = queries.collapse(viewed.index, "one")
    (counted,) = viewed.index.query("SELECT count(*) AS groups FROM groups WHERE run = 'one' AND g % 3 = 0")
    assert (found["every"], 0 < counted["groups"] < len(viewed.groups)) == (3, True)
    counts = {name: sum(map(sum, each["counts"])) for name, each in found["histograms"].items()}
    assert (counts["length"], counts["entropy"]) == (counted["groups"] * SIZE, counted["groups"])


def test_each_version_has_a_histogram_of_each_measure(viewed: SimpleNamespace) -> None:
    found = queries.collapse(viewed.index, "one")
    values = {
        "reward": lambda group: group.rewards,
        "length": lambda group: map(length, group.traces),
        "surprise": lambda group: map(surprise, group.traces),
        "entropy": lambda group: [
            -fmean(logprob for trace in group.traces for logprob in trace.completion.logprobs)
        ],
    }
    assert found["histograms"].keys() == {*values, "advantage"} == found["quantiles"].keys()
    for name, values_of in values.items():
        histogram = found["histograms"][name]
        low, width, counts = histogram["low"], histogram["width"], histogram["counts"]
        for version, bars in zip(found["versions"], counts, strict=True):
            groups = [group for group in viewed.groups if group.policy.number == version]
            measured = [value for group in groups for value in values_of(group)]
            assert sum(bars) == len(measured)
            # A value on an edge may count on either side of it.
            for bar in range(1, queries.BARS - 1):
                left, right = low + bar * width, low + (bar + 1) * width
                inside = sum(left + 1e-9 < value < right - 1e-9 for value in measured)
                assert inside <= bars[bar] <= sum(left - 1e-9 <= value <= right + 1e-9 for value in measured)
    assert found["histograms"]["length"]["low"] % 1 == 0.5


def test_groups_without_answers_have_empty_histograms(tmp_path: Path) -> None:
    add_file(
        tmp_path, "one", [replace(group, traces=()) for group in groups("one", seed=0, count=3)], first=0
    )
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    found = queries.collapse(index, "one")
    index.close()
    assert (found["versions"], found["every"]) == ([0], 1)
    assert [sum(map(sum, each["counts"])) for each in found["histograms"].values()] == [0] * 5


def test_distributions_and_outcomes_are_counted_by_version(viewed: SimpleNamespace) -> None:
    found = queries.collapse(viewed.index, "one")
    for place, version in enumerate(found["versions"]):
        traces = [t for g in viewed.groups if g.policy.number == version for t in g.traces]
        lengths = [length(trace) for trace in traces]
        assert found["quantiles"]["length"][1][place] == median(lengths)
        low, high = (found["quantiles"]["length"][n][place] for n in (0, 2))
        assert min(lengths) <= low <= median(lengths) <= high <= max(lengths)
        legal = fmean(trace.verdict.outcome is Outcome.LEGAL for trace in traces)
        assert found["outcomes"]["legal"][place] == pytest.approx(legal)
        assert sum(shares[place] for shares in found["outcomes"].values()) == pytest.approx(1.0)


def test_collapse_is_counted_by_version(viewed: SimpleNamespace) -> None:
    found = queries.collapse(viewed.index, "one")
    assert found["versions"] == sorted({group.policy.number for group in viewed.groups})
    for place, version in enumerate(found["versions"]):
        mine = [group for group in viewed.groups if group.policy.number == version]
        sans = [t.verdict.move.san for g in mine for t in g.traces if t.verdict.move]
        assert found["pieces"]["N"][place] == pytest.approx(sum(san[0] == "N" for san in sans) / len(sans))
        equal = fmean(len(set(group.rewards)) == 1 for group in mine)
        assert found["series"]["zero_variance"][place] == pytest.approx(equal)


def test_two_versions_on_the_positions_that_both_have(tmp_path: Path) -> None:
    made = groups("one", seed=0, count=8)
    again = [
        replace(group, id=f"{group.id}-again", policy=PolicyVersion(5, "5" * 64), traces=other.traces)
        for group, other in zip(made, groups("one", seed=1, count=8), strict=True)
    ]
    add_file(tmp_path, "one", [*made, *again], first=0)
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    found = queries.compare(index, Side("one", high=4), Side("one", low=5), number=0)
    assert (found["positions"], found["empty"]) == (8, [])
    changes = [fmean(b.rewards) - fmean(a.rewards) for a, b in zip(made, again, strict=True)]
    assert found["difference"] == pytest.approx(fmean(changes))
    sizes = [abs(row["second"] - row["first"]) for row in found["rows"]]
    assert sizes == pytest.approx(sorted(map(abs, changes), reverse=True)), "the largest first"
    assert {row["second_version"] for row in found["rows"]} == {5}
    assert [len(row["first_answers"]) for row in found["rows"]] == [SIZE] * 8
    same = queries.compare(index, Side("one", low=5), Side("one", low=5), number=0)["rows"][0]
    assert same["first_answers"] == same["second_answers"]
    assert queries.compare(index, Side("one"), Side("one", low=6), number=0)["empty"] == ["one"]
    index.close()


def test_two_runs_on_the_same_positions(viewed: SimpleNamespace) -> None:
    found = queries.compare(viewed.index, Side("one"), Side("two"), number=0)
    assert found["indexing"] == []
    differences = [
        fmean(b.rewards) - fmean(a.rewards) for a, b in zip(viewed.groups, viewed.others, strict=True)
    ]
    assert found["positions"] == len(differences)
    assert found["difference"] == pytest.approx(fmean(differences))
    assert abs(found["rows"][0]["second"] - found["rows"][0]["first"]) == pytest.approx(
        max(map(abs, differences))
    )
    assert len(found["rows"]) <= found["page_size"] == queries.PAGE
    row = found["rows"][0]
    for runs in (["one", "two"], ["two"]):
        on_it = queries.history(viewed.index, row["position"], row["fen"], runs)
        assert [group["run"] for group in on_it] == runs
    assert found["empty"] == []
    unread = queries.compare(viewed.index, Side("one"), Side("three"), number=0)
    assert unread["empty"] == unread["indexing"] == ["three"]


def test_the_same_scheme_changes_nothing_and_another_some_signs(viewed: SimpleNamespace) -> None:
    same = rescore(viewed.index, "one", Filter(), "delta")
    assert same["signs"] == {"kept": same["answers"], "flipped": 0, "silenced": 0, "awakened": 0}
    best = rescore(viewed.index, "one", Filter(), "best")
    assert best["signs"]["flipped"] > 0
    for row in best["rows"]:
        of = next(group for group in viewed.groups if group.id == row["id"])
        expected = [1.0 if t.verdict.regret == 0.0 else 0.0 if t.verdict.move else -0.2 for t in of.traces]
        assert [answer["rescored"] for answer in row["answers"]] == expected
    with pytest.raises(InvalidInput, match="rookery rescore"):
        rescore(viewed.index, "one", Filter(), "minmax")


def test_answers_without_evaluations_are_left_out_of_means(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    index = Index(tmp_path / "index.duckdb")
    index.refresh(Runs(tmp_path).find("one"))
    index.query("UPDATE groups SET win_before = NULL WHERE id = 'one-000'")
    index.query("UPDATE answers SET regret = NULL")
    assert queries.summary(index, "one", Filter())["regret"] is None
    assert rescore(index, "one", Filter(), "best")["left_out"] == 1
    index.query("UPDATE answers SET episode = 0 WHERE g IN (SELECT g FROM groups WHERE id = 'one-001')")
    assert rescore(index, "one", Filter(), "best")["left_out"] == 2, "a game of several moves"
    index.close()


def test_new_files_are_added_and_broken_ones_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made, runs = groups("live", seed=0), Runs(tmp_path)
    add_file(tmp_path, "live", made[:5], first=0)
    index = Index(tmp_path / "index.duckdb")
    index.open(runs.find("live"))
    assert index.progress("live") == (1, 1)
    add_file(tmp_path, "live", made[5:], first=5)
    broken = next(iter(runs.find("live").update())).with_name("1763721014100-0_1763721014101-0.parquet")
    broken.write_bytes(b"PAR1 and nothing more")
    index.refresh(runs.find("live"))
    assert [row["id"] for row in index.query("SELECT id FROM groups ORDER BY g")] == [
        group.id for group in made
    ]
    index.refresh(runs.find("live"))
    assert caplog.text.count("is not a file of groups") == 1
    assert (index.progress("live"), index.problem("live")) == ((2, 2), "1 unreadable file left out")
    broken.write_bytes(next(iter(runs.find("live").update())).read_bytes())
    index.refresh(runs.find("live"))
    assert (index.progress("live"), index.problem("live")) == ((3, 3), "")
    index.close()


def test_a_run_made_anew_replaces_its_rows_and_other_files_are_left_out(tmp_path: Path) -> None:
    runs, index = Runs(tmp_path), Index(tmp_path / "index.duckdb")
    add_file(tmp_path, "live", groups("live", seed=0)[:5], first=0)
    index.refresh(runs.find("live"))
    (file,) = runs.find("live").update()
    file.unlink()
    add_file(tmp_path, "live", groups("live", seed=1)[5:8], first=5)
    next(iter(runs.find("live").update())).with_name("notes.parquet").write_bytes(b"")
    index.refresh(runs.find("live"))
    assert [row["id"] for row in index.query("SELECT id FROM groups ORDER BY g")] == [
        f"live-00{number}" for number in (5, 6, 7)
    ]
    assert index.query("SELECT count(*) AS n FROM answers") == [{"n": 12}]
    index.close()


def test_a_failure_is_said_and_does_not_last(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_run(tmp_path, "one", seed=0)
    runs, index = Runs(tmp_path), Index(tmp_path / "index.duckdb")
    metrics = tmp_path / "one" / "metrics.jsonl"
    whole = metrics.read_text()
    metrics.write_text("no JSON\n" + whole)
    index.refresh(runs.find("one"))
    assert "not up to date" in index.problem("one")
    assert "run one cannot be indexed" in caplog.text
    metrics.write_text(whole)
    index.refresh(runs.find("one"))
    assert index.problem("one") == ""
    index.close()


def test_a_run_that_goes_back_to_an_earlier_version_has_its_new_steps(tmp_path: Path) -> None:
    made = write_run(tmp_path, "one", seed=0)
    runs, index = Runs(tmp_path), Index(tmp_path / "index.duckdb")
    index.refresh(runs.find("one"))
    state = runs.find("one").newest_commit()
    assert state is not None
    ledger = [f"{group.id}:00" for group in (*made[:4], *made[-4:])]
    state.write_text(json.dumps({"number": 2, "ledger": ledger}))
    index.refresh(runs.find("one"))
    steps = [row["step"] for row in index.query("SELECT step FROM groups ORDER BY g")]
    assert steps == [1] * 4 + [None] * (len(made) - 8) + [2] * 4
    index.close()


def test_a_step_that_was_abandoned_says_so(tmp_path: Path) -> None:
    """The run goes back from version 8 to 4, which is copied as 9, and makes version 10."""
    made = write_run(tmp_path, "one", seed=0)
    folder = tmp_path / "one"
    kept = [f"{group.id}:00" for group in made[: BATCH * 4]]
    ledgers = {9: kept, 10: [*kept, *(f"{group.id}:00" for group in made[-BATCH:])]}
    for number, ledger in ledgers.items():
        (folder / "adapters" / f"policy-v{number:06d}").mkdir()
        state = {"number": number, "ledger": ledger, "went_back_to": 4}
        (folder / "adapters" / f"policy-v{number:06d}" / "state.json").write_text(json.dumps(state))
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"version": 10, "step": 10, "groups": BATCH, "time": 0.0}) + "\n")
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    index.refresh(run)
    steps = [row["step"] for row in index.query("SELECT step FROM groups ORDER BY g")]
    expected = [n // BATCH + 1 for n in range(BATCH * 4)] + [None] * (BATCH * 4) + [10] * BATCH
    assert steps == expected
    shown = whole_group(index, run, made[BATCH * 5].id)
    assert shown["fate"] == "trained in step 6, which was abandoned: the run went back to an earlier version"
    assert shown["traces"][0]["ratios"]
    index.close()


def test_the_addresses_of_a_run_are_used_while_it_is_up(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    probes = {"probes": {"inference": "http://localhost:8000/readyz"}}
    (tmp_path / "one" / "endpoints.json").write_text(json.dumps(probes))
    run = Runs(tmp_path).find("one")
    assert run.service_url("inference") == ""
    with locked(run.path):
        assert run.service_url("inference") == "http://localhost:8000"
    assert run.service_url("inference") == ""


def test_a_run_is_found_by_its_name_alone(viewed: SimpleNamespace) -> None:
    assert viewed.runs.names() == ["two", "one"] or viewed.runs.names() == ["one", "two"]
    for name in ("../runs/one", "..", "", "one/adapters", "nothing"):
        with pytest.raises(NotFound):
            viewed.runs.find(name)


def test_a_renamed_run_keeps_its_answers_and_leaves_no_other(tmp_path: Path) -> None:
    made = write_run(tmp_path / "runs", "old", seed=0)
    (tmp_path / "runs" / "old").rename(tmp_path / "runs" / "new")
    runs, index = Runs(tmp_path / "runs"), Index(tmp_path / "index.duckdb")
    assert runs.names() == ["new"]
    index.refresh(runs.find("new"))
    assert index.progress("new") == (2, 2)
    assert whole_group(index, runs.find("new"), made[7].id)["step"] == 2
    with pytest.raises(NotFound):
        runs.find("old")
    index.close()


def test_an_archive_elsewhere_is_found_by_the_names_in_it(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "one", seed=0)
    (tmp_path / "runs" / "one" / "archive").rename(tmp_path / "archive")
    (tmp_path / "archive" / "run=one").rename(tmp_path / "archive" / "run=two")
    runs = Runs(tmp_path / "runs", tmp_path / "archive")
    assert {name: len(runs.find(name).update()) for name in runs.names()} == {"one": 0, "two": 2}


def test_queries_at_the_same_time(viewed: SimpleNamespace) -> None:
    async def many() -> list[object]:
        ask = lambda: queries.summary(viewed.index, "one", Filter())  # noqa: E731
        return list(await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(16))))

    found = asyncio.run(many())
    assert found == [found[0]] * 16


@pytest.mark.parametrize("side", ["w", "b"])
def test_a_game_that_the_opponent_begins_is_shown_with_its_first_move(tmp_path: Path, side: str) -> None:
    fen = f"rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R {side} KQkq - 0 3"
    add_file(tmp_path, "one", [game_group("one", fen=fen, colours="both")], first=0)
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    index.refresh(run)
    shown = whole_group(index, run, "games")["traces"]
    assert [(trace["turn"], len(trace["before"])) for trace in shown] == [
        *((turn, 0) for turn in range(6)),
        *((turn, int(turn == 0)) for turn in range(3)),
    ]
    board, sides = chess.Board(fen), []
    for trace in shown[6:]:
        for move in trace["before"]:
            board.push_uci(move["uci"])
            assert move["fen"] == board.fen()
        assert trace["real_fen"] == board.fen()
        assert trace["mirrored"] == (not board.turn)
        sides.append(board.turn)
        for move in trace["played"]:
            board.push_uci(move["uci"])
    assert sides == [side == "b"] * 3
    assert len(board.move_stack) == 1 + 4
    assert [trace["result"] for trace in shown[6:]] == ["lost"] * 3
    index.close()


@pytest.mark.parametrize("side", ["w", "b"])
def test_a_game_is_shown_as_it_was_played(tmp_path: Path, side: str) -> None:
    """The prompts of this style mirror the board if Black moves: the game is shown unmirrored."""
    fen = f"rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R {side} KQkq - 0 3"
    made = game_group("one", fen=fen)
    add_file(tmp_path, "one", [made, *groups("one", seed=0, count=1)], first=0)
    run, index = Runs(tmp_path).find("one"), Index(tmp_path / "index.duckdb")
    index.refresh(run)
    assert queries.extent(index, "one")["kinds"] == ["game", "move"]
    shown = whole_group(index, run, "games")["traces"]
    assert [trace["turn"] for trace in shown] == [*range(6), *range(3)]
    assert [trace["result"] for trace in shown] == ["drawn"] * 6 + ["lost"] * 3
    board = chess.Board(fen)
    for trace in shown[:6]:
        assert trace["real_fen"] == board.fen()
        assert trace["mirrored"] == (side == "b")
        for move in trace["played"]:
            board.push_uci(move["uci"])
            assert move["fen"] == board.fen()
    assert len(board.move_stack) == 12
    assert shown[8]["played"] == []
    chosen = {
        "kind": Filter(episode=["game"]),
        "result": Filter(result=["lost"]),
        "turn": Filter(turn_min=5),
        "nothing": Filter(result=["won"]),
    }
    answers = {name: queries.summary(index, "one", which)["answers"] for name, which in chosen.items()}
    assert answers == {"kind": 9, "result": 3, "turn": 2, "nothing": 0}
    index.close()

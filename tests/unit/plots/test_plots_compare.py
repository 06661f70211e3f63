"""Runs found, grouped by configuration, compared with intervals."""

import json
import math
import random
from itertools import pairwise
from pathlib import Path

import pytest

from launcher.plots.comparison import Interval, block_means, compare, over_blocks, over_seeds
from launcher.plots.runs import find_runs, group_seeds, ungrouped
from rookery.command_line import main
from rookery.errors import InvalidInput, NotFound, SetupError


def make_run(
    folder: Path, *, level: float, seed: int, steps: int = 60, settings: dict[str, object] | None = None
) -> Path:
    """Rewards around `level`, with noise of deviation 0.1 from `seed`."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    lines = [
        {"step": i + 1, "reward": level + rng.gauss(0, 0.1), "kl_behaviour_age0": 0.1} for i in range(steps)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if settings is not None:
        (folder / "settings.json").write_text(json.dumps({**settings, "seed": seed, "run": folder.name}))
    return folder


@pytest.fixture
def four(tmp_path: Path) -> Path:
    """Two seeds of each of two configurations, half a point apart."""
    for seed in (0, 1):
        make_run(tmp_path / f"slow-{seed}", level=-1.0, seed=seed, settings={"lr": 1})
        make_run(tmp_path / f"fast-{seed}", level=-0.5, seed=seed, settings={"lr": 2})
    return tmp_path


def test_runs_by_name_by_folder_and_all_of_a_folder(four: Path) -> None:
    by_name = find_runs(["slow-0"], runs_dir=four)
    by_folder = find_runs([str(four / "slow-0")], runs_dir=Path("nowhere"))
    assert by_name == by_folder
    everything = find_runs([str(four)], runs_dir=Path("nowhere"))
    assert [run.name for run in everything] == ["fast-0", "fast-1", "slow-0", "slow-1"]


def test_what_is_no_run_is_said(four: Path) -> None:
    with pytest.raises(SetupError, match=r"no run 'lost'.*runs in .*fast-0, fast-1"):
        find_runs(["lost"], runs_dir=four)
    (four / "empty").mkdir()
    with pytest.raises(NotFound, match=r"no metrics.jsonl in '.*empty'"):
        find_runs(["empty"], runs_dir=four)
    with pytest.raises(InvalidInput, match="named twice"):
        find_runs(["slow-0", str(four / "slow-0")], runs_dir=four)
    (four / "slow-0" / "metrics.jsonl").write_text("")
    with pytest.raises(InvalidInput, match="no steps yet"):
        find_runs(["slow-0"], runs_dir=four)


def test_settings_that_are_no_object_are_named(four: Path) -> None:
    (four / "slow-0" / "settings.json").write_text("[1]")
    with pytest.raises(InvalidInput, match=r"settings\.json: not a JSON object: '\[1\]'"):
        find_runs(["slow-0"], runs_dir=four)


def test_seeds_of_one_configuration_belong_together(four: Path) -> None:
    groups = group_seeds(find_runs([str(four)], runs_dir=four))
    assert [[run.name for run in group.runs] for group in groups] == [
        ["fast-0", "fast-1"],
        ["slow-0", "slow-1"],
    ]


def test_runs_that_say_nothing_of_their_settings_stand_alone(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"run-{seed}", level=0.0, seed=seed)
    assert len(group_seeds(find_runs([str(tmp_path)], runs_dir=tmp_path))) == 2


def test_the_trainers_own_settings_are_read(tmp_path: Path) -> None:
    for seed, lr in enumerate((1, 1, 2)):
        folder = make_run(tmp_path / f"run-{seed}", level=0.0, seed=seed)
        (folder / "sft.toml").write_text(f'[sft]\nlr = {lr}\nseed = {seed}\nout = "{folder}"\n')
    groups = group_seeds(find_runs([str(tmp_path)], runs_dir=tmp_path))
    assert [len(group.runs) for group in groups] == [2, 1]


def test_seeds_on_other_devices_and_with_stores_of_their_own_belong_together(tmp_path: Path) -> None:
    for seed, lr in enumerate((1, 1, 2)):
        store = f"s3://bucket/run-{seed}"
        where = {"trainer_device": str(seed), "set": [f"trainer.store={store}", f"trainer.lr={lr}"]}
        folder = make_run(tmp_path / f"run-{seed}", level=0.0, seed=seed, settings=where)
        (folder / "trainer.toml").write_text(f'[trainer]\nlr = {lr}\nstore = "{store}"\ndevice = "{seed}"\n')
    groups = group_seeds(find_runs([str(tmp_path)], runs_dir=tmp_path))
    assert [len(group.runs) for group in groups] == [2, 1]


def test_an_alias_of_a_kl_is_the_same_configuration(tmp_path: Path) -> None:
    for seed, kl in enumerate(("forward", "policy_reference", "reverse")):
        folder = make_run(
            tmp_path / f"run-{seed}", level=0.0, seed=seed, settings={"set": [f"trainer.kl={kl}"]}
        )
        (folder / "trainer.toml").write_text(f'[trainer]\nkl = "{kl}"\n')
    groups = group_seeds(find_runs([str(tmp_path)], runs_dir=tmp_path))
    assert [len(group.runs) for group in groups] == [2, 1]


def test_a_difference_between_configurations_is_found_over_seeds(four: Path) -> None:
    groups = group_seeds(find_runs([str(four)], runs_dir=four))
    found = compare(groups, window=0.2, keys=["reward"], seed=0)
    assert found.method.startswith("Student's t over seeds")
    assert found.window_steps == (12, 12)
    first, second = found.figures
    assert first.difference is None
    assert second.difference is not None
    assert second.difference.mean == pytest.approx(second.value.mean - first.value.mean)
    assert second.difference.mean < -0.4


def test_runs_of_the_same_seed_are_compared_in_pairs(four: Path) -> None:
    """The seed gives both runs the same noise, which cancels in their difference."""
    groups = group_seeds(find_runs([str(four)], runs_dir=four))
    paired = compare(groups, window=0.2, keys=["reward"], seed=0)
    assert "over pairs of runs of the same seed" in paired.method
    difference = paired.figures[1].difference
    assert difference is not None
    assert (difference.low, difference.high) == pytest.approx((-0.5, -0.5))
    make_run(four / "slow-2", level=-1.0, seed=2, settings={"lr": 1})
    groups = group_seeds(find_runs([str(four)], runs_dir=four))
    unlike = compare(groups, window=0.2, keys=["reward"], seed=0)
    assert "Welch" in unlike.method
    assert unlike.figures[1].difference != difference


def test_the_held_out_figures_of_a_demo_are_compared_too(four: Path) -> None:
    def report(**players: float) -> dict[str, object]:
        cells = {name.replace("_", "-"): {"mean": mean, "ci95": None} for name, mean in players.items()}
        return {"sections": {"positions": {"metrics": {"regret_legal": cells}, "note": "none"}}}

    for number, folder in enumerate(sorted(four.iterdir())):
        told = report(policy_v000000=0.9, policy_v000060=number / 10, random=0.5)
        (folder / "report.json").write_text(json.dumps(told))
    groups = group_seeds(find_runs([str(four)], runs_dir=four))
    first, second = compare(groups, window=0.2, keys=["evaluation_*"], seed=0).figures
    assert (first.key, first.value.mean) == ("evaluation_regret_legal", pytest.approx(0.05))
    assert second.value.mean == pytest.approx(0.25)
    (four / "slow-0" / "report.json").write_text('{"accuracy": 0.7}')  # of a reward model
    assert "evaluation_regret_legal" not in find_runs(["slow-0"], runs_dir=four)[0].steps[-1]
    (four / "slow-0" / "report.json").write_text("[]")
    with pytest.raises(InvalidInput, match=r"slow-0/report.json: not a report"):
        find_runs(["slow-0"], runs_dir=four)


def test_the_window_is_the_end_of_each_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        lines = [{"step": i, "reward": float(i > 80)} for i in range(1, 101)]
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = compare(ungrouped(find_runs([str(tmp_path)], runs_dir=tmp_path)), window=0.2, keys=[], seed=0)
    assert found.figures[0].value.mean == 1.0
    assert found.figures[0].value.low == found.figures[0].value.high == 1.0


def test_a_missing_statistic_is_said(four: Path) -> None:
    with pytest.raises(InvalidInput, match="no statistic of speed is in all runs; they share"):
        compare(group_seeds(find_runs([str(four)], runs_dir=four)), window=0.5, keys=["speed"], seed=0)


def test_blocks_of_like_neighbours_give_a_wider_interval_than_seeds_would() -> None:
    """Twenty blocks of fifty equal values are no thousand independent draws."""
    rng = random.Random(0)
    values = [level for _ in range(20) for level in [rng.gauss(0, 1)] * 50]
    mean = math.fsum(values) / len(values)
    blocks, singles = over_blocks(block_means(values, seed=0), mean), over_seeds(values)
    assert blocks.high - blocks.low > 2 * (singles.high - singles.low)
    assert blocks.low < mean < blocks.high


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_a_few_steps_have_no_interval_and_no_star(
    steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for level in (0.0, 5.0):
        make_run(tmp_path / f"at-{level:g}", level=level, seed=int(level), steps=steps)
    assert main(["compare", str(tmp_path), "--window", "1", "--keys", "reward", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["figures"]
    assert (first["value"]["low"], second["difference"]["high"]) == (None, None)
    assert main(["compare", str(tmp_path), "--window", "1", "--keys", "reward"]) == 0
    table = capsys.readouterr().out
    assert "no interval" in table and "inf]" not in table
    assert "*" not in table


def test_equal_figures_have_no_interval_and_no_star(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for level, rate in ((0, 0.5), (1, 1.0)):
        folder = make_run(tmp_path / f"at-{level}", level=level, seed=level)
        lines = [json.dumps({"step": step, "legal_rate": rate}) for step in range(1, 61)]
        (folder / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    assert main(["compare", str(tmp_path), "--keys", "legal_rate"]) == 0
    table = capsys.readouterr().out
    assert table.count("all equal") == 3 and "*" not in table


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_the_interval_covers_the_truth_as_often_as_it_says(seeds: int) -> None:
    """Normal draws, 1000 differences of unlike spread: 950 would be exact, Welch errs on the wide side."""
    rng = random.Random(1)
    hits = 0
    for _ in range(1000):
        wide = [rng.gauss(0, 3) for _ in range(seeds)]
        found = over_seeds([rng.gauss(0, 1) for _ in range(seeds)], wide)
        hits += found.low <= 0 <= found.high
    assert 930 <= hits <= 990


def test_seeds_without_any_spread_have_an_interval_of_none() -> None:
    assert over_seeds([1.0, 1.0], [0.5, 0.5]) == Interval(0.5, 0.5, 0.5)


def test_plot_writes_beside_the_run(four: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(four / "slow-0")]) == 0
    assert (four / "slow-0" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "2 panels, 60 steps, 1 run" in " ".join(capsys.readouterr().out.split())


def test_plot_draws_several_runs_and_only_what_is_asked(four: Path) -> None:
    out = four / "both.svg"
    assert (
        main(["plot", "slow-0", "fast-0", "--runs-dir", str(four), "--out", str(out), "--keys", "rew*"]) == 0
    )
    assert out.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["plot", "lost"], "no run 'lost'"),
        (["plot", "slow-0", "--out", "x.txt"], "must end in .png"),
        (["plot", "slow-0", "--keys", "speed"], "nothing to draw: no step has any of speed"),
        (["compare", "slow-0"], "is the only run: name another to compare it with"),
        (["compare", "slow-0", "slow-1"], "--separate"),
    ],
)
def test_mistakes_are_said(
    four: Path, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--runs-dir", str(four)]) == 2
    assert said in capsys.readouterr().err


def test_compare_prints_json_and_draws(four: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = four / "comparison.png"
    assert main(["compare", str(four), "--json", "--out", str(out), "--keys", "reward"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["configurations"] == ["fast-0 (2 seeds)", "slow-0 (2 seeds)"]
    assert [figure["key"] for figure in found["figures"]] == ["reward", "reward"]
    assert out.exists()


def test_compare_prints_a_table(
    four: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.width", property(lambda self: 200))
    assert main(["compare", "slow-0", "fast-0", "--runs-dir", str(four)]) == 0
    said = capsys.readouterr().out
    row, below = next(pair for pair in pairwise(said.splitlines()) if " fast-0 " in pair[0])
    assert row.rstrip().endswith("*")
    assert below.count("[") == 2
    assert "blocks of 3 consecutive steps" in said

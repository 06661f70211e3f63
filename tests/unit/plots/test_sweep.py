"""The runs that `rookery sweep` makes, and the effects that `rookery compare --effects` finds in them."""

import json
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from rich.console import Console

from launcher.command import main
from launcher.plots.comparison import effects
from launcher.plots.runs import Run, changes_of, find_runs
from launcher.settings import DemoSettings
from launcher.sweep import screening
from launcher.up import INTERRUPTED
from rookery.errors import InvalidInput


@pytest.mark.parametrize(("factors", "runs"), [(1, 8), (4, 8), (5, 16), (8, 16), (9, 24), (12, 24)])
def test_any_three_factors_have_each_combination_equally_often(factors: int, runs: int) -> None:
    design = screening(factors)
    assert len(design) == runs
    assert design[0] == (False,) * factors
    for three in combinations(range(factors), min(3, factors)):
        found = Counter(tuple(row[factor] for factor in three) for row in design)
        assert len(found) == 2 ** len(three)
        assert len(set(found.values())) == 1


RANK = "trainer.lora_rank=32 trainer.lora_alpha=64"
EFFECTS = {"trainer.lr=2e-3": 0.0, RANK: -0.25, "batch_groups=64": 0.5}


def record(run: DemoSettings, *, noise: random.Random) -> None:
    """Writes the folder of a run whose reward is the sum of the effects, of twice its seed, and of noise."""
    folder = run.runs_dir / run.run
    folder.mkdir(parents=True)
    changes = {*run.set, f"batch_groups={run.batch_groups}"}
    effect = sum(value for change, value in EFFECTS.items() if change.split()[0] in changes)
    reward = 1 + effect + 2 * run.seed + noise.gauss(0, 0.01)
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": reward}) + "\n")
    (folder / "settings.json").write_text(run.model_dump_json())
    (folder / "report.json").write_text("{}")


@pytest.fixture
def demos(monkeypatch: pytest.MonkeyPatch) -> list[DemoSettings]:
    """The runs that the sweep made. A run takes no time."""
    made, noise = list[DemoSettings](), random.Random(0)

    def demo(run: DemoSettings, _: Console) -> int:
        if len(made) == 5 and made[-1].run != "interrupted":
            made.append(run.model_copy(update={"run": "interrupted"}))
            return INTERRUPTED
        made.append(run)
        record(run, noise=noise)
        return 0

    monkeypatch.setattr("launcher.sweep.demo", demo)
    return made


def sweep(folder: Path, *more: str) -> int:
    vary = [flag for change in EFFECTS for flag in ("--vary", change)]
    return main(["sweep", *vary, "--runs-dir", str(folder), "--steps", "1", *more])


def test_a_sweep_goes_on_where_it_was_and_finds_the_effects(
    tmp_path: Path, demos: list[DemoSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(tmp_path, "--together") == INTERRUPTED
    assert sweep(tmp_path, "--together") == 0
    assert [run.run for run in demos if run.run != "interrupted"] == [f"sweep-0{i}" for i in range(8)]
    assert demos[0].set == ()
    assert demos[1].set == ("trainer.lr=2e-3", "trainer.lora_rank=32", "trainer.lora_alpha=64")
    assert demos[1].batch_groups == 64
    assert sweep(tmp_path, "--together") == 0  # nothing is left to do
    assert len(demos) == 9

    runs = find_runs([str(tmp_path)], runs_dir=tmp_path)
    assert [*changes_of(runs)] == ["batch_groups=64", "lr=2e-3", "lora_rank=32 lora_alpha=64"]
    first, batch, lr, rank = effects(runs, window=0.2, keys=["reward"]).figures
    assert first.value.mean == pytest.approx(1 + 2 * 1, abs=0.02)
    assert first.difference is None
    for figure, effect in ((batch, 0.5), (lr, 0.0), (rank, -0.25)):
        assert figure.difference is not None
        assert figure.difference.mean == pytest.approx(effect, abs=0.02)
        assert figure.value.mean == pytest.approx(first.value.mean + figure.difference.mean)
    capsys.readouterr()
    assert main(["compare", "--effects", str(tmp_path), "--keys", "reward"]) == 0
    assert "least squares over 8 runs with 2 degrees of freedom" in " ".join(capsys.readouterr().out.split())


def test_the_intervals_of_effects_cover_the_truth_as_often_as_they_say() -> None:
    noise, hits = random.Random(3), 0
    settings = [
        {f"settings.{number}": on for number, on in enumerate(row)} | {"settings.seed": place // 2 % 3}
        for place, row in enumerate(screening(12))
    ]
    for _ in range(100):
        runs = [
            Run("run", Path(), ({"step": 1.0, "reward": sum(own.values()) + noise.gauss(0, 1)},), own)
            for own in settings
        ]
        differences = [figure.difference for figure in effects(runs, window=1, keys=["reward"]).figures]
        hits += sum(found.low < 1 < found.high for found in differences if found)
    assert 0.93 <= hits / 1200 <= 0.97


def test_one_setting_at_a_time_runs_with_every_seed(tmp_path: Path, demos: list[DemoSettings]) -> None:
    sweep(tmp_path, "--seeds", "3,4")
    assert sweep(tmp_path, "--seeds", "3,4") == 0
    made = [run for run in demos if run.run != "interrupted"]
    assert [(run.seed, run.set, run.batch_groups) for run in made] == [
        (seed, tuple(change.split()) if "trainer" in change else (), 64 if "batch" in change else 32)
        for change in ("", *EFFECTS)
        for seed in (3, 4)
    ]


def test_a_run_with_other_settings_is_not_taken_for_this_one(
    tmp_path: Path, demos: list[DemoSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    record(DemoSettings(runs_dir=tmp_path, run="sweep-00", seed=0, steps=2), noise=random.Random(0))
    assert sweep(tmp_path) == 2
    said = capsys.readouterr().err
    assert "run 'sweep-00' was made with steps = 2, not 1: choose another name (--run)" in said
    assert demos == []


def test_runs_that_do_not_tell_changes_apart_are_refused(tmp_path: Path) -> None:
    for name, changes in (("a", ()), ("b", ("trainer.lr=2e-3",)), ("c", ("trainer.lr=3e-3",))):
        record(DemoSettings(runs_dir=tmp_path, run=name, set=changes), noise=random.Random(0))
    with pytest.raises(InvalidInput, match="3 runs of 1 seeds do not tell 2 changes apart: lr=2e-3; lr=3e-3"):
        effects(find_runs([str(tmp_path)], runs_dir=tmp_path), window=0.2, keys=["reward"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--vary", "speed=3"], "speed: Extra inputs are not permitted"),
        (["--vary", "trainers.lr=3"], "'trainers.lr=3' is not SERVICE.SETTING=VALUE"),
        (["--vary", "batch_groups=x"], "batch_groups: Input should be a valid integer"),
        (["--together", *["--vary", "seed=1"] * 13], "at most 12 --vary, not 13"),
    ],
)
def test_mistakes_are_said(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *flags]) == 2
    assert said in capsys.readouterr().err

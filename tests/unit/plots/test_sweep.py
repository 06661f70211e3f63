"""The runs that `rookery sweep` makes, and the effects that it finds in them."""

import json
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from rich.console import Console

from launcher.plots.comparison import effects
from launcher.plots.runs import Run
from launcher.settings import DemoSettings
from launcher.sweep import screening
from launcher.up import INTERRUPTED
from rookery.command_line import main
from rookery.errors import InvalidInput

DESIGNS = ("++-", "+++-+--", "++-+++---+-")


@pytest.mark.parametrize("first", DESIGNS)
def test_any_three_changes_have_each_combination_equally_often(first: str) -> None:
    design = screening(first)
    assert len(design) == 2 * len(design[0]) == 2 * len(first) + 2
    assert not any(design[0])
    for three in combinations(range(len(design[0])), 3):
        found = Counter(tuple(row[change] for change in three) for row in design)
        assert len(found) == 8
        assert len(set(found.values())) == 1


RANK = "trainer.lora_rank=32 trainer.lora_alpha=64"
EFFECTS = {"trainer.lr=2e-3": 0.0, RANK: -0.25, "batch_groups=64": 0.5}
VARY = [flag for change in EFFECTS for flag in ("--vary", change)]


class Demos:
    """Stands for `demo`: a reward is the sum of the effects, of twice the seed, and of noise."""

    def __init__(self) -> None:
        self.runs: list[DemoSettings] = []
        self.interrupted = -1
        self._noise = random.Random(0)

    def __call__(self, run: DemoSettings, _: Console) -> int:
        if len(self.runs) == self.interrupted:
            self.interrupted = -1
            return INTERRUPTED
        self.runs.append(run)
        folder = run.runs_dir / run.run
        folder.mkdir(parents=True)
        made = {*run.set, f"batch_groups={run.batch_groups}"}
        effect = sum(value for change, value in EFFECTS.items() if change.split()[0] in made)
        reward = 1 + effect + 2 * run.seed + self._noise.gauss(0, 0.01)
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward": reward}) + "\n")
        (folder / "settings.json").write_text(run.model_dump_json())
        (folder / "report.json").write_text("{}")
        return 0


@pytest.fixture
def demos(monkeypatch: pytest.MonkeyPatch) -> Demos:
    made = Demos()
    monkeypatch.setattr("launcher.sweep.demo", made)
    monkeypatch.setattr("launcher.sweep.make_plan", lambda settings, ports: None)
    return made


def sweep(folder: Path, *more: str) -> int:
    return main(["sweep", "--runs-dir", str(folder), *more])


def test_a_sweep_goes_on_where_it_was_and_finds_the_effects(
    tmp_path: Path, demos: Demos, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*VARY, "--together", "--json", "--keys", "reward", "--set", "trainer.lr=1e-3", "--seeds", "0,2"]
    demos.interrupted = 5
    assert sweep(tmp_path, *flags) == INTERRUPTED
    assert sweep(tmp_path, *flags) == 0
    assert [run.run for run in demos.runs] == [f"sweep-0{number}" for number in range(8)]
    assert [run.seed for run in demos.runs] == [0, 0, 2, 2, 0, 0, 2, 2]
    assert [(run.set, run.batch_groups) for run in demos.runs[:2]] == [
        (("trainer.lr=1e-3",), 32),
        (("trainer.lr=2e-3", "trainer.lora_rank=32", "trainer.lora_alpha=64"), 64),
    ]
    capsys.readouterr()
    assert sweep(tmp_path, *flags) == 0
    assert len(demos.runs) == 8  # nothing was left to do
    found = json.loads(capsys.readouterr().out)
    assert "over 8 runs with 3 degrees of freedom" in found["method"]
    first, *changes = found["figures"]
    assert (first["configuration"], first["difference"]) == ("no change", None)
    assert first["value"]["mean"] == pytest.approx(1 + 2 * 1, abs=0.02)  # the mean of both seeds
    for figure, (change, effect) in zip(changes, EFFECTS.items(), strict=True):
        assert figure["configuration"] == change
        assert figure["difference"]["mean"] == pytest.approx(effect, abs=0.02)
        assert figure["value"]["mean"] == pytest.approx(first["value"]["mean"] + figure["difference"]["mean"])


def test_one_change_at_a_time_runs_with_every_seed(
    tmp_path: Path, demos: Demos, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.width", property(lambda self: 200))
    assert sweep(tmp_path, *VARY, "--seeds", "3,4", "--keys", "reward") == 0
    assert [(run.seed, run.set, run.batch_groups) for run in demos.runs] == [
        (seed, tuple(change.split()) if "trainer" in change else (), 64 if "batch" in change else 32)
        for change in ("", *EFFECTS)
        for seed in (3, 4)
    ]
    said = capsys.readouterr().out
    assert "less no change" in said
    assert all(change in said for change in EFFECTS)
    assert "over pairs of runs of the same seed" in " ".join(said.split())


def test_a_run_has_the_settings_that_the_demo_would_have(
    tmp_path: Path, demos: Demos, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of flags, of the demo's variables, and of the preset of its own model, in this order."""
    monkeypatch.setenv("DEMO_STEPS", "7")
    given = ["--nodes", "500", "--set", "rollouts.stop=a b"]
    assert sweep(tmp_path, *given, "--vary", "model=models/rook-tiny", "--seeds", "0") == 0
    small, tiny = demos.runs
    assert (small.preset, small.style, small.staleness) == ("rook-small", "mover-twice", 1)
    assert (tiny.preset, tiny.style, tiny.staleness) == (None, None, 2)
    for run in demos.runs:
        assert (run.steps, run.nodes, run.set) == (7, 500, ("rollouts.stop=a b",))


def test_a_name_stands_for_one_sweep(
    tmp_path: Path, demos: Demos, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--vary", "trainer.lr=2e-3", "--seeds", "0"]
    assert sweep(tmp_path, *flags, "--nodes", "500") == 0
    assert sweep(tmp_path, *flags) == 2
    said = "run 'sweep-00' had nodes = 500 and now 1000: choose another name (--run)"
    assert said in capsys.readouterr().err
    assert sweep(tmp_path, *flags, "--vary", "trainer.lr=3e-3", "--nodes", "500") == 2
    assert "run 'sweep-02' had" in capsys.readouterr().err
    (tmp_path / "other-01").mkdir()
    assert sweep(tmp_path, *flags, "--run", "other") == 2
    assert "there is a run 'other-01' already" in capsys.readouterr().err
    assert len(demos.runs) == 2


def test_wrong_settings_of_services_are_told_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("launcher.sweep.demo", Demos())
    assert sweep(tmp_path, "--vary", "trainer.lr=0", "--seeds", "0") == 2
    said = capsys.readouterr().err
    assert "sweep-01; seed 0; trainer.lr=0: trainer: " in said
    assert "Input should be greater than 0" in said
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


THIRTEEN = [flag for number in range(13) for flag in ("--vary", f"trainer.x{number}=1")]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "needs --vary"),
        (["--vary", "nodes=5", "--seed", "1"], "--seeds instead of --seed"),
        (["--vary", "speed=3"], "'speed=3' is neither SERVICE.SETTING=VALUE nor a flag of `rookery demo`"),
        (["--vary", "seed=1"], "'seed=1' is neither"),
        (["--vary", "no-archive"], "'no-archive' is neither"),
        (["--vary", " "], "'' is neither"),
        (["--vary", "nodes=5", "--vary", "nodes=5"], "vary: one of them is given twice"),
        (["--vary", "nodes=5", "--seeds", "1,1"], "seeds: one of them is given twice"),
        (["--vary", "trainers.lr=3"], "trainers.lr=3: set: 'trainers.lr=3' is not SERVICE.SETTING=VALUE"),
        (["--vary", "batch_groups=x"], "batch_groups=x: batch_groups: Input should be a valid integer"),
        (["--together", "--vary", "nodes=5", "--vary", "nodes=6"], "--together: nodes is in two changes"),
        (["--together", *THIRTEEN], "13 changes and 3 seeds are too many for 24 runs"),
    ],
)
def test_mistakes_are_said(
    tmp_path: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(tmp_path, *flags) == 2
    assert said in capsys.readouterr().err


def swept(rows: list[tuple[bool, ...]], noise: random.Random) -> list[Run]:
    """Runs in which each change adds 1 to the reward, with noise of deviation 1, and seeds in turn."""
    rewards = [sum(row) + noise.gauss(0, 1) for row in rows]
    return [
        Run("run", Path(), ({"step": 1.0, "reward": reward},), {"up.seed": place // 2 % 3})
        for place, reward in enumerate(rewards)
    ]


def test_the_intervals_of_effects_cover_the_truth_as_often_as_they_say() -> None:
    noise, rows, hits = random.Random(3), screening(DESIGNS[-1]), 0
    changes = dict(zip("abcdefghijkl", map(list, zip(*rows, strict=True)), strict=True))
    for _ in range(100):
        found = effects(swept(rows, noise), changes, keys=["reward"])
        differences = [figure.difference for figure in found.figures]
        hits += sum(one.low < 1 < one.high for one in differences if one)
    assert 0.93 <= hits / 1200 <= 0.97


def test_changes_that_runs_do_not_tell_apart_are_refused() -> None:
    runs = swept([(False,), (True,), (False,), (True,)] * 2, random.Random(0))
    both = [False, True] * 4
    with pytest.raises(InvalidInput, match="8 runs of 3 seeds do not tell apart the changes a; b"):
        effects(runs, {"a": both, "b": both}, keys=["reward"])

"""What a step says: every key is explained in the README, every gauge is set."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from rookery.config.trainer import TrainerSettings
from rookery.errors import InvalidInput
from rookery.trace import TraceGroup
from services.trainer.distributed.process_group import World
from services.trainer.model.policy import Policy
from services.trainer.records.describe import by_task, components, describe_step, lengths
from services.trainer.records.flops import SpeedMeter
from services.trainer.records.report import StepReporter, json_row
from services.trainer.records.tracking import Tracker
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState
from tests.builders import changed
from tests.conftest import ROOT
from tests.unit.trainer.groups import make_group

PHASES = {"rollout_wait": 0.5, "train": 1.0, "commit": 0.1, "settle": 0.1, "publish": 0.3}
DROPPED = {"stale": 1, "zero_variance": 0}


@pytest.fixture(scope="module")
def written(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """The line of one real step with a KL penalty and a mask, on groups of ages 0 and 1."""
    groups = [make_group(0, version=0), make_group(1, version=1)]
    return _line_of_a_step(tiny_model, tmp_path_factory.mktemp("run"), groups)


def _line_of_a_step(tiny_model: Path, folder: Path, groups: list[TraceGroup]) -> dict[str, float]:
    settings = TrainerSettings(
        model=tiny_model, run_dir=folder, device="cpu", lora_rank=2, kl="k3", token_mask_high=5.0
    )
    policy = Policy(settings)
    meter = SpeedMeter(policy, settings)
    trainer = PolicyTrainer(settings, policy, World())
    with meter.step():
        result = trainer.train_step(groups, step=1, state=RunningState())
    row = describe_step(
        groups,
        result.row(zero_variance_share=0.0, collapsed_steps=0),
        version=2,
        dropped=DROPPED,
        turn_rewards="sum",
    )
    row |= meter.row(groups, tokens=result.tokens, train_s=1.0)
    with StepReporter(folder) as report:
        report.report(row, phases_s=PHASES, ages=[0, 1])
    line: dict[str, float] = json.loads((folder / "metrics.jsonl").read_text())
    return line


def explained() -> list[str]:
    """Keys of the table under `## metrics.jsonl`; capitals stand for any letters."""
    text = (ROOT / "services/trainer/README.md").read_text()
    table = text.split("## metrics.jsonl")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [key for cell in cells for key in re.findall(r"`([^`]+)`", cell)]


def test_the_readme_explains_every_key_and_no_other(written: dict[str, float]) -> None:
    patterns = {key: re.sub("[A-Z]+", "[a-z0-9_-]+", key) for key in explained()}
    unexplained = [key for key in written if not any(re.fullmatch(p, key) for p in patterns.values())]
    assert unexplained == []
    # After a kill, on a GPU, of real verdicts, of RookWorld's lines, of episodes.
    elsewhere = {"recovered", "cuda_peak_mib", "component_NAME", "groups_TASK", "reward_TASK", "perfect_TASK"}
    elsewhere |= {"distinct_candidates", "moves_PIECE", "best_moves_PIECE", "piece_distance"}
    elsewhere |= {"episode_turns", "episode_turns_max", "calls_per_move"}
    elsewhere |= {"won_OPPONENT", "drawn_OPPONENT", "lost_OPPONENT"}
    elsewhere |= {
        "process_reward",
        "value_reward",
        "claims_true",
        "reward_new",
        "legal_rate_new",
        "zero_variance_new",
    }
    unknown = [k for k, p in patterns.items() if not any(re.fullmatch(p, key) for key in written)]
    assert set(unknown) <= elsewhere


def test_prometheus_has_the_step(written: dict[str, float]) -> None:
    def sample(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, labels)

    assert sample("rookery_learning", statistic="reward") == written["reward"]
    assert sample("rookery_learning", statistic="completion_length_max") == written["completion_length_max"]
    assert sample("rookery_learning_kl_by_age", age="1") == written["kl_behaviour_age1"]
    assert sample("rookery_trainer_tokens_per_second", kind="trained") == written["tokens_per_s"]
    assert sample("rookery_trainer_mfu") == written["mfu"]
    assert sample("rookery_trainer_memory_bytes", kind="resident") == written["resident_mib"] * 2**20


def test_a_warning_says_that_answers_are_cut(
    written: dict[str, float], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with StepReporter(tmp_path) as report:
        for step, cut in enumerate((0.25, 1.0, 0.0), start=1):
            row = {**written, "step": step, "truncated": cut * written["completions"]}
            report.report(row, phases_s=PHASES, ages=[0])
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "step 1: 25% of the answers were cut at the token limit" in said


def test_prometheus_has_the_moves_by_piece(written: dict[str, float], tmp_path: Path) -> None:
    row = {**written, "moves_rook": 0.75, "best_moves_rook": 0.25, "piece_distance": 0.5}
    with StepReporter(tmp_path) as report:
        report.report(row, phases_s=PHASES, ages=[0])
    for by, share in (("policy", 0.75), ("engine", 0.25)):
        assert REGISTRY.get_sample_value("rookery_learning_moves", {"by": by, "piece": "rook"}) == share
    for statistic in ("identical_answers", "piece_distance"):
        assert REGISTRY.get_sample_value("rookery_learning", {"statistic": statistic}) == row[statistic]


def test_what_a_step_could_not_measure_vanishes(written: dict[str, float], tmp_path: Path) -> None:
    def exported() -> list[bool]:
        names = ("mismatch_mean", "entropy", "kl_reference")
        found = [REGISTRY.get_sample_value("rookery_learning", {"statistic": name}) for name in names]
        found.append(REGISTRY.get_sample_value("rookery_learning_kl_by_age", {"age": "1"}))
        return [value is not None for value in found]

    unmeasured = {"mismatch_mean", "entropy", "kl_reference", "kl_behaviour_age1"}
    less = {key: value for key, value in written.items() if key not in unmeasured}
    with StepReporter(tmp_path) as report:
        for row, there in ((written, True), (less, False), (less, False), (written, True)):
            report.report(row, phases_s=PHASES, ages=[0])
            assert exported() == [there, there, True, there]


def test_a_step_without_tokens_that_carry_loss_has_no_figures_of_them(
    tiny_model: Path, tmp_path: Path
) -> None:
    group = make_group(1, version=1)
    traces = [
        changed(t, completion=replace(t.turns[-1].completion, finish_reason="length")) for t in group.traces
    ]
    line = _line_of_a_step(tiny_model, tmp_path, [replace(group, traces=tuple(traces))])
    assert (line["tokens"], line["loss"], line["grad_norm"]) == (0, 0.0, 0.0)
    of_tokens = "entropy$|ratio_|ess$|clip_fraction_|mask_|kl_(behaviour|reference|penalty)"
    assert not [name for name in line if re.match(of_tokens, name)]


def test_speeds_are_of_the_seconds_they_name(written: dict[str, float]) -> None:
    assert written["tokens_per_s"] == written["tokens"]
    assert written["step_s"] == pytest.approx(2.0)
    assert written["generated_tokens_per_s"] == pytest.approx(written["tokens"] / 2.0)
    assert 0 < written["mfu"] < 1
    assert written["resident_peak_mib"] >= written["resident_mib"] * 0.5


def with_components(number: int) -> TraceGroup:
    """A group whose traces have a legal move's components and a penalty in turn."""
    group = make_group(number, size=10)
    traces = []
    for index, trace in enumerate(group.traces):
        reward = trace.verdict.reward
        parts = {"delta": reward - 1, "format": 1.0} if index % 2 else {"penalty": reward}
        traces.append(changed(trace, verdict=replace(trace.verdict, components=parts)))
    return replace(group, traces=tuple(traces))


def test_components_add_up_and_lengths_are_ranks() -> None:
    groups = [with_components(0), with_components(1)]
    found = components(groups)
    assert set(found) == {"component_delta", "component_format", "component_penalty"}
    rewards = [reward for group in groups for reward in group.rewards]
    assert sum(found.values()) == pytest.approx(sum(rewards) / 20)
    assert found["component_format"] == 0.5
    sizes = sorted(len(trace.completion.token_ids) for group in groups for trace in group.traces)
    assert lengths(groups)["completion_length_p95"] == sizes[18]
    assert lengths(groups)["completion_length_max"] == sizes[19]


def test_the_best_reward_outlives_the_process(written: dict[str, float], tmp_path: Path) -> None:
    for step, reward, best in ((1, -0.5, -0.5), (2, -0.2, -0.2), (3, -0.4, -0.2)):
        with StepReporter(tmp_path) as report:
            report.report({**written, "step": step, "reward": reward}, phases_s=PHASES, ages=[0])
        assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["reward_best"] == best


def test_rookworlds_tasks_are_counted_apart() -> None:
    def asked(number: int, task: str) -> TraceGroup:
        group = make_group(number)
        position, prompt = replace(group.position, task=task), replace(group.prompt, style="rookworld")
        return replace(group, position=position, prompt=prompt)

    def judged(group: TraceGroup, reward: float, **components: float) -> TraceGroup:
        verdict = replace(group.traces[0].verdict, reward=reward, components=components)
        return replace(group, traces=(changed(group.traces[0], verdict=verdict), *group.traces[1:]))

    groups = [asked(0, "P"), judged(asked(1, "A"), 1.0, fen=1.0), judged(asked(2, "P"), 0.8, best=0.5)]
    found = by_task(groups)
    assert (found["groups_p"], found["groups_a"]) == (2, 1)
    assert found["reward_a"] == pytest.approx(sum(groups[1].rewards) / 4)
    assert found["reward_p"] == pytest.approx(sum(groups[0].rewards + groups[2].rewards) / 8)
    assert (found["perfect_p"], found["perfect_a"]) == (0.0, 0.25)
    assert by_task([make_group(0)]) == {}
    means = components(groups)
    assert (means["component_p_best"], means["component_a_fen"]) == (0.5 / 8, 0.25)


def test_an_infinite_figure_is_written_as_none(written: dict[str, float], tmp_path: Path) -> None:
    row = {**written, "ratio_max": float("inf"), "ess": float("nan")}
    with StepReporter(tmp_path) as report:
        report.report(row, phases_s=PHASES, ages=[0])
        report.recover({**json_row(row), "step": 9})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["ratio_max"], line["ess"]) for line in lines] == [(None, None)] * 2


def test_a_torn_last_line_is_dropped_and_written_again(written: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps({**written, "step": 1}) + '\n{"step": 2, "rew')
    with StepReporter(tmp_path) as report:
        report.recover({**written, "step": 2})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


def test_a_line_that_is_no_step_is_named(written: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n')
    with pytest.raises(InvalidInput, match=r"metrics.jsonl:2: not a step: .*nonsense"):
        StepReporter(tmp_path)
    path.write_text('{"step": 1}\n')  # of another program, without a reward
    with StepReporter(tmp_path) as report:
        report.recover({**written, "step": 2})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]


class Listener(Tracker):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, row: dict[str, float]) -> None:
        self.rows.append(row)


def test_a_recovered_row_is_tracked_too(written: dict[str, float], tmp_path: Path) -> None:
    listener = Listener()
    with StepReporter(tmp_path, listener) as report:
        report.recover({**written, "step": 3})
        report.recover({**written, "step": 3})
    assert [row["step"] for row in listener.rows] == [3]

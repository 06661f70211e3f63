"""The search for the largest batch: which sizes it tries, what it measures, what it leaves behind."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rookery.config.trainer import AutobatchSettings, TrainerSettings
from rookery.errors import SetupError
from services.trainer import autobatch, memory_probe
from services.trainer.autobatch import SearchResult, find_largest
from services.trainer.memory_probe import GroupShape
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.records.profile import FILE, Profile, Result, computed
from tests.unit.trainer.contents import contents


def machine(*, fixed: int, each: int, available: int, kills_above: float = 1.0) -> Callable[[int], Profile]:
    """A probe on a machine where every position takes `each` beside what is `fixed`."""

    def measure(positions: int) -> Profile:
        peak = fixed + each * positions
        over = peak > kills_above * available
        return Profile(
            positions=positions, group=4, row_tokens=100, parameters=fixed, gradients=0, adam=0,
            activations=each * positions, peak=peak, limit=available * 85 // 100, available=available,
            tokens_per_s=1.0,
            result="out of memory" if over else "fits" if peak <= 0.85 * available else "too large",
        )  # fmt: skip

    return measure


def test_sizes_double_and_the_last_step_is_what_fits() -> None:
    found = find_largest(machine(fixed=100, each=10, available=1000), first=2, most=128)
    assert [profile.positions for profile in found.profiles] == [2, 4, 8, 16, 32, 64, 75]
    assert found.choice.positions == 75
    assert all(profile.result == "fits" for profile in found.profiles)


def test_it_ends_at_the_most_that_is_of_use() -> None:
    found = find_largest(machine(fixed=100, each=1, available=1000), first=2, most=24)
    assert [profile.positions for profile in found.profiles] == [2, 4, 8, 16, 24]


def test_what_grows_faster_than_foreseen_is_halved_back() -> None:
    """Activations beyond 20 positions take twice the room: 32 fails although 16 promised that it fits."""
    linear, steep = (machine(fixed=100, each=each, available=1000) for each in (20, 40))
    found = find_largest(lambda n: (linear if n <= 20 else steep)(n), first=2, most=128)
    assert [profile.positions for profile in found.profiles][:6] == [2, 4, 8, 16, 32, 24]
    assert found.choice.result == "fits"
    assert found.choice.positions in (16, 18, 20)


def test_out_of_memory_is_one_more_result() -> None:
    found = find_largest(machine(fixed=0, each=30, available=100), first=4, most=64)
    assert [(p.positions, p.result) for p in found.profiles] == [
        (4, "out of memory"),
        (1, "fits"),
        (2, "fits"),
    ]
    assert found.choice.positions == 2


def test_nothing_fits() -> None:
    full = machine(fixed=990, each=30, available=1000)
    with pytest.raises(SetupError, match=r"not even one row of 100 tokens.*--gradient-checkpointing"):
        find_largest(full, first=2, most=64)
    with pytest.raises(SetupError, match=r"not even one row of 100 tokens.*--gradient-checkpointing"):
        computed(full(1), most=64)


def test_one_measurement_says_how_many_fit(caplog: pytest.LogCaptureFixture) -> None:
    roomy, tight = (machine(fixed=fixed, each=30, available=1000) for fixed in (100, 830))
    for most, positions in ((64, 25), (9, 9)):
        choice = computed(roomy(2), most=most)
        assert (choice.positions, choice.tokens) == (positions, 100 * positions)
        assert choice.peak == roomy(positions).peak
    assert not caplog.text
    assert computed(tight(1), most=64).positions == 1
    assert "a pass of 100 tokens has a peak of 0.00 GiB, more than the 0.00 GiB" in caplog.text


@pytest.fixture(scope="module")
def settings(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainerSettings:
    return TrainerSettings(
        model=tiny_model,
        run_dir=tmp_path_factory.mktemp("run"),
        device="cpu",
        lora_rank=2,
        row_tokens=64,
        batch_groups=4,
        micro_batch_tokens="auto",
    )


@pytest.fixture(scope="module")
def policy(settings: TrainerSettings) -> Policy:
    return Policy(settings)


def test_weights_gradients_and_random_numbers_are_left_alone(
    policy: Policy, settings: TrainerSettings
) -> None:
    before, state = contents(policy.version_files()), torch.get_rng_state()
    memory_probe.probe(policy, settings, GroupShape(4, 10, 8), positions=2)
    assert contents(policy.version_files()) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in policy.parameters)


def test_each_part_is_counted(policy: Policy, settings: TrainerSettings) -> None:
    trained = 4 * sum(parameter.numel() for parameter in policy.parameters)
    profile = memory_probe.probe(policy, settings, GroupShape(4, 10, 8), positions=2)
    assert profile.parameters == 4 * sum(p.numel() for p in policy.model.parameters())
    assert profile.gradients == trained
    # Two moments and a step count, which torch keeps in four bytes a tensor.
    assert profile.adam == 2 * trained + 4 * len(policy.parameters)
    assert 0 < profile.share < 1
    assert (profile.tokens, profile.result) == (2 * 42, "fits")


def test_ppo_is_probed_with_its_critic(settings: TrainerSettings) -> None:
    asked = settings.model_copy(update={"objective": "ppo", "ppo_epochs": 2, "ppo_mini_batches": 2})
    critic = build_policy(asked)
    trained = 4 * sum(parameter.numel() for parameter in critic.parameters)
    profile = memory_probe.probe(critic, asked, GroupShape(4, 10, 8), positions=2)
    assert profile.adam == 2 * trained + 4 * len(critic.parameters)


def test_more_rows_take_more_activations(policy: Policy, settings: TrainerSettings) -> None:
    few = memory_probe.probe(policy, settings, GroupShape(4, 32, 32), positions=1)
    many = memory_probe.probe(policy, settings, GroupShape(4, 32, 32), positions=8)
    assert many.activations > 3 * few.activations


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_is_caught_and_undone(
    policy: Policy, settings: TrainerSettings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def dies(*_: object, **__: object) -> None:
        with torch.no_grad():
            policy.parameters[0].add_(1)
        raise error

    before = contents(policy.version_files())
    monkeypatch.setattr(memory_probe, "train_step", dies)
    assert memory_probe.probe(policy, settings, GroupShape(4, 10, 8), positions=2).result == "out of memory"
    assert contents(policy.version_files()) == before


def test_another_fault_is_not_swallowed(
    policy: Policy, settings: TrainerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(memory_probe, "train_step", dies)
    with pytest.raises(RuntimeError, match="shapes"):
        memory_probe.probe(policy, settings, GroupShape(4, 10, 8), positions=2)


def test_auto_is_settled_once_and_kept_for_the_same_question(
    policy: Policy, settings: TrainerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled = autobatch.resolve_micro_batch_tokens(settings, policy)
    # Rows of 8 + 4 x 14 tokens; one is measured, and a step has four.
    assert settled.micro_batch_tokens == 4 * 64
    content = json.loads((settings.run_dir / FILE).read_text())
    assert [profile["positions"] for profile in content["profiles"]] == [1]
    assert content["choice"]["positions"] == 4

    def asked_again(*_: object, **__: object) -> Profile:
        raise AssertionError("probed again")

    monkeypatch.setattr(autobatch, "probe", asked_again)
    assert autobatch.resolve_micro_batch_tokens(settings, policy) == settled
    for changed in ({"gradient_checkpointing": True}, {"kl_report_every": 0}, {"entropy_coefficient": 0.1}):
        with pytest.raises(AssertionError, match="probed again"):
            autobatch.resolve_micro_batch_tokens(settings.model_copy(update=changed), policy)
    monkeypatch.setattr(policy, "in_bf16", not policy.in_bf16)
    with pytest.raises(AssertionError, match="probed again"):
        autobatch.resolve_micro_batch_tokens(settings, policy)


def test_a_number_is_left_as_it_is(policy: Policy, settings: TrainerSettings) -> None:
    fixed = settings.model_copy(update={"micro_batch_tokens": 100})
    assert autobatch.resolve_micro_batch_tokens(fixed, policy) is fixed


def test_the_command_prints_every_configuration_and_the_choice(tiny_model: Path, tmp_path: Path) -> None:
    out = StringIO()
    settings = AutobatchSettings(
        model=tiny_model, run_dir=tmp_path, device="cpu", lora_rank=2, group_size=3, prompt_tokens=10,
        completion_tokens=6, most_positions=5,
    )  # fmt: skip
    autobatch.run(settings, Console(file=out))
    said = out.getvalue().splitlines()
    assert [line.split()[:3] for line in said if line.lstrip().startswith("(")] == [
        ["(2,", "3)", "56"],
        ["(4,", "3)", "112"],
        ["(5,", "3)", "140"],
    ]
    assert "choice: 5 positions x 3 completions, 15 sequences, peak " in out.getvalue()
    assert "--batch-groups 5 --micro-batch-tokens 140" in said
    assert f"profiles in {tmp_path / FILE}" in said


@pytest.mark.parametrize(
    "console",
    [{"force_terminal": True, "width": 80}, {"force_terminal": True, "width": 40}, {}],
    ids=["80 columns", "40 columns", "piped"],
)
def test_lines_are_whole_wherever_they_go_and_fit_into_80_columns(
    console: dict[str, Any], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large GPU, and a model that fills it."""
    card = 140 << 30

    def tried(positions: int, result: Result) -> Profile:
        return Profile(
            positions=positions, group=16, row_tokens=100_000, parameters=card // 2, gradients=card // 99,
            adam=card // 49, activations=card // 3, peak=card - (1 << 29), limit=card * 85 // 100,
            available=card, tokens_per_s=123_456.0, result=result,
        )  # fmt: skip

    fits = tried(2, "fits")
    found = SearchResult((fits, tried(64, "too large"), tried(128, "out of memory")), fits)
    monkeypatch.setattr(autobatch, "find_largest", lambda *_, **__: found)
    out = StringIO()
    settings = AutobatchSettings(model=tiny_model, run_dir=tmp_path, device="cpu", lora_rank=2)
    autobatch.run(settings, Console(file=out, **console))
    *said, where = out.getvalue().splitlines()
    assert where == f"profiles in {tmp_path / FILE}"
    assert max(map(len, said)) <= 80
    assert (
        said
        == """\
positions x completions below 119.00 of 140.00 GiB
weights 71,680.0, gradients 1,448.1, Adam 2,925.7 MiB

    batch     tokens activations    peak MiB  share  tokens/s
  (2, 16)    200,000    47,786.7   142,848.0  99.6%   123,456  fits
 (64, 16)  6,400,000    47,786.7   142,848.0  99.6%   123,456  too large
(128, 16) 12,800,000           -           -      -         -  out of memory

choice: 2 positions x 16 completions, 32 sequences, peak 139.50 GiB (99.6%)
--batch-groups 2 --micro-batch-tokens 200000""".splitlines()
    )

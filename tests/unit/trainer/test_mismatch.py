"""The check that a group comes from the version it names, at any age; it leaves training as it was."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import make_rows
from services.trainer.distributed.process_group import World
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import Policy
from services.trainer.training import mismatch as rescoring
from services.trainer.training.mismatch import mismatch
from services.trainer.training.policy_trainer import PolicyTrainer
from services.trainer.training.step import RunningState
from services.trainer.versions import commits
from tests.builders import changed
from tests.unit.trainer.contents import contents
from tests.unit.trainer.gpt2_models import write_gpt2
from tests.unit.trainer.groups import make_group

KINDS: dict[str, dict[str, Any]] = {
    "adapter": {},
    "ppo": {"objective": "ppo"},
    "all weights": {"lora_rank": 0},
    "all weights of a Qwen3": {"lora_rank": 0},
    "merged": {"lora_rank": 4},
}


def trainer_of(kind: str, tiny_model: Path, folder: Path) -> PolicyTrainer:
    """At version 10, with versions 8 to 10 committed."""
    gpt2 = kind in ("all weights", "merged")
    model = write_gpt2(folder / "gpt2", vocab_size=100) if gpt2 else tiny_model
    settings = TrainerSettings(
        model=model, run_dir=folder, device="cpu", lr=0.05, warmup_steps=0, **KINDS[kind]
    )
    trainer = PolicyTrainer(settings, build_policy(settings), World())
    for number in (8, 9, 10):
        train(trainer, [make_group(number, version=number)], step=number)
        commits.write(
            settings.adapters_dir,
            number=number,
            files=trainer.files(),
            ledger=(),
            fingerprint=settings.fingerprint(),
        )
    return trainer


def train(trainer: PolicyTrainer, groups: list[TraceGroup], *, step: int) -> dict[str, float]:
    return trainer.train_step(groups, step=step, state=RunningState()).row()


def sampled(trainer: PolicyTrainer, number: int, *, version: int) -> TraceGroup:
    """A group with the log-probabilities that `version` gives, as a sound server would report them."""
    group = make_group(number, version=version)
    other = build_policy(trainer.settings)
    other.load_version(trainer.settings.adapters_dir / f"policy-v{version:06d}")
    made = make_rows([group], [[0.0] * 4], version=version, mask_truncated=False, row_tokens=999)
    with torch.no_grad():
        logprobs = iter(other.score(collate(made)).logprobs_N.tolist())
    traces = tuple(
        changed(
            t, completion=replace(t.completion, logprobs=tuple(next(logprobs) for _ in t.completion.logprobs))
        )
        for t in group.traces
    )
    return replace(group, traces=traces)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_of_any_age_is_scored_under_the_version_it_names(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(kind, tiny_model, tmp_path)
    for age, other in ((0, 8), (1, 10), (2, 9)):
        group = sampled(trainer, 1, version=10 - age)
        found = mismatch(trainer.policy, [group], step=10, settings=trainer.settings)
        assert found["mismatch_max"] < 2e-5
        assert 0 <= found["mismatch_mean"] <= found["mismatch_max"]
        assert found["mismatch_age"] == age
        lied = replace(group, policy=replace(group.policy, number=other))
        wrong = mismatch(trainer.policy, [lied], step=10, settings=trainer.settings)
        assert wrong["mismatch_mean"] > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_as_without_it(
    kind: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for name in ("with", "without"):
        trainer = trainer_of(kind, tiny_model, tmp_path / name)
        if name == "without":
            monkeypatch.setattr("services.trainer.training.policy_trainer.mismatch", lambda *_, **__: {})
        random = torch.get_rng_state()
        row = train(trainer, [make_group(n, version=8 + n % 2) for n in range(3)], step=10)
        assert torch.equal(torch.get_rng_state(), random)
        assert all(parameter.grad is None for parameter in trainer.policy.parameters)
        assert ("mismatch_mean" in row) == (name == "with")
        made.append(contents(trainer.files()))
    assert made[0] == made[1]


@pytest.mark.parametrize("limits", [{"TOKENS": 5, "SHARE": 1}, {"TOKENS": 999, "SHARE": 1 / 8}])
def test_each_step_takes_another_group_and_few_tokens(
    limits: dict[str, float], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of("adapter", tiny_model, tmp_path)
    for name, value in limits.items():
        monkeypatch.setattr(rescoring, name, value)
    seen = []
    score = Policy.score

    def watched(self: Policy, batch: Any, **how: Any) -> Any:
        seen.append(batch.targets_N.tolist())
        return score(self, batch, **how)

    monkeypatch.setattr(Policy, "score", watched)
    groups = [make_group(n, version=10) for n in range(3)]
    for step in (10, 11, 12, 13):
        mismatch(trainer.policy, groups, step=10, settings=trainer.settings)
        settings = trainer.settings
        now = [replace(group, policy=replace(group.policy, number=step)) for group in groups]
        mismatch(trainer.policy, now, step=step, settings=settings)
    tokens = sum(len(trace.completion.token_ids) for group in groups for trace in group.traces)
    most = min(limits["TOKENS"], tokens * limits["SHARE"])
    firsts = [list(groups[i].traces[0].completion.token_ids) for i in (1, 1, 1, 2, 1, 0, 1, 1)]
    for scored, first in zip(seen, firsts, strict=True):
        assert scored[: len(first)] == first
        assert len(scored) <= max(most, len(first))


def test_a_whole_model_of_before_is_read_now_and_then(tiny_model: Path, tmp_path: Path) -> None:
    trainer = trainer_of("all weights", tiny_model, tmp_path)
    old, fresh = make_group(1, version=9), make_group(2, version=10)
    measured = {
        step: mismatch(trainer.policy, [old], step=step, settings=trainer.settings)
        for step in (10, 11, 19, 20)
    }
    assert [step for step, found in measured.items() if found] == [10, 20]
    late = replace(fresh, policy=replace(fresh.policy, number=11))
    found = mismatch(trainer.policy, [old, late], step=11, settings=trainer.settings)
    assert found["mismatch_age"] == 0, "what is in memory costs nothing to read"


def test_nothing_is_measured_without_the_version_or_a_token(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of("adapter", tiny_model, tmp_path)
    before = contents(trainer.files())
    gone = make_group(1, version=3)
    assert mismatch(trainer.policy, [gone], step=10, settings=trainer.settings) == {}
    assert "group-1 cannot be scored under policy-v000003" in caplog.text
    damaged = trainer.settings.adapters_dir / "policy-v000009" / "adapter_model.safetensors"
    damaged.write_bytes(b"no tensors")
    group = make_group(1, version=9)
    assert mismatch(trainer.policy, [group], step=10, settings=trainer.settings) == {}
    empty = changed(
        group.traces[0], completion=replace(group.traces[0].completion, token_ids=(), logprobs=())
    )
    silent = replace(group, traces=(empty,))
    assert mismatch(trainer.policy, [silent], step=10, settings=trainer.settings) == {}
    assert contents(trainer.files()) == before

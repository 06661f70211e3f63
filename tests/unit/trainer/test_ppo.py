"""PPO: solves a bandit, learns the values of states, does not depend on cuts, resumes with the same bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError
from rookery.trace import Completion, Outcome, PolicyVersion, Sampling, Trace, TraceGroup, Turn, Verdict
from services.trainer.batches.micro_batches import collate
from services.trainer.batches.rows import prepare_batch
from services.trainer.distributed.process_group import World
from services.trainer.model.policies import build_policy
from services.trainer.model.policy import VALUE_HEAD_FILE, Policy
from services.trainer.training import optimizer as adam
from services.trainer.training import ppo
from services.trainer.training.step import RunningState, StepStats, train_step
from services.trainer.training.update import StepInput
from services.trainer.versions import commits
from tests.unit.trainer.bigram import Bigram
from tests.unit.trainer.contents import content, contents
from tests.unit.trainer.groups import make_group

REWARDS = (-1.0, -0.3, 0.0, -0.2)
BEST = 2


def _settings(model: Path, folder: Path, **changed: object) -> TrainerSettings:
    values: dict[str, object] = {"objective": "ppo", "device": "cpu", "lora_rank": 4, "kl_report_every": 0}
    values |= {"warmup_steps": 0, "lr": 3e-3}
    return TrainerSettings(model=model, run_dir=folder, **(values | changed))  # type: ignore[arg-type]


class BigramWithValue(Bigram):
    """A critic that knows one number: there is one state."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__(vocabulary)
        self.value = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [self.table_VV, self.value]

    def values(self, hidden: "torch.Tensor") -> "torch.Tensor":
        return self.value.expand(len(hidden))


@pytest.mark.parametrize(
    "changed",
    [{}, {"ppo_epochs": 3, "ppo_mini_batches": 2}, {"whiten": False, "entropy_coefficient": 0.01}],
    ids=["plain", "epochs", "entropy"],
)
def test_it_finds_the_best_arm_and_its_value(changed: dict[str, object]) -> None:
    settings = _settings(Path(), Path(), lr=0.1, max_grad_norm=1e9, value_clip=0.0, **changed)
    policy, state = BigramWithValue(len(REWARDS)), RunningState()
    optimizer = torch.optim.Adam(policy.parameters, lr=0.1)
    for step in range(40):
        groups = [policy.sample(1000 * step + g, rewards=REWARDS, size=12, version=step) for g in range(2)]
        result = train_step(policy, optimizer, groups, step=step, settings=settings, state=state)
        state = state.after(groups, result, step=step, zero_variance_share=0.0, settings=settings)
    odds = policy.table_VV[0].detach().softmax(-1)
    assert odds[BEST] > 0.8
    earned = float(odds @ torch.tensor(REWARDS, dtype=torch.float64))
    assert policy.value.item() == pytest.approx(earned, abs=0.15)
    assert result.losses["return_mean"] == pytest.approx(result.losses["value_mean"], abs=0.2)


def _certain_group(number: int, prompt: tuple[int, ...], reward: float) -> TraceGroup:
    """Four answers, all rewarded alike: GRPO learns nothing from it, a critic what the prompt is worth."""
    traces = tuple(
        Trace(
            f"{number}-{slot}",
            (
                Turn(
                    Completion("", (40 + slot, 50, 1), (-4.0, -4.0, -4.0), "stop", slot),
                    Verdict(reward=reward, outcome=Outcome.LEGAL, reward_version="t"),
                ),
            ),
        )
        for slot in range(4)
    )
    template = make_group(number, size=1)
    return replace(
        template,
        prompt_token_ids=prompt,
        policy=PolicyVersion(0, "0" * 64),
        sampling=Sampling(max_tokens=8),
        traces=traces,
    )


def test_the_head_learns_what_states_are_worth(small_model: Path, tmp_path: Path) -> None:
    settings = _settings(small_model, tmp_path, lr=1e-2, value_clip=0.0, whiten=False, gae_lambda=1.0)
    policy, state = Policy(settings), RunningState()
    optimizer = adam.build(policy.parameters, lr=settings.lr)
    prompts = {(10, 11, 12): -1.0, (20, 21, 22): 0.0, (30, 31): -0.4}
    results = []
    for step in range(60):
        groups = [
            _certain_group(10 * step + n, prompt, reward)
            for n, (prompt, reward) in enumerate(prompts.items())
        ]
        result = train_step(policy, optimizer, groups, step=0, settings=settings, state=state)
        state = state.after(groups, result, step=0, zero_variance_share=0.0, settings=settings)
        results.append(result)
    batch = prepare_batch(groups, version=0, settings=settings, averages=None)
    with torch.no_grad():
        for row in batch.rows:
            tensors = collate([row])
            values = policy.values(policy.score(tensors).hidden_ND)
            assert values.mean().item() == pytest.approx(prompts[row.prompt_ids], abs=0.1)
    assert results[0].losses["explained_variance"] == 0.0
    assert results[-1].losses["explained_variance"] > 0.9
    assert results[-1].losses["value_loss"] < 0.05 * results[0].losses["value_loss"]


def _groups(step: int) -> list[TraceGroup]:
    return [make_group(10 * step + n, prompt_length=5 + n, version=step) for n in range(4)]


def _gradient(model: Path, folder: Path, **changed: object) -> tuple[StepStats, "torch.Tensor"]:
    settings = _settings(model, folder, max_grad_norm=1e9, **changed)
    policy = Policy(settings)
    taken: list[torch.Tensor] = []

    class Noting(torch.optim.SGD):
        def step(self, closure: None = None) -> None:
            taken.append(torch.cat([p.grad.flatten() for p in policy.parameters if p.grad is not None]))

    optimizer = Noting(policy.parameters, lr=1e-9)
    result = train_step(policy, optimizer, _groups(0), step=0, settings=settings, state=RunningState())
    return result, torch.stack(taken).mean(0)


@pytest.mark.parametrize("baseline", ["group-mean", "leave-one-out"])
def test_gae_of_a_groups_rewards_is_grpo_without_a_critic(
    small_model: Path, tmp_path: Path, baseline: str
) -> None:
    """The critic starts at 0: with gamma and lambda 1, every token has its completion's advantage."""
    plain = {"gae_lambda": 1.0, "whiten": False, "baseline": baseline}
    (_, with_critic), (_, without) = (
        _gradient(small_model, tmp_path, **changed)
        for changed in (plain, {"objective": "grpo", "baseline": baseline})
    )
    head = len(with_critic) - len(without)
    assert head > 0
    # The head comes last. It has a gradient of its own, and is 0 itself, so that it adds none to the others.
    assert with_critic[:-head] == pytest.approx(without, rel=1e-5, abs=1e-9)
    assert with_critic[-head:].abs().max() > 0
    _, discounted = _gradient(small_model, tmp_path, **(plain | {"gamma": 0.9}))
    assert discounted[:-head] != pytest.approx(without, rel=1e-3)


@pytest.mark.parametrize("weights", ["token", "sequence", "constant"])
def test_the_gradient_does_not_depend_on_micro_batches(
    small_model: Path, tmp_path: Path, weights: str
) -> None:
    how = {"loss_weights": weights, "entropy_coefficient": 0.1, "row_tokens": 32}
    many, cut = _gradient(small_model, tmp_path, micro_batch_tokens=40, **how)
    one, whole = _gradient(small_model, tmp_path, micro_batch_tokens=100_000, **how)
    assert many.micro_batches > one.micro_batches == 1
    assert many.forward_backward_s > 0 < many.optimizer_s
    assert torch.allclose(cut, whole, rtol=1e-4, atol=1e-6)
    for name in ("loss", "value_loss", "explained_variance"):
        assert many.losses[name] == pytest.approx(one.losses[name], abs=1e-5)


def test_mini_batches_do_not_depend_on_rows(small_model: Path, tmp_path: Path) -> None:
    how = {"ppo_epochs": 2, "ppo_mini_batches": 2}
    (many, cut), (few, whole) = (
        _gradient(small_model, tmp_path, row_tokens=tokens, **how) for tokens in (12, 256)
    )
    assert torch.allclose(cut, whole, rtol=1e-4, atol=1e-6)
    for name in ("loss", "value_loss", "ratio_mean"):
        assert many.losses[name] == pytest.approx(few.losses[name], abs=1e-5)
    settings = _settings(small_model, tmp_path, **how)
    batch = prepare_batch(_groups(0), version=0, settings=settings, averages=None)
    dealt = [
        {row.group_id for row in rows} for rows in ppo._mini_batches(batch.rows, step=0, settings=settings)
    ]
    assert [len(groups) for groups in dealt] == [2, 2, 2, 2]
    assert dealt[0] | dealt[1] == dealt[2] | dealt[3] == {group.id for group in _groups(0)}


@pytest.mark.parametrize(("constant", "by_number"), [(0, (8, 8, 64, 64)), (100, (100,) * 4)])
def test_mini_batches_divide_by_the_constant_of_their_completions(
    small_model: Path, tmp_path: Path, constant: int, by_number: tuple[int, ...]
) -> None:
    groups = [
        replace(group, sampling=Sampling(max_tokens=limit))
        for group, limit in zip(_groups(0), (8, 8, 64, 64), strict=True)
    ]
    settings = _settings(
        small_model, tmp_path, loss_weights="constant", loss_constant=constant, ppo_mini_batches=4
    )
    inputs = StepInput(groups, 0, settings, None, 0.0, World())
    divisors = {
        rows[0].group_id: ppo._normaliser(rows, inputs)
        for rows in ppo._mini_batches(inputs.batch().rows, step=0, settings=settings)
    }
    assert divisors == {
        group.id: len(group.traces) * limit for group, limit in zip(groups, by_number, strict=True)
    }


def test_a_k1_penalty_is_paid_token_by_token(small_model: Path, tmp_path: Path) -> None:
    settings = _settings(
        small_model, tmp_path, kl="k1", kl_coefficient=0.5, gae_lambda=1.0, whiten=False, seed=2
    )
    policy = Policy(settings)
    for name, weight in policy.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    batch = prepare_batch(_groups(0), version=0, settings=settings, averages=None)
    found = ppo._estimate(policy, batch, StepInput(_groups(0), 0, settings, None, 0.5, World()))
    row = batch.rows[0]
    with torch.no_grad():
        scores = policy.score(collate([row]), reference=True)
    gaps = (scores.logprobs_N - scores.reference_logprobs_N).tolist()[: len(row.completions[0].token_ids)]
    expected = [row.completions[0].advantage - 0.5 * sum(gaps[t:]) for t in range(len(gaps))]
    assert max(map(abs, gaps)) > 1e-3
    assert found[id(row)][0].returns == pytest.approx(expected, abs=1e-4)
    every = [gap for of_row in found.values() for e in of_row for gap in e.penalties]
    figures = ppo._statistics([], found, kl="k1")
    assert figures["kl_penalty"] == pytest.approx(sum(every) / len(every))


def _run(
    settings: TrainerSettings, policy: Policy, optimizer: "torch.optim.Optimizer", steps: range
) -> RunningState:
    state = RunningState()
    for step in steps:
        groups = _groups(step)
        stats = train_step(policy, optimizer, groups, step=step, settings=settings, state=state)
        state = state.after(groups, stats, step=step, zero_variance_share=0.0, settings=settings)
    return state


def test_resuming_gives_the_bytes_of_not_stopping(small_model: Path, tmp_path: Path) -> None:
    settings = _settings(small_model, tmp_path, ppo_epochs=2, ppo_mini_batches=2, row_tokens=32)
    whole = build_policy(settings)
    assert whole.value_head is not None
    optimizer = adam.build(whole.parameters, lr=settings.lr)
    _run(settings, whole, optimizer, range(2))
    commit = commits.write(
        tmp_path / "adapters",
        number=2,
        files={**whole.version_files(), adam.FILE: adam.dump(optimizer)},
        ledger=(),
        fingerprint=settings.fingerprint(),
    )
    _run(settings, whole, optimizer, range(2, 4))
    again = build_policy(settings)
    moments = adam.build(again.parameters, lr=settings.lr)
    again.load_version(commit.folder)
    adam.restore(moments, commit.folder)
    _run(settings, again, moments, range(2, 4))
    assert contents(again.version_files()) == contents(whole.version_files())
    assert content(adam.dump(moments)) == content(adam.dump(optimizer))
    assert whole.value_head.weight.abs().max() > 0


def test_the_head_lies_outside_of_what_servers_load(small_model: Path, tmp_path: Path) -> None:
    settings = _settings(small_model, tmp_path)
    files, plain = (
        contents(build_policy(settings).version_files()),
        contents(Policy(_settings(small_model, tmp_path, objective="grpo")).version_files()),
    )
    assert set(files) - set(plain) == {VALUE_HEAD_FILE}
    assert files["adapter_model.safetensors"] == plain["adapter_model.safetensors"]
    assert type(build_policy(_settings(small_model, tmp_path, objective="grpo"))) is Policy


def test_a_batch_without_a_token_to_learn_from_moves_nothing(small_model: Path, tmp_path: Path) -> None:
    settings = _settings(small_model, tmp_path)
    policy = Policy(settings)
    before = contents(policy.version_files())
    groups = [
        replace(group, traces=tuple(trace for trace in group.traces if trace.completion.truncated))
        for group in (make_group(n, finish_reason="length") for n in range(2))
    ]
    optimizer = adam.build(policy.parameters, lr=1.0)
    result = train_step(policy, optimizer, groups, step=0, settings=settings, state=RunningState())
    assert result.tokens == result.micro_batches == 0
    assert contents(policy.version_files()) == before


class Broken(Policy):
    """A critic that has no number for one token id, in every score or in those with gradients."""

    token, when = 0, "always"

    def score(self, batch, **with_gradient):  # type: ignore[no-untyped-def]
        self._bad = batch.targets_N == self.token
        return super().score(batch, **with_gradient)

    def values(self, hidden: "torch.Tensor") -> "torch.Tensor":
        values = super().values(hidden)
        if self.when == "always" or torch.is_grad_enabled():
            values = torch.where(self._bad, torch.nan, values)
        return values


@pytest.mark.parametrize("when", ["always", "learning"])
def test_a_value_that_is_no_number_names_its_own_group(small_model: Path, tmp_path: Path, when: str) -> None:
    settings = _settings(small_model, tmp_path, micro_batch_tokens=1, row_tokens=256)
    policy = Broken(settings)
    groups = _groups(0)
    policy.when, policy.token = when, groups[2].traces[1].completion.token_ids[0]
    others = [
        t for g in groups for trace in g.traces for t in trace.completion.token_ids if g is not groups[2]
    ]
    assert policy.token not in others
    optimizer = adam.build(policy.parameters, lr=settings.lr)
    before = contents(policy.version_files())
    said = (
        r"group group-2: value of token \d+ is nan"
        if when == "always"
        else r"loss is nan .* of groups group-2$"
    )
    with pytest.raises(ArithmeticError, match=said):
        train_step(policy, optimizer, groups, step=0, settings=settings, state=RunningState())
    assert contents(policy.version_files()) == before


@pytest.mark.parametrize(("before", "after"), [("ppo", "grpo"), ("grpo", "ppo")])
def test_a_critic_does_not_come_or_go_within_a_run(
    small_model: Path, tmp_path: Path, before: str, after: str
) -> None:
    made, resumed = (_settings(small_model, tmp_path, objective=name) for name in (before, after))
    commits.write(
        tmp_path / "adapters",
        number=0,
        files={"adapter_model.safetensors": b""},
        ledger=(),
        fingerprint=made.fingerprint(),
    )
    with pytest.raises(SetupError, match="critic was"):
        commits.to_resume(tmp_path / "adapters", fingerprint=resumed.fingerprint())

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rookery.advantages import TurnReward, compared_returns, in_order_of_turns, leave_one_out, without_signal
from rookery.codec import decode_group, encode_group
from rookery.config.trainer import TrainerSettings
from rookery.metrics import TRAINER_STALE_TURNS
from rookery.trace import Completion, Outcome, Trace, TraceGroup, Turn, Verdict
from services.trainer.batches.advantages import RewardAverages, averages_by_role
from services.trainer.batches.micro_batches import collate, micro_batches
from services.trainer.batches.rows import Row, prepare_batch
from services.trainer.batches.rows import make_rows as with_advantages
from services.trainer.model.policy import Policy
from services.trainer.records.describe import describe_step
from services.trainer.training.step import zero_variance_share
from tests.unit.trainer.groups import alone, make_episodes, make_group


def test_turns_that_go_on_from_each_other_share_a_row() -> None:
    group = make_episodes(1)
    made = rows([group], version=1, mask_truncated=True, row_tokens=999)
    assert [[c.turn for c in row.completions] for row in made] == [
        ["1-0", "1-0.1", "1-0.2", "1-1"],
        ["1-1.1", "1-1.2"],
    ]
    (_, second, third, last), (own, _) = (row.completions for row in made)
    assert (second.context, last.context, own.context) == (group.turns[1].prompt_token_ids, None, None)
    assert [c.age for c in (second, third, last, own)] == [0, 1, 1, 0]
    assert made[0].length == 5 + sum(len(c.token_ids) for c in made[0].completions) + 10 - 2
    assert [len(row.completions) for row in rows([group], version=1, mask_truncated=True, row_tokens=1)] == [
        3, 1, 2,
    ]  # fmt: skip


@pytest.mark.parametrize("masked", [None, "empty", 0, 1], ids=str)
def test_turns_have_the_losses_and_gradients_of_each_alone(
    small_model: Path, tmp_path: Path, masked: int | str | None
) -> None:
    """Also if a turn before them carries no loss, or if nothing is between them."""
    group = make_episodes(3)
    if masked == "empty":
        turns = tuple(
            replace(turn, prompt_token_ids=()) if turn.continues else turn for turn in group.traces[0].turns
        )
        group = replace(group, traces=(replace(group.traces[0], turns=turns), group.traces[1]))
        decode_group(encode_group(group))
    elif isinstance(masked, int):
        turns = list(group.traces[0].turns)
        turns[masked] = replace(
            turns[masked], completion=replace(turns[masked].completion, finish_reason="length")
        )
        group = replace(group, traces=(replace(group.traces[0], turns=tuple(turns)), group.traces[1]))
    settings = TrainerSettings(model=small_model, run_dir=tmp_path, precision="fp32", mask_truncated=True)
    scored, gradients = [], []
    for kind in (group, alone(group)):
        policy = Policy(settings)
        made = rows([kind], version=1, mask_truncated=True, row_tokens=0)
        batch = collate(made)
        logprobs = policy.score(batch).logprobs_N
        (logprobs * batch.behaviour_N).sum().backward()
        gradients.append(torch.cat([weight.grad.flatten() for weight in policy.parameters]))
        turns_of_tokens = [c.turn for row in made for c in row.completions for _ in c.token_ids]
        scored.append(
            [value for _, value in sorted(zip(turns_of_tokens, logprobs.tolist(), strict=True), key=key)]
        )
    assert scored[0] == pytest.approx(scored[1], abs=1e-5)
    assert torch.allclose(*gradients, atol=1e-5)
    assert gradients[0].abs().max() > 1e-3


rewards = st.lists(st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=4), min_size=2, max_size=5)
VERDICT = Verdict(0.0, Outcome.LEGAL, "t")


def played(by_episode: list[list[float]], *, roles: tuple[str, ...] = ("",), paid: float = 0.0) -> TraceGroup:
    """A group of episodes by the rewards of their verdicts, whose roles take turns."""
    traces = [
        Trace(
            str(slot),
            tuple(
                Turn(
                    Completion("", (7,), (-1.0,), "stop", 0),
                    replace(VERDICT, reward=r),
                    rewards={"result": paid * slot},
                    role=roles[turn % len(roles)],
                )
                for turn, r in enumerate(episode)
            ),
        )
        for slot, episode in enumerate(by_episode)
    ]
    return replace(make_group(1), traces=tuple(traces))


def advantages_of(
    group: TraceGroup, averages: RewardAverages | None = None, **given: Any
) -> dict[str, float]:
    settings = TrainerSettings(model=Path(), run_dir=Path(), normalise=False, **given)
    rows = prepare_batch([group], version=0, settings=settings, averages=averages).rows
    return {c.turn: c.advantage for row in rows for c in row.completions}


@pytest.mark.parametrize("form", ["sum", "mean"])
@given(rewards)
def test_the_advantage_of_a_turn_is_its_return_less_that_of_the_others(
    form: Literal["sum", "mean"], by_episode: list[list[float]]
) -> None:
    """With `mean`, the verdicts of more turns count no more, but what the environment pays does."""
    got = advantages_of(played(by_episode, paid=0.5), baseline="leave-one-out", turn_rewards=form)
    total = {"sum": np.sum, "mean": np.mean}[form]

    def gain(i: int, t: int) -> float:
        rest = by_episode[i][min(t, len(by_episode[i]) - 1) :]
        return float(total(rest)) + 0.5 * i * len(rest)

    for i, episode in enumerate(by_episode):
        for t in range(len(episode)):
            expected = gain(i, t) - np.mean([gain(j, t) for j in range(len(by_episode)) if j != i])
            assert got[f"{i}.{t}" if t else str(i)] == pytest.approx(expected, abs=1e-9)


@given(rewards)
def test_each_role_has_returns_and_a_moving_average_of_its_own(by_episode: list[list[float]]) -> None:
    """As in SPIRAL: A = R_role - b_role, and b_role moves by the returns of the role alone."""
    group = played(by_episode, roles=("white", "black"))
    known = RewardAverages(9.0, 0.0, 0.0, roles={role: RewardAverages(b, 0, 0) for role, b in BASES.items()})
    got = advantages_of(group, known, baseline="ema")
    returns: dict[str, list[float]] = {"white": [], "black": []}
    for i, episode in enumerate(by_episode):
        for t in range(len(episode)):
            role = ("white", "black")[t % 2]
            expected = np.sum(episode[t::2]) - BASES[role]
            assert got[f"{i}.{t}" if t else str(i)] == pytest.approx(expected, abs=1e-9)
    compared = compared_returns(group.turn_rewards)
    for peers in compared:
        returns[peers.role] += peers.returns
    after = averages_by_role(known, compared, decay=0.75)
    for role, of_role in returns.items():
        moved = 0.75 * BASES[role] + 0.25 * np.mean(of_role) if of_role else BASES[role]
        assert after.roles[role].mean == pytest.approx(moved, abs=1e-9)
    assert averages_by_role(RewardAverages(1.0, 0, 0), compared, decay=0.5).of("") == RewardAverages(
        1.0, 0, 0
    )


BASES = {"white": 0.4, "black": -0.3}


def test_a_group_is_uniform_only_if_no_turn_can_be_told_from_its_peers() -> None:
    """Returns that agree as a whole may differ by turn: one gains first what the other gains last."""
    assert not without_signal(played([[1.0, 0.0], [0.0, 1.0]]).turn_rewards)
    assert without_signal(played([[1.0, 0.0], [1.0, 0.0]]).turn_rewards)
    assert without_signal(played([[0.5], [0.5, 0.5]]).turn_rewards, mean=True)
    assert not without_signal(played([[0.5], [0.5, 0.5]]).turn_rewards)
    # What floats leave of a difference is none: 0.3 / 3 is not 0.1, and a sum depends on its order.
    assert without_signal(played([[0.1] * 3, [0.1] * 2]).turn_rewards, mean=True)
    assert not without_signal(played([[0.1] * 3, [0.1 + 1e-9] * 2]).turn_rewards, mean=True)
    assert compared_returns(played([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]).turn_rewards)[0].returns == [0.6, 0.6]


@pytest.mark.parametrize(("form", "equal"), [("sum", 0), ("mean", 1)])
def test_the_share_of_equal_groups_is_of_the_returns_that_are_trained_on(
    form: Literal["sum", "mean"], equal: int
) -> None:
    groups = [played([[0.5], [0.5, 0.5]]), played([[0.0], [1.0]])]
    assert zero_variance_share(groups, dropped=2, turn_rewards=form) == (equal + 2) / 4
    row = describe_step(groups, {}, version=1, dropped={}, turn_rewards=form)
    assert row["zero_variance_groups"] == equal


@pytest.mark.parametrize("mean", [False, True])
def test_the_expected_gradient_is_that_of_the_expected_return(mean: bool) -> None:
    """By plain autograd, over all pairs of episodes of a policy that ends an episode itself. The parameters
    of a turn get the gradient of the return from that turn on."""
    logits = torch.tensor([[0.3, -0.2], [0.1, 0.7], [-0.4, 0.2]], dtype=torch.float64, requires_grad=True)

    def episodes(turn: int = 0) -> Iterator[tuple[list[int], list[float]]]:
        """The actions, and what they pay: action 0 ends the episode."""
        yield [0], [0.5 * turn - 0.3]
        if turn < 2:
            for actions, paid in episodes(turn + 1):
                yield [1, *actions], [-0.1, *paid]
        else:
            yield [1], [1.0]

    def log(actions: list[int]) -> torch.Tensor:
        return torch.stack([logits[t].log_softmax(-1)[action] for t, action in enumerate(actions)])

    every = list(episodes())
    true = torch.zeros_like(logits)
    for t in range(3):
        expected_return = sum(
            log(actions).sum().exp() * (np.mean if mean else np.sum)(paid[t:])
            for actions, paid in every
            if len(paid) > t
        )
        true[t] = torch.autograd.grad(expected_return, logits)[0][t]
    surrogate = torch.zeros((), dtype=torch.float64)
    for pair in itertools.product(every, repeat=2):
        probability = math.prod(log(actions).sum().exp().item() for actions, _ in pair)
        peers = compared_returns([[TurnReward(r) for r in paid] for _, paid in pair], mean=mean)
        values = [leave_one_out(each.returns, normalise=False) for each in peers]
        by_turn = torch.tensor(in_order_of_turns(peers, values), dtype=torch.float64)
        surrogate = surrogate + probability * (by_turn * torch.cat([log(a) for a, _ in pair])).sum() / 2
    (estimated,) = torch.autograd.grad(surrogate, logits)
    assert torch.allclose(estimated, true, atol=1e-12)
    assert true.abs().min() > 1e-3


def test_turns_that_are_too_old_carry_no_loss(tmp_path: Path) -> None:
    group = make_episodes(1)
    before = TRAINER_STALE_TURNS._value.get()
    settings = TrainerSettings(model=Path(), run_dir=tmp_path, max_staleness=2)
    batch = prepare_batch([group], version=3, settings=settings, averages=None)
    assert {c.turn for row in batch.rows for c in row.completions} == {"1-0.1", "1-1.1"}
    assert TRAINER_STALE_TURNS._value.get() - before == 4
    assert batch.tokens == sum(len(turn.completion.token_ids) for turn in group.turns if turn.policy)


def key(scored: tuple[str, float]) -> str:
    return scored[0].replace(".", "-turn-")


def rows(groups: list[TraceGroup], *, version: int, mask_truncated: bool, row_tokens: int) -> list[Row]:
    slots = [[float(slot) for slot in range(len(group.turns))] for group in groups]
    return with_advantages(
        groups, slots, version=version, mask_truncated=mask_truncated, row_tokens=row_tokens
    )


numbers = st.lists(st.integers(0, 10_000), min_size=1, max_size=12, unique=True)


@given(numbers, st.integers(12, 60))
def test_every_completion_lands_in_exactly_one_row_that_fits(ids: list[int], row_tokens: int) -> None:
    groups = [make_group(n) for n in ids]
    made = rows(groups, version=0, mask_truncated=True, row_tokens=row_tokens)
    expected = sorted(t.completion.token_ids for g in groups for t in g.traces)
    assert sorted(c.token_ids for row in made for c in row.completions) == expected
    assert all(row.length <= row_tokens or len(row.completions) == 1 for row in made)


@given(numbers, st.integers(20, 400))
def test_micro_batches_hold_every_row_once_within_the_budget(ids: list[int], tokens: int) -> None:
    made = rows([make_group(n) for n in ids], version=0, mask_truncated=True, row_tokens=64)
    cut = micro_batches(made, tokens=tokens)
    assert sorted(map(id, (row for micro in cut for row in micro))) == sorted(map(id, made))
    assert all(len(m) == 1 or sum(r.length for r in m) <= tokens for m in cut)


def test_truncated_completions_count_in_the_baseline_but_carry_no_loss() -> None:
    group = make_group(5, finish_reason="length")
    kept = rows([group], version=0, mask_truncated=True, row_tokens=999)
    whole = rows([group], version=0, mask_truncated=False, row_tokens=999)
    assert len(kept[0].completions) == len(whole[0].completions) - 1
    assert kept[0].completions == whole[0].completions[1:]


def test_ages_count_from_the_trainers_version() -> None:
    made = rows([make_group(1, version=3)], version=5, mask_truncated=True, row_tokens=99)
    assert {c.age for row in made for c in row.completions} == {2}


def test_a_micro_batch_holds_one_temperature_even_when_the_rollouts_changed_theirs() -> None:
    old, new = make_group(1), make_group(2)
    new = replace(new, sampling=replace(new.sampling, temperature=0.8))
    made = rows([old, new], version=0, mask_truncated=True, row_tokens=999)
    cut = micro_batches(made, tokens=8192)
    assert [{row.temperature for row in micro} for micro in cut] == [{1.0}, {0.8}]


def test_a_group_is_one_row_unless_it_is_longer_than_a_pass_or_one_asks() -> None:
    groups = [make_group(n, size=6) for n in range(3)]

    def shapes(**given: int) -> list[int]:
        chosen = TrainerSettings(model=Path(), run_dir=Path(), mask_truncated=False, **given)
        return [
            len(row.completions)
            for row in prepare_batch(groups, version=0, settings=chosen, averages=None).rows
        ]

    assert shapes() == [6, 6, 6]
    assert max(shapes(micro_batch_tokens=20)) < 6
    assert shapes(micro_batch_tokens=20) == shapes(row_tokens=20)
    assert shapes(row_tokens=10) == [1] * 18

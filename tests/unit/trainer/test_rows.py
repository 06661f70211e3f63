from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rookery.config.trainer import TrainerSettings
from rookery.trace import TraceGroup
from services.trainer.batches.micro_batches import micro_batches
from services.trainer.batches.rows import Row, prepare_batch
from services.trainer.batches.rows import make_rows as with_advantages
from tests.unit.trainer.groups import make_group


def rows(groups: list[TraceGroup], *, version: int, mask_truncated: bool, row_tokens: int) -> list[Row]:
    slots = [[float(slot) for slot in range(len(group.traces))] for group in groups]
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

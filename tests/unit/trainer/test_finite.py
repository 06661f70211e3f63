"""Numbers that are none are stopped before the model runs, and the group is named."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.config.trainer import TrainerSettings
from rookery.trace import Claim, Sentence, TraceGroup
from services.trainer.batches.advantages import RewardAverages
from services.trainer.batches.intake import check_group
from services.trainer.batches.micro_batches import Partition
from services.trainer.batches.rows import Row, prepare_batch
from services.trainer.training.update import check_losses
from tests.builders import changed
from tests.unit.trainer.groups import make_group


def _with(group: TraceGroup, slot: int, **fields: object) -> TraceGroup:
    traces = list(group.traces)
    verdict = replace(traces[slot].verdict, **{k: v for k, v in fields.items() if k != "logprobs"})
    completion = replace(traces[slot].completion, **{k: v for k, v in fields.items() if k == "logprobs"})
    traces[slot] = changed(traces[slot], verdict=verdict, completion=completion)
    return replace(group, traces=tuple(traces))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_a_reward_that_is_no_number_is_stopped(bad: float) -> None:
    check_group(make_group(2))
    with pytest.raises(ArithmeticError, match=r"group group-2: reward of completion 3 is -?(nan|inf|1e)"):
        check_group(_with(make_group(2), 3, reward=bad))
    said = (Sentence(0, 1, True, (Claim("pin", 0, 1, True, bad),)),)
    with pytest.raises(ArithmeticError, match=r"group group-2: reward of completion 3 is -?(nan|inf|1e)"):
        check_group(_with(make_group(2), 3, sentences=said))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_log_probability_that_is_no_number_is_stopped(bad: float) -> None:
    group = make_group(7)
    logprobs = (*group.traces[1].completion.logprobs[:-1], bad)
    place = len(logprobs) - 1
    with pytest.raises(
        ArithmeticError, match=rf"group group-7: log-probability of token {place} of completion 1 is"
    ):
        check_group(_with(group, 1, logprobs=logprobs))


def test_advantages_that_are_no_numbers_are_stopped() -> None:
    settings = TrainerSettings(model=Path(), run_dir=Path(), baseline="ema")
    with pytest.raises(ArithmeticError, match=r"group group-3: advantages \(nan, .* of rewards \(-0"):
        prepare_batch(
            [make_group(3)], version=0, settings=settings, averages=RewardAverages(math.nan, 0.0, 0.0)
        )


def test_a_loss_that_is_no_number_names_its_groups_once() -> None:
    rows = [_row("a"), _row("b"), _row("a")]
    with pytest.raises(ArithmeticError, match=r"step 4: loss is nan in a micro-batch of groups a, b$"):
        check_losses([0.0, math.nan], Partition([], [[_row("c")], rows]), step=4)
    check_losses([0.0], Partition([], [[_row("a")]]), step=4)


def _row(group_id: str) -> Row:
    return Row((1,), (), 1.0, group_id)

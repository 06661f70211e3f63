"""The learning rate: the same function for the trainer and for the commands on files, resumed or not."""

import math
from pathlib import Path
from typing import Any, get_args

import pytest

from rookery.config.conditions import LrSchedule
from rookery.config.trainer import TrainerSettings
from services.trainer.training.optimizer import lr_factor

KINDS = get_args(LrSchedule)


@pytest.mark.parametrize("kind", KINDS)
def test_the_warm_up_is_a_line_to_the_whole(kind: LrSchedule) -> None:
    rising = [lr_factor(kind, step=step, steps=100, warmup=4) for step in range(5)]
    assert rising == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert lr_factor(kind, step=0, steps=100, warmup=0) == 1.0


def test_what_follows_ends_at_a_hundredth() -> None:
    after = {kind: [lr_factor(kind, step=s, steps=90, warmup=10) for s in range(10, 120)] for kind in KINDS}
    assert set(after["constant"]) == {1.0}
    for kind in ("linear", "cosine"):
        assert after[kind][80:] == pytest.approx([0.01] * 30)
        assert after[kind][40] == pytest.approx(0.505)
        assert after[kind] == sorted(after[kind], reverse=True)
    assert after["linear"][20] == pytest.approx(1 - 0.99 / 4)
    assert after["cosine"][20] == pytest.approx(0.01 + 0.99 * (1 + math.cos(math.pi / 4)) / 2)


def test_a_run_without_an_end_cannot_fall_until_it() -> None:
    given: dict[str, Any] = {"model": Path(), "run_dir": Path(), "lr_schedule": "cosine"}
    with pytest.raises(ValueError, match="lr_schedule=cosine falls until max_steps, which is not set"):
        TrainerSettings(**given)
    assert TrainerSettings(**given, max_steps=5).lr_schedule == "cosine"

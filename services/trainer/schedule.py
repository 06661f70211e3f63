"""The learning rate as a share of its peak. It depends on the step only, so that runs can resume."""

import math

from services.trainer.settings.adam import LrSchedule

LEAST = 0.01
"""The share at which linear and cosine end, so that the last steps still change the weights."""


def share(schedule: LrSchedule, *, step: int, steps: int, warmup: int) -> float:
    """Returns the share at `step`, counted from 0: a linear warm-up, then `schedule` until `steps`.

    >>> [round(share("cosine", step=s, steps=100, warmup=10), 2) for s in (0, 9, 10, 55, 100)]
    [0.09, 0.91, 1.0, 0.51, 0.01]
    >>> [round(share("linear", step=s, steps=100, warmup=0), 2) for s in (0, 50, 100, 200)]
    [1.0, 0.51, 0.01, 0.01]
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule == "constant":
        return 1.0
    done = min(1.0, (step - warmup) / max(1, steps - warmup))
    left = 1 - done if schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return LEAST + (1 - LEAST) * left

"""The main loop of every process except rank 0: it follows rank 0's orders."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rookery.errors import SetupError
from services.trainer.distributed import orders
from services.trainer.distributed.world import Follower
from services.trainer.learner import Learner
from services.trainer.model.policy import Policy
from services.trainer.settings import TrainerSettings
from services.trainer.trainee import Trainee
from services.trainer.versions import tensor_file

logger = logging.getLogger(__name__)

OWN = frozenset(("device", "threads", "host", "port"))
"""Settings in which processes may differ. A measured `micro_batch_tokens` comes from rank 0."""


def follow(
    settings: TrainerSettings, policy: Policy, world: Follower, *, told_to_stop: threading.Event
) -> None:
    """Follows the orders of rank 0 until rank 0 announces the end.

    Raises:
        SetupError: this process has other settings than rank 0.
        ArithmeticError: its state differs from rank 0's after the same batches.
        Unavailable: rank 0 is gone.
    """
    trainee = Trainee.of(settings, policy, world)
    learned: Learner | None = None
    for data in world.orders(told_to_stop):
        order = orders.decode(data)
        if isinstance(order, orders.Begin):
            settings = agreed(settings, order.settings)
            trainee = Trainee(settings, policy, trainee.optimizer, world)
            trainee.load(Path(order.folder))
            learned = None
        elif isinstance(order, orders.Files):
            for content in trainee.files().values():
                for _ in tensor_file.pieces(content):
                    pass
        else:
            learner = Learner.of(order.learner)
            if learned not in (None, learner):
                raise ArithmeticError(
                    f"step {order.step}: rank {world.rank} has learned {learned}, rank 0 {learner}"
                )
            _, after = trainee.learn(
                order.groups,
                step=order.step,
                learner=learner,
                dropped_zero_variance=order.dropped_zero_variance,
                rehearsal=order.rehearsal,
            )
            learned = learned if order.rehearsal else after
    logger.info("rank %d ends", world.rank)


def agreed(settings: TrainerSettings, leaders: Mapping[str, Any]) -> TrainerSettings:
    """Returns `settings` with the `micro_batch_tokens` that rank 0 measured.

    Raises:
        SetupError: they differ from rank 0's. The message names the differences.
    """
    if not settings.micro_batch_tokens:
        settings = settings.model_copy(update={"micro_batch_tokens": leaders["micro_batch_tokens"]})
    own = settings.model_dump(mode="json")
    changed = [
        f"{name} is {own.get(name)!r}, rank 0 has {leaders.get(name)!r}"
        for name in sorted((own.keys() | leaders.keys()) - OWN)
        if own.get(name) != leaders.get(name)
    ]
    if changed:
        raise SetupError(f"processes of one trainer differ: {'; '.join(changed)}")
    return settings

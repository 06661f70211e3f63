"""Joins the processes that `accelerate launch` or torchrun started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from rookery.errors import SetupError
from services.trainer.distributed.world import Captain, Follower, World
from services.trainer.fitting.setup import device_named
from services.trainer.settings import TrainerSettings

TIMEOUT_S = 600.0
"""The timeout of a collective operation, and of the processes' rendezvous."""


@contextmanager
def joined(settings: TrainerSettings) -> Iterator[World]:
    """Yields the world that the launcher's environment describes; a single process without a launcher.

    Raises:
        SetupError: sharding is requested for a single process.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        if settings.sharding != "none":
            raise SetupError(
                f"--sharding {settings.sharding} needs several processes: "
                "accelerate launch --multi_gpu --num_processes 2 -m services.trainer ..."
            )
        yield World()
        return
    timeout = timedelta(seconds=TIMEOUT_S)
    store, rank, size = next(dist.rendezvous("env://", timeout=timeout))
    device = device_named(settings.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "cpu:gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    own = dist.PrefixStore("rookery", store)
    role = Follower if rank else Captain
    yield role(own, rank=rank, size=size, even=settings.sharding != "none")
    # Not after an error: NCCL would wait for data that the other processes never send.
    dist.destroy_process_group()


def own_device(settings: TrainerSettings) -> TrainerSettings:
    """Returns `settings` with this process's device from the list in `--device`.

    Raises:
        SetupError: this machine has more processes than devices, or one process has several devices.
    """
    place = int(os.environ.get("LOCAL_RANK", "0"))
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    names = settings.device.split(",")
    if len(names) > 1 and not several:
        raise SetupError(f"--device {settings.device} is of {len(names)} processes: see `accelerate launch`")
    if names == ["auto"] and several:
        names = [str(index) for index in range(torch.cuda.device_count())] or ["cpu"]
    if names in (["cpu"], ["auto"]):
        device = names[0]
    elif place < len(names):
        device = names[place]
    else:
        raise SetupError(
            f"process {place} of this machine finds no GPU: --device {settings.device} "
            f"has {len(names)}; lower --num_processes"
        )
    return settings.model_copy(update={"device": device})

"""The processes of one trainer: how they join, combine numbers, and receive rank 0's commands.

`World` itself is a single process, for which most calls do nothing.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rookery.config.finetune import FinetuneSettings
from rookery.config.trainer import TrainerSettings
from rookery.errors import SetupError, Unavailable
from services.trainer.distributed.placement import device_named

logger = logging.getLogger(__name__)

TIMEOUT_S = 600.0
"""The timeout of a collective operation, and of the processes' rendezvous."""
HEARTBEAT_S = 0.5
"""The interval of rank 0's heartbeats."""
HEARTBEAT_TIMEOUT_S = 60.0
"""A follower that waits for a command ends after this many seconds without a heartbeat."""
STOPPING_TIMEOUT_S = 5.0
"""The same for a follower that received a signal to stop. It waits for rank 0 to finish its step."""

_POLL_S = 0.02
_BUCKET = 1 << 24
"""How many gradient values are summed at once: 64 MiB in float32."""


class World:
    """A single process."""

    rank = 0
    size = 1
    sharded = False
    """Whether weights are sharded, so that all processes must make the same number of forward passes."""

    def gather(self, items: list[Any]) -> list[Any]:
        """Returns the items of all processes, in the order of ranks. They are JSON values and may be NaN."""
        return items

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replaces every process's gradients with the sum over all processes."""

    def command(self, build: Callable[[], bytes]) -> None:
        """Sends rank 0's command to the other processes. A single process does not build it."""

    @contextmanager
    def leading(self, stopping: threading.Event) -> Iterator[None]:
        """Wraps rank 0's work. Sets `stopping` when another process received a signal to stop. At the end of
        the block, all other processes end."""
        del stopping
        yield


class ProcessGroup(World):
    """Several processes in torch's default group, which must have a backend for CPU tensors.

    Commands are announced in `store`. A process waits for the next one as long as rank 0 sends heartbeats,
    because a batch may take long. A collective operation waits at most the group's timeout.
    """

    def __init__(self, store: Any, *, rank: int, size: int, sharded: bool) -> None:
        self.rank, self.size, self.sharded = rank, size, sharded
        self._store = store
        self._commands = 0

    def gather(self, items: list[Any]) -> list[Any]:
        data = _bytes_tensor(json.dumps(items).encode())
        lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(data)]))
        longest = int(max(lengths))
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, torch.nn.functional.pad(data, (0, longest - len(data))))
        texts = [_bytes(part[: int(length)]) for part, length in zip(parts, lengths, strict=True)]
        return [item for text in texts for item in json.loads(text)]

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sums the gradients of replicated weights. FSDP has already summed those of sharded ones.

        A process without rows adds zeros. If no process has a gradient, none is set: with zeros, Adam would
        still update the weights from its momentum.
        """
        replicated = [p for p in parameters if not hasattr(p, "full_tensor")]
        if not any(self.gather([any(p.grad is not None for p in replicated)])):
            return
        for bucket in _buckets(replicated):
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            total = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(total)
            sizes = [p.numel() for p in bucket]
            for parameter, part in zip(bucket, total.split(sizes), strict=True):
                parameter.grad = part.view_as(parameter)


class RankZero(ProcessGroup):
    """Rank 0, which sends commands and heartbeats to the other processes."""

    def command(self, build: Callable[[], bytes]) -> None:
        data = build()
        self._announce("order")
        dist.broadcast(torch.tensor([len(data)]), src=0)
        dist.broadcast(_bytes_tensor(data), src=0)

    @contextmanager
    def leading(self, stopping: threading.Event) -> Iterator[None]:
        finished = threading.Event()
        heartbeat = threading.Thread(
            target=self._send_heartbeats, args=(stopping, finished), name="heartbeat", daemon=True
        )
        heartbeat.start()
        try:
            yield
        finally:
            finished.set()
            heartbeat.join()
            self._announce("end")

    def _announce(self, word: str) -> None:
        self._store.set(f"order/{self._commands}", word)
        self._commands += 1

    def _send_heartbeats(self, stopping: threading.Event, finished: threading.Event) -> None:
        beats = 0
        while not finished.wait(HEARTBEAT_S):
            beats += 1
            try:
                self._store.set("pulse", str(beats))
                if self._store.check(["stop"]):
                    stopping.set()
            except RuntimeError as error:
                logger.error("the launcher, which keeps the processes together, is gone: %s", error)
                stopping.set()
                return


class Follower(ProcessGroup):
    """A process of another rank, which receives the commands."""

    def commands(self, stop_requested: threading.Event) -> Iterator[bytes]:
        """Yields rank 0's commands until it announces the end. `stop_requested` is passed on to rank 0, which
        stops between two steps. Raises `Unavailable` if rank 0 sent no heartbeat for too long."""
        while self._next_word(stop_requested) != b"end":
            length = torch.zeros(1, dtype=torch.long)
            dist.broadcast(length, src=0)
            data = torch.zeros(int(length), dtype=torch.uint8)
            dist.broadcast(data, src=0)
            yield _bytes(data)

    def _next_word(self, stop_requested: threading.Event) -> bytes:
        key = f"order/{self._commands}"
        self._commands += 1
        heartbeat = _Heartbeat(self._store)
        while not self._store.check([key]):
            if stop_requested.is_set():
                self._store.set("stop", "1")
            silence_s = heartbeat.silence_s()
            if silence_s > (STOPPING_TIMEOUT_S if stop_requested.is_set() else HEARTBEAT_TIMEOUT_S):
                raise Unavailable(f"no heartbeat of rank 0 for {silence_s:.0f} s")
            time.sleep(_POLL_S)
        word: bytes = self._store.get(key)
        return word


def is_rank_zero() -> bool:
    """Whether this process writes what all have computed: rank 0, or a single process."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def join_processes(settings: TrainerSettings | FinetuneSettings) -> Iterator[World]:
    """Yields the world that the launcher's environment describes; a single process without a launcher. Raises
    `SetupError` if sharding is requested for a single process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    sharding = settings.sharding if isinstance(settings, TrainerSettings) else "none"
    if size == 1:
        if sharding != "none":
            raise SetupError(
                f"sharding={sharding} needs several processes: "
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
    commands = dist.PrefixStore("rookery", store)
    role = Follower if rank else RankZero
    yield role(commands, rank=rank, size=size, sharded=sharding != "none")
    # Not after an error: NCCL would wait for data that the other processes never send.
    dist.destroy_process_group()


class _Heartbeat:
    """Measures the time since this process last saw a new heartbeat of rank 0."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._beat = b""
        self._checked_at = self._changed_at = time.monotonic()

    def silence_s(self) -> float:
        now = time.monotonic()
        if now - self._checked_at >= HEARTBEAT_S:
            self._checked_at = now
            beat = self._store.get("pulse") if self._store.check(["pulse"]) else b""
            if beat != self._beat:
                self._beat, self._changed_at = beat, now
        return now - self._changed_at


def _buckets(parameters: Sequence[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
    """Yields adjacent parameters of the same type, at most `_BUCKET` values together (or one parameter)."""
    bucket: list[torch.nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > _BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket


def _bytes_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _bytes(data: torch.Tensor) -> bytes:
    return bytes(data.numpy().tobytes())

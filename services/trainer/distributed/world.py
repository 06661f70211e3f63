"""The processes of one trainer. `World` itself is a single process, for which most calls do nothing."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from rookery.errors import Unavailable
from services.trainer.batches.batch import Row
from services.trainer.distributed.shares import Deal, deal

logger = logging.getLogger(__name__)

PULSE_S = 0.5
"""The interval of rank 0's pulses."""
SILENCE_S = 60.0
"""A follower that waits for orders ends after so long without a pulse."""
PARTING_S = 5.0
"""The same for a follower that was told to stop. It still waits while rank 0 finishes its step."""

_POLL_S = 0.02
_BUCKET = 1 << 24
"""How many gradient values are summed at once: 64 MiB in float32."""


class World:
    """A single process."""

    rank = 0
    size = 1

    def deal(self, rows: Sequence[Row], *, tokens: int) -> Deal:
        """Returns all processes' micro-batches of `rows`, at most `tokens` tokens each, and its own turns."""
        return deal(rows, tokens=tokens, rank=0, size=1, even=False)

    def gather(self, items: list[Any]) -> list[Any]:
        """Returns the items of all processes, in the order of ranks. They are JSON values and may be NaN."""
        return items

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Replaces every process's gradients with the sum over all processes."""

    def call(self, order: Callable[[], bytes]) -> None:
        """Sends rank 0's order to the others. A single process does not even build it."""

    @contextmanager
    def leading(self, stopping: threading.Event) -> Iterator[None]:
        """Wraps rank 0's work: sets `stopping` when another process was told to stop.

        All other processes end at the end of the block.
        """
        del stopping
        yield


class Crew(World):
    """Several processes in torch's default group, which must have a backend for CPU tensors.

    Orders are announced in `store`, and a process waits for one as long as rank 0 lives, because a batch may
    take long. In a collective operation it waits at most the group's timeout.
    """

    def __init__(self, store: Any, *, rank: int, size: int, even: bool) -> None:
        self.rank, self.size = rank, size
        self._store = store
        self.even = even
        self._orders = 0

    def deal(self, rows: Sequence[Row], *, tokens: int) -> Deal:
        return deal(rows, tokens=tokens, rank=self.rank, size=self.size, even=self.even)

    def gather(self, items: list[Any]) -> list[Any]:
        own = _bytes_tensor(json.dumps(items).encode())
        lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(own)]))
        longest = int(max(lengths))
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        dist.all_gather(parts, torch.nn.functional.pad(own, (0, longest - len(own))))
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


class Captain(Crew):
    """Rank 0."""

    def call(self, order: Callable[[], bytes]) -> None:
        data = order()
        self._announce("order")
        dist.broadcast(torch.tensor([len(data)]), src=0)
        dist.broadcast(_bytes_tensor(data), src=0)

    @contextmanager
    def leading(self, stopping: threading.Event) -> Iterator[None]:
        over = threading.Event()
        heart = threading.Thread(target=self._beat, args=(stopping, over), name="pulse", daemon=True)
        heart.start()
        try:
            yield
        finally:
            over.set()
            heart.join()
            self._announce("end")

    def _announce(self, word: str) -> None:
        self._store.set(f"order/{self._orders}", word)
        self._orders += 1

    def _beat(self, stopping: threading.Event, over: threading.Event) -> None:
        beats = 0
        while not over.wait(PULSE_S):
            beats += 1
            try:
                self._store.set("pulse", str(beats))
                if self._store.check(["stop"]):
                    stopping.set()
            except RuntimeError as error:
                logger.error("the launcher, which keeps the processes together, is gone: %s", error)
                stopping.set()
                return


class Follower(Crew):
    """Every other rank."""

    def orders(self, told_to_stop: threading.Event) -> Iterator[bytes]:
        """Yields rank 0's orders until it announces the end.

        `told_to_stop` is passed on to rank 0, which stops between two steps.

        Raises:
            Unavailable: rank 0 sent no pulse for too long.
        """
        while self._awaited(told_to_stop) != b"end":
            length = torch.zeros(1, dtype=torch.long)
            dist.broadcast(length, src=0)
            data = torch.zeros(int(length), dtype=torch.uint8)
            dist.broadcast(data, src=0)
            yield _bytes(data)

    def _awaited(self, told_to_stop: threading.Event) -> bytes:
        key = f"order/{self._orders}"
        self._orders += 1
        last = _Pulse(self._store)
        while not self._store.check([key]):
            if told_to_stop.is_set():
                self._store.set("stop", "1")
            silence_s = last.silence_s()
            if silence_s > (PARTING_S if told_to_stop.is_set() else SILENCE_S):
                raise Unavailable(f"no sign of life of rank 0 for {silence_s:.0f} s")
            time.sleep(_POLL_S)
        word: bytes = self._store.get(key)
        return word


class _Pulse:
    """Measures the time since this process last saw a new pulse of rank 0."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._beat = b""
        self._looked = self._changed = time.monotonic()

    def silence_s(self) -> float:
        now = time.monotonic()
        if now - self._looked >= PULSE_S:
            self._looked = now
            beat = self._store.get("pulse") if self._store.check(["pulse"]) else b""
            if beat != self._beat:
                self._beat, self._changed = beat, now
        return now - self._changed


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

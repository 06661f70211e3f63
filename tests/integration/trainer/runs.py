"""Runs in which a trainer of one process is started, in this process."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis

from rookery.config.trainer import TrainerSettings
from rookery.streams import RunStreams
from rookery.trace import Position, TraceGroup
from services.trainer import loop
from services.trainer.model.policies import build_policy
from services.trainer.versions.publisher import Publisher
from tests.builders import read

BATCH = 3
WITHIN_S = 600.0
"""How long a training may take, on a machine that does other things too."""


@contextlib.contextmanager
def events() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread."""
    running = asyncio.new_event_loop()
    thread = threading.Thread(target=running.run_forever)
    thread.start()
    try:
        yield running
    finally:
        running.call_soon_threadsafe(running.stop)
        thread.join()
        running.close()


class Run:
    """One run's streams and folder, in which a trainer can be started again and again."""

    def __init__(
        self, url: str, name: str, folder: Path, model: Path, events: asyncio.AbstractEventLoop
    ) -> None:
        self.url, self.name, self.folder, self.model, self.events = url, name, folder, model, events
        self.streams = RunStreams(url, name)

    def twin(self) -> "Run":
        """Another run, with streams and a folder of its own."""
        return Run(self.url, "two", self.folder.with_name("two"), self.model, self.events)

    def add(self, groups: list[TraceGroup], *, accept: str = "") -> None:
        cursor = self.streams.positions.cursor()
        positions: list[Position] = [group.position for group in groups]
        self.streams.positions.add(positions, cursor=cursor)
        for entry, group in zip(read(self.streams.positions, len(groups)), groups, strict=True):
            assert self.streams.groups.publish(group, entry_id=entry.id, accept=accept)

    def settings(self, steps: int, **changed: Any) -> TrainerSettings:
        return TrainerSettings(
            model=self.model, run_dir=self.folder, device="cpu", max_steps=steps, batch_groups=BATCH,
            redis_url=self.url, run=self.name, inference_urls="", threads=1, **changed,
        )  # fmt: skip

    def train(self, steps: int, **changed: Any) -> None:
        settings = self.settings(steps, **changed)
        commit = loop.check_resumable(settings, self.streams)
        epoch = self.streams.take_over()
        publisher = Publisher(self.streams.policy, settings, epoch=epoch, loop=self.events)
        stopping, late = threading.Event(), threading.Event()
        timer = threading.Timer(WITHIN_S, lambda: (late.set(), stopping.set()))
        timer.start()
        try:
            policy = build_policy(settings)
            loop.train(
                settings, policy, self.streams, publisher, commit=commit, epoch=epoch, stopping=stopping
            )
        finally:
            timer.cancel()
        assert not late.is_set(), f"{steps} steps were not done within {WITHIN_S:.0f} s"

    def version(self, number: int) -> Path:
        return self.folder / "adapters" / f"policy-v{number:06d}"

    def adapter(self, number: int) -> bytes:
        return (self.version(number) / "adapter_model.safetensors").read_bytes()

    def state(self, number: int) -> str:
        return (self.version(number) / "state.json").read_text()

    def reasons(self) -> list[str]:
        """Why entries went to `dead`."""
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            return [fields[b"reason"].decode() for _, fields in client.xrange(self.streams.redis.key("dead"))]

    def accounted(self) -> bool:
        counts = self.streams.counts()
        settled = counts.trained + sum(counts.dropped.values()) + counts.dead.get("traces", 0)
        return counts.generated == settled + self.streams.groups.length()

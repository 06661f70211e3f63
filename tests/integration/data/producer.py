"""What rollouts and trainer do to a run, without either: groups published, groups settled."""

from dataclasses import replace

from rookery.streams import RunStreams
from rookery.trace import TraceGroup
from tests.builders import take
from tests.unit.rookery.records import GROUP

BLOCK_S = 0.05


def make(streams: RunStreams, count: int, *, first: int = 0) -> list[TraceGroup]:
    """Publishes groups `g<first>` onwards the way rollouts do."""
    published = [replace(GROUP, id=f"g{first + number}", run=streams.name) for number in range(count)]
    for group, entry in zip(published, take(streams, count), strict=True):
        assert streams.groups.publish(group, entry_id=entry.id)
    return published


def settle_all(streams: RunStreams, result: str = "trained") -> int:
    """Settles what the trainer has not seen yet; how many groups that were."""
    epoch, settled = streams.take_over(), 0
    while streams.overview().traces:
        entries = streams.groups.read(consumer="trainer", count=100, block_s=BLOCK_S)
        settled += streams.groups.settle([e.id for e in entries], result=result, epoch=epoch)
    return settled

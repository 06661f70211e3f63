"""The Redis streams of one run. No other package accesses them."""

from rookery.streams.entry import MAX_DELIVERIES, Entry, decode_held_group
from rookery.streams.run import RunStreams

__all__ = ["MAX_DELIVERIES", "Entry", "RunStreams", "decode_held_group"]

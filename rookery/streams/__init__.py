"""The Redis streams of one run. No other package accesses them."""

from rookery.streams.run import DeadLetter, PolicyRecord, Positions, RunStreams
from rookery.streams.stream import Entry

__all__ = ["DeadLetter", "Entry", "PolicyRecord", "Positions", "RunStreams"]

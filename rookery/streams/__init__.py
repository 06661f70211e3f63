"""The Redis streams of one run. No other package accesses them."""

from rookery.streams.reader import Entry
from rookery.streams.run import RunStreams

__all__ = ["Entry", "RunStreams"]

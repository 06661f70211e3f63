"""Redis streams of one run: the only package that knows them."""

from rookery.streams.entry import Entry
from rookery.streams.run import RunStreams

__all__ = ["Entry", "RunStreams"]

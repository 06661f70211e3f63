"""The Redis streams of one run. No other package accesses them."""

from rookery.streams.dead import DEAD_BYTES, DEAD_FILE, DeadLetter, dump_letters, load_letters
from rookery.streams.run import PolicyRecord, Positions, RunStreams
from rookery.streams.stream import Entry

__all__ = [
    "DEAD_BYTES",
    "DEAD_FILE",
    "DeadLetter",
    "Entry",
    "PolicyRecord",
    "Positions",
    "RunStreams",
    "dump_letters",
    "load_letters",
]

"""SIGINT and SIGTERM while a run learns: the step in hand is finished and kept."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_SAID = b"finishing this step; a second signal ends at once\n"


@dataclass(slots=True)
class Interruption:
    """The signal that asked to stop; 0 where none has."""

    number: int = 0


@contextmanager
def heeded() -> Iterator[Interruption]:
    """While the block runs a first signal is noted; a second ends the process as if nobody listened."""
    asked = Interruption()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        asked.number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        os.write(2, _SAID)  # what is being written elsewhere may hold the logger's lock

    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield asked
        return
    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

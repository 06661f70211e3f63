"""Handles SIGINT and SIGTERM during training: the current step is finished and saved."""

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
    """The signal that asked to stop; 0 if there was none."""

    number: int = 0


@contextmanager
def heeded() -> Iterator[Interruption]:
    """Records the first signal inside the block. A second one has its default effect and ends the process."""
    asked = Interruption()

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        asked.number = number
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        os.write(2, _SAID)  # not the logger: the interrupted code may hold its lock

    if threading.current_thread() is not threading.main_thread():  # only the main thread can set handlers
        yield asked
        return
    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

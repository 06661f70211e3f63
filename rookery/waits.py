"""Records what this process waits for, and since when. Waits that last longer than expected are reported.

A thread writes it to the log and to the metric `rookery_waiting_seconds`; `/readyz` shows it too. A waiting
process stays ready, because it continues as soon as its peer does.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rookery.metrics import WAITING_S

logger = logging.getLogger(__name__)

CHECK_S = 5.0
"""Seconds between two reports."""
STEP_S = 900.0
"""What waits for a training step, or for the groups of one, is expected to wait at most so long. It is the
limit of the alert TrainerStalled, because an ordinary step with long answers may take many minutes."""


@dataclass(eq=False, slots=True)
class Wait:
    """A wait for `what` from `peer`, expected to last at most `expected_s` seconds."""

    what: str
    peer: str
    expected_s: float
    since: float = field(default_factory=time.monotonic)
    logged_s: float = 0.0
    """How long it had lasted when it was last written to the log."""

    @property
    def lasts_s(self) -> float:
        return time.monotonic() - self.since

    def __str__(self) -> str:
        return f"{self.what} from {self.peer} for {self.lasts_s:.0f} s"


_waits: set[Wait] = set()
_lock = threading.Lock()
_thread: threading.Thread | None = None


def begin(what: str, peer: str, *, expected_s: float) -> Wait:
    """Begins a wait. `what` and `peer` are labels of a metric, so they must take a few values only."""
    global _thread
    wait = Wait(what, peer, expected_s)
    with _lock:
        _waits.add(wait)
        if _thread is None:
            _thread = threading.Thread(target=_report_forever, name="waits", daemon=True)
            _thread.start()
    return wait


def end(wait: Wait) -> None:
    """Ends a wait."""
    with _lock:
        _waits.discard(wait)
    if wait.logged_s:
        logger.warning("waited for %s, and no longer does", wait)


@contextmanager
def waiting(what: str, peer: str, *, expected_s: float) -> Iterator[None]:
    """Waits during the block."""
    wait = begin(what, peer, expected_s=expected_s)
    try:
        yield
    finally:
        end(wait)


def overdue() -> list[Wait]:
    """The waits that last longer than expected, the longest first."""
    with _lock:
        late = [wait for wait in _waits if wait.lasts_s > wait.expected_s]
    return sorted(late, key=lambda wait: wait.since)


def report() -> None:
    """Updates the metric, and logs each wait again whenever it has lasted twice as long."""
    longest: dict[tuple[str, str], float] = {}
    for wait in overdue():
        longest.setdefault((wait.what, wait.peer), wait.lasts_s)
        if wait.lasts_s >= 2 * wait.logged_s:
            wait.logged_s = wait.lasts_s
            logger.warning("waits for %s, longer than the expected %.0f s", wait, wait.expected_s)
    WAITING_S.clear()
    for labels, seconds in longest.items():
        WAITING_S.labels(*labels).set(seconds)


def _report_forever() -> None:
    while True:
        time.sleep(CHECK_S)
        report()

"""Faults on demand at named places, to prove what a process promises if it ends there.

    ROOKERY_FAILPOINTS=trainer.committed=kill@2,commit.written=delay:500

`kill` ends the process as SIGKILL does, `error` raises an OSError, `delay:MS` sleeps. `@N` means the Nth time
that this process reaches the place; without it, every time. If ROOKERY_FAILPOINT_HITS names a file, each
place that is reached is written to it, so that a test can tell whether it reached all of them. Without these
variables, a place costs one look-up in an empty dictionary.
"""

import errno
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rookery.errors import SetupError

PLACES = {
    "trainer.stepped": "the optimizer has made its step, nothing is written",
    "commit.written": "the files are written and synced, but do not have their final name",
    "commit.renamed": "they have it, and the folder is not synced",
    "trainer.committed": "the version is durable, its batch not acknowledged",
    "trainer.acknowledged": "the batch is acknowledged, the version not published",
    "trainer.recorded": "the record names the version, no server was told",
    "trainer.published": "the servers were told, nothing is reported",
    "trainer.reported": "the step is in the metrics, old versions are not deleted",
    "rollouts.played": "a turn of an episode is made, and not stored",
    "rollouts.stored": "it is stored, and the next turn is not begun",
    "rollouts.generated": "a group is made, and not published",
    "rollouts.published": "it is published, and this process still holds its position",
    "archive.written": "a file is written, its entries not acknowledged",
    "archive.acknowledged": "they are acknowledged, and this process still holds them",
}

_ACTION = re.compile(r"([\w.]+)=(kill|error|delay:\d+)(?:@(\d+))?")

_armed: dict[str, tuple[str, int]] = {}
"""The action at each place, and the number of the passage at which it happens; 0 means every one."""
_passages: Counter[str] = Counter()
_hits: Path | None = None


def arm(environment: Mapping[str, str]) -> None:
    """Reads the two variables. Importing this module does it for the process's environment. Raises
    `SetupError` if a place or an action is unknown."""
    global _hits
    _passages.clear()
    _armed.clear()
    for text in filter(None, environment.get("ROOKERY_FAILPOINTS", "").split(",")):
        match = _ACTION.fullmatch(text)
        if match is None or match[1] not in PLACES:
            raise SetupError(
                f"ROOKERY_FAILPOINTS: {text!r} is not PLACE=kill, error or delay:MS, with @N or without; "
                f"the places are {', '.join(PLACES)}"
            )
        _armed[match[1]] = (match[2], int(match[3] or 0))
    file = environment.get("ROOKERY_FAILPOINT_HITS")
    _hits = Path(file) if file else None


def reach(place: str) -> None:
    """Tells that the process is at `place`, which must be one of `PLACES`."""
    if _armed or _hits:
        _act(place)


def _act(place: str) -> None:
    _passages[place] += 1
    if _hits:
        with _hits.open("a") as file:  # one short write in append mode: whole, whichever process writes too
            file.write(f"{place}\n")
    action, passage = _armed.get(place, ("", 0))
    if passage not in (0, _passages[place]):
        return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "error":
        raise OSError(errno.EIO, f"failpoint {place}")
    elif action:
        time.sleep(int(action.removeprefix("delay:")) / 1000)


arm(os.environ)

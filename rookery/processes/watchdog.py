"""Ends the process groups that a killed supervisor leaves behind.

Runs as a script with a pipe as its stdin. The supervisor writes `+PGID` for each group that it starts and
`-PGID` for each one that has ended. When the pipe closes, because the supervisor ended for any reason, the
remaining groups get SIGTERM, and SIGKILL after the seconds in its argument. Imports only the standard
library, to start fast.
"""

import contextlib
import os
import signal
import sys
import time

_GONE = ProcessLookupError, PermissionError
"""The second is macOS's, if only zombies are left in the group."""


def main(grace_s: float) -> None:
    """Waits for the pipe to close, then ends the remaining groups."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    _send(groups, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while groups and time.monotonic() < deadline:
        time.sleep(0.1)
        groups = {group for group in groups if _alive(group)}
    _send(groups, signal.SIGKILL)


def _send(groups: set[int], number: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(*_GONE):
            os.killpg(group, number)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except _GONE:
        return False
    return True


if __name__ == "__main__":
    main(grace_s=float(sys.argv[1]))

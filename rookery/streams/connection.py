"""A run's connection to Redis, and the version of the server. Calls wait while Redis is unavailable."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Self, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.retry import Retry

from rookery.errors import SetupError, Unavailable
from rookery.masking import mask_setting
from rookery.metrics import REDIS_RETRIES
from rookery.retries import pause_after
from rookery.waits import waiting

_VERSION = re.compile(r"(?P<name>Redis|Valkey) server v=(?P<version>\d+\.\d+\.\d+)")


class ServerVersion(NamedTuple):
    """A version, such as Redis 7.2.11. Versions are ordered by number alone."""

    number: tuple[int, int, int]
    name: str

    @classmethod
    def read(cls, text: str) -> Self | None:
        """The version in what `redis-server --version` prints, or None."""
        match = _VERSION.search(text)
        return cls(_number(match["version"]), match["name"]) if match else None

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Self:
        """The version in the answer to INFO. Valkey has a version of Redis there too, for old clients."""
        if valkey := info.get("valkey_version"):
            return cls(_number(valkey), "Valkey")
        return cls(_number(info["redis_version"]), "Redis")

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.number))}"


def _number(version: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return major, minor, patch


logger = logging.getLogger(__name__)

T = TypeVar("T")

EXPECTED_S = 10.0
"""A call that Redis does not answer for longer is reported."""

_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

_TEMPORARY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.BusyLoadingError,
    redis.exceptions.ClusterDownError,  # MASTERDOWN too
    redis.exceptions.TryAgainError,
)
"""Errors of a Redis that does not answer, is loading, or has no master at the moment: a retry may succeed."""

_TEMPORARY_WORDS = (
    "command not allowed when used memory",
    "MISCONF",
    "against a read only replica",
    "UNBLOCKED ",
    "NOREPLICAS ",
    "is busy running",
)
"""Words of other errors of a Redis that is full, fails over, or runs a long script. They may be anywhere in
the text, because errors of scripts and transactions begin with other words."""

_REFUSED = (
    redis.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
)
"""Errors for a wrong user or password, or a missing permission."""

_REFUSED_IN_SCRIPT = ("The user executing the script can't", "ACL failure in script")
"""Words of Redis 6.2 and 8.0 for a permission that a script's commands lack. These errors have no code."""


class Connections:
    """Counts the events that may have lost a reply: new connections and failed calls.

    redis-py may connect again without an error, and the retry of a failed call may use another connection.
    Before each of these events, Redis may also have restarted and lost its last writes.
    """

    losses = 0

    def add(self, connection: redis.Connection) -> None:
        """Replaces redis-py's own function for a new connection, and calls it."""
        self.losses += 1
        connection.on_connect()  # type: ignore[no-untyped-call]


class RunConnection:
    """Access to one run's keys in Redis. Thread-safe.

    If Redis is unavailable, full or fails over, calls log a warning, wait and retry. Setting `stopping` ends
    the waiting with `Unavailable`. With `once`, they raise it at once.
    """

    def __init__(
        self, url: str, run: str, *, stopping: threading.Event | None = None, once: bool = False
    ) -> None:
        self.run = run
        self._stopping = stopping or threading.Event()
        self._once = once
        self._place = mask_setting(url)
        self.connections = Connections()
        self.client = redis.Redis.from_url(
            url,
            socket_timeout=15.0,
            socket_connect_timeout=5.0,
            health_check_interval=30,
            retry=Retry(NoBackoff(), 0),  # `call` repeats, and counts
            redis_connect_func=self.connections.add,
        )
        self._scripts: dict[str, Script] = {}

    async def stop_waiting(self, stopping: asyncio.Event) -> None:
        """Ends the waiting of all calls once the service stops: a background task of the service."""
        await stopping.wait()
        self._stopping.set()

    def close(self) -> None:
        self.client.close()

    def key(self, name: str) -> str:
        """The full name of one of this run's Redis keys."""
        return f"rookery:{self.run}:{name}"

    def ping(self, *, once: bool = False) -> None:
        """Waits until Redis answers. With `once` it does not wait.

        Raises:
            SetupError: Redis refuses the user or password.
            Unavailable: with `once`, Redis does not answer; else, `stopping` was set.
        """
        if not once:
            self.call(lambda client: client.ping())
            return
        try:
            self.client.ping()
        except redis.RedisError as error:
            self._check_admitted(error)
            raise Unavailable(f"redis does not answer: {error}") from error

    def server_version(self) -> ServerVersion:
        return ServerVersion.of_info(self.call(lambda client: client.info("server")))

    async def unreachable(self) -> str | None:
        """Why Redis does not answer now, or None if it does: the readiness check of a service."""
        try:
            await asyncio.to_thread(self.ping, once=True)
        except Unavailable as error:
            return str(error)
        return None

    def read_hash(self, name: str) -> dict[str, str]:
        """The fields of one of the run's hashes; none if it does not exist."""
        fields = self.call(lambda client: client.hgetall(self.key(name)))
        return {k.decode(): v.decode() for k, v in cast(dict[bytes, bytes], fields).items()}

    def script(self, script: str, names: Sequence[str], *args: str | bytes | float) -> Any:
        """The answer of a Lua script, for the run's keys of these names."""
        if script not in self._scripts:
            self._scripts[script] = self.client.register_script(script)
        keys = [self.key(name) for name in names]
        return self.call(lambda _: self._scripts[script](keys=keys, args=args))

    def call(self, command: Callable[[redis.Redis], T]) -> T:
        """What `command` returns, once Redis has answered it."""
        with ExitStack() as exits:
            return self._repeat(command, exits)

    def _repeat(self, command: Callable[[redis.Redis], T], exits: ExitStack) -> T:
        failures = 0
        while True:
            try:
                return command(self.client)
            except redis.RedisError as error:
                self._check_admitted(error)
                is_temporary = isinstance(error, _TEMPORARY) or any(
                    words in str(error) for words in _TEMPORARY_WORDS
                )
                if not is_temporary:
                    raise
                # Connect again: after a failover the address may point to another server.
                self.client.connection_pool.disconnect(inuse_connections=False)
                if self._once:
                    raise Unavailable(f"redis does not answer: {error}") from error
                if not failures:
                    exits.enter_context(
                        waiting("an answer", f"redis at {self._place}", expected_s=EXPECTED_S)
                    )
                failures += 1
                self.connections.losses += 1
                wait_s = pause_after(failures, _PAUSES_S)
                REDIS_RETRIES.inc()
                logger.warning(
                    "redis is unavailable or full (%s); attempt %d failed, the next is in %.1f s",
                    error,
                    failures,
                    wait_s,
                )
                if self._stopping.wait(wait_s):
                    raise Unavailable(f"stopped while redis was unavailable: {error}") from error

    def _check_admitted(self, error: redis.RedisError) -> None:
        if isinstance(error, _REFUSED) or any(words in str(error) for words in _REFUSED_IN_SCRIPT):
            raise SetupError(
                f"redis at {self._place} refuses the user or password of --redis-url: {error}"
            ) from error

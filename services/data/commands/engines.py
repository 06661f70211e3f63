"""The judges of moves that commands use: Stockfish processes, or a reward service.

The reward service is always a separate process, called over gRPC; none of its code is imported.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rookery.clients import RewardClient
from rookery.errors import SetupError
from rookery.processes.child import Child, Command, Watchdog, last_lines
from rookery.processes.ports import Ports

_HOST = "127.0.0.1"
_START_S = 60.0
_POLL_S = 0.05


@asynccontextmanager
async def reward_service(target: str | None, *, nodes: int = 1000) -> AsyncIterator[RewardClient]:
    """Yields a client of the reward service at `target`, or of one started (and later stopped) here.

    Raises:
        SetupError: the service cannot be started, or does not answer at `target`.
    """
    if target is not None:
        client = RewardClient(target)
        try:
            if not await client.ready():
                raise SetupError(f"no reward service is ready at {target!r} (--reward)")
            yield client
        finally:
            await client.close()
        return
    with tempfile.TemporaryDirectory() as folder, Ports(_HOST) as ports:
        log, grpc_port = Path(folder) / "reward.log", ports.choose(0)
        flags = ("--port", 0, "--grpc-port", grpc_port, "--nodes", nodes)
        argv = (sys.executable, "-m", "services.reward", *map(str, flags))
        guard = Watchdog()
        child = Child(Command("reward", argv, log), guard)
        client = RewardClient(f"{_HOST}:{grpc_port}")
        try:
            await _until_ready(child, client, log)
            yield client
        finally:
            await client.close()
            child.kill()
            guard.close()


async def _until_ready(child: Child, client: RewardClient, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while not await client.ready():
        if child.poll() is not None or time.monotonic() > deadline:
            said = " | ".join(last_lines(log, 3))
            raise SetupError(f"the reward service does not start: {said}")
        await asyncio.sleep(_POLL_S)

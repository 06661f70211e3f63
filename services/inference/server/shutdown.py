"""How the server ends: with status 0 on a signal, with status 1 if vLLM's engine dies.

vLLM itself stops its engine first and then waits for its clients. It answers requests in flight with 200 and
the finish reason "abort", or never, and the process stays until the last client gives up. Here open
requests end first, so every client gets its error at once, and the engine stops last.
"""

import asyncio
import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from services.inference.server.drain import RequestDrainer

if TYPE_CHECKING:
    import uvicorn
    from starlette.datastructures import State
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 3
"""Time limit for requests to end after they are cancelled, and then for connections to close. `rookery up`
kills the server after 20 s."""

_LOOK_S = 0.2


async def shut_down_on_signal(client: "AsyncLLM", state: "State", drainer: RequestDrainer) -> None:
    """Waits for a signal or for the engine's death, then ends the server.

    Raises:
        SystemExit: the engine has died (status 1), so that a supervisor restarts the process.
    """
    server = await _started(state)
    # Without a limit, a client that does not read would keep its connection and this process open.
    server.config.timeout_graceful_shutdown = GRACE_S
    stopping = asyncio.Event()
    for number in SIGNALS:  # replaces vLLM's handlers
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    while not stopping.is_set() and not client.errored:
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _LOOK_S)
    if stopping.is_set():
        logger.info("the server is stopping")
        await drainer.close("the server is stopping", within_s=GRACE_S)
        server.should_exit = True
        return
    # Do not leave this to vLLM's watchdog: it waits for requests that a dead engine may never answer.
    logger.critical("vLLM's engine has died: the server ends")
    await drainer.close("vLLM's engine has died", within_s=GRACE_S)
    raise SystemExit(1)


async def _started(state: "State") -> "uvicorn.Server":
    """Waits until vLLM's HTTP server listens, and returns it. vLLM has then set its signal handlers."""
    while not (hasattr(state, "server") and state.server.started):  # noqa: ASYNC110 - vLLM sets no event
        await asyncio.sleep(_LOOK_S)
    server: uvicorn.Server = state.server
    return server

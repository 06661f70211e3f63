"""How the server ends: on a signal, with status 0, and when vLLM's engine dies, with status 1.

vLLM by itself stops its engine first and then waits for its clients: requests in work are answered with
200 and the finish reason "abort", or never, and the process stays until the last client has given up. Here
the gate closes first, so whoever waits is told at once, and the engine goes last.
"""

import asyncio
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from services.inference.server.gate import Gate

if TYPE_CHECKING:
    import uvicorn
    from starlette.datastructures import State
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 3
"""How long requests may take to be cut off, and then connections to close. `rookery up` waits for 20 s."""

_LOOK_S = 0.2


def end_while_starting() -> None:
    """Lets a signal end vLLM's server while it waits for its engine to start.

    vLLM 0.32 raises KeyboardInterrupt there, and `zmq_socket_ctx` swallows it: the server would go on to
    start, and serve, as if it had not been told to stop.
    """
    from vllm.v1.engine import utils

    swallowing = utils.zmq_socket_ctx

    @contextmanager
    def not_swallowing(*args: Any, **kwargs: Any) -> Iterator[Any]:
        whole = False
        with swallowing(*args, **kwargs) as socket:
            yield socket
            whole = True
        if not whole:
            raise SystemExit(128 + signal.SIGTERM)

    utils.zmq_socket_ctx = not_swallowing


async def end(client: "AsyncLLM", state: "State", gate: Gate) -> None:
    """Waits for a signal, or for the engine's death, and ends the server.

    Raises:
        SystemExit: the engine has died; whoever supervises this process starts another.
    """
    server = await _started(state)
    # A client that reads nothing would keep its connection, and the process, for ever.
    server.config.timeout_graceful_shutdown = GRACE_S
    stopping = asyncio.Event()
    for number in SIGNALS:  # in place of vLLM's own
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    while not stopping.is_set() and not client.errored:
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _LOOK_S)
    if stopping.is_set():
        logger.info("the server stops")
        await gate.close("the server stops", within_s=GRACE_S)
        server.should_exit = True
        return
    # Calls into a dead engine may stay unanswered: vLLM's own watchdog would wait for those who made them.
    logger.critical("vLLM's engine has died: the server ends")
    await gate.close("vLLM's engine has died", within_s=GRACE_S)
    raise SystemExit(1)


async def _started(state: "State") -> "uvicorn.Server":
    """vLLM's HTTP server, once it listens: by then vLLM has set its signal handlers."""
    while not (hasattr(state, "server") and state.server.started):  # noqa: ASYNC110 - vLLM sets no event
        await asyncio.sleep(_LOOK_S)
    server: uvicorn.Server = state.server
    return server

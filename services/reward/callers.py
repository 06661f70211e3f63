"""Cancels the work of HTTP callers that disconnect. gRPC does this by itself, Starlette does not.

Callers whose requests cannot finish before the service stops get a 503.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from rookery.errors import Unavailable

Result = TypeVar("Result")


class CallerLeft(HTTPException):
    """The caller disconnected. 499 is nginx's status for this; nobody reads the response."""

    def __init__(self) -> None:
        super().__init__(499, "the caller left")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled if the caller of `request` disconnects.

    The body of `request` must have been read, because the next message is taken for the disconnect.

    Raises:
        CallerLeft: the caller disconnected before `work` was done.
        Unavailable: the service stops, and uvicorn cancelled a request that it could not drain in time.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerLeft
        return working.result()
    except asyncio.CancelledError as error:
        raise Unavailable("the reward service stops") from error
    finally:
        leaving.cancel()
        working.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass

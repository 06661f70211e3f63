"""HTTP callers that hang up: their work is cancelled, as gRPC does by itself and Starlette does not.

And those whom a stopping service can wait for no longer: they are told to come back.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from rookery.errors import Unavailable

Result = TypeVar("Result")


class CallerLeft(HTTPException):
    """Nobody reads this answer; 499 is what nginx calls it."""

    def __init__(self) -> None:
        super().__init__(499, "the caller left")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the caller of `request` hangs up.

    The body must have been read: what comes after it is the caller's leaving.

    Raises:
        CallerLeft: the caller was faster.
        Unavailable: uvicorn was; it cancels what it cannot drain in time.
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

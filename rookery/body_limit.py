"""A limit on the size of request bodies, with or without a Content-Length header."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware: a body beyond `max_bytes` is answered with 413 as soon as that is known."""

    def __init__(self, app: "ASGIApp", *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.exceptions import HTTPException  # where there is no server there is none to import

        seen = 0

        async def limited() -> "Message":
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_bytes:
                raise HTTPException(413, f"request body over {self._max_bytes} bytes")
            return message

        await self._app(scope, limited, send)

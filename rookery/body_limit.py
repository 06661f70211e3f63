"""Bounds on request bodies: their size, whether or not they say how long they are, and their fields."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, model_validator

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 16 << 20
"""Of a request over HTTP, where the service sets no lower limit, or gRPC."""

MAX_FIELDS = 100
"""Of one JSON object, unknown ones included."""


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


class StrictBody(BaseModel):
    """A JSON object that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: object) -> object:
        # pydantic describes every unknown field: a million of them would hold the service for half a minute.
        if isinstance(body, dict) and len(body) > MAX_FIELDS:
            raise ValueError(f"{len(body)} fields: at most {MAX_FIELDS}")
        return body

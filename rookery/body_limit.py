"""Limits on request bodies: their size, also without a Content-Length, and their number of fields."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, model_validator

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 16 << 20
"""Largest request over HTTP or gRPC. A service can set a lower limit for HTTP."""

MAX_FIELDS = 100
"""Most fields of a JSON object, including unknown ones."""


class BodyLimit:
    """ASGI middleware that answers 413 as soon as a body exceeds `max_bytes`."""

    def __init__(self, app: "ASGIApp", *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        from starlette.exceptions import HTTPException  # not installed where no server runs

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
    """A request body that must be a JSON object without unknown fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: object) -> object:
        # pydantic describes every unknown field, which would take half a minute for a million of them.
        if isinstance(body, dict) and len(body) > MAX_FIELDS:
            raise ValueError(f"{len(body)} fields: at most {MAX_FIELDS}")
        return body

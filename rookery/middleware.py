"""What servers refuse before a service handles it: calls without the token, foreign hosts, too large bodies.

The size of a body is limited also without a Content-Length, and so is its number of fields.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import grpc
from pydantic import BaseModel, model_validator

from rookery.access import Access, is_loopback
from rookery.errors import QUOTED_CHARS, ForeignHost, RookeryError, Unauthorized, Unavailable, problem

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

        size = 0

        async def limited() -> "Message":
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                raise HTTPException(413, f"request body over {self._max_bytes} bytes")
            return message

        await self._app(scope, limited, send)


def few_fields(body: object) -> object:
    """Returns `body`, unless it is an object with more than `MAX_FIELDS` fields, which raises a ValueError.
    pydantic describes every unknown field, which would take half a minute for a million of them."""
    if isinstance(body, dict) and len(body) > MAX_FIELDS:
        raise ValueError(f"{len(body)} fields: at most {MAX_FIELDS}")
    return body


class StrictBody(BaseModel, extra="forbid", use_attribute_docstrings=True):
    """A request body that must be a JSON object without unknown fields."""

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, body: object) -> object:
        return few_fields(body)


_HEALTH = "/grpc.health.v1.Health/"


class RequireToken:
    """ASGI middleware that answers 401 to requests without the token, and never reads their bodies."""

    def __init__(self, app: "ASGIApp", access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if (
            scope["type"] == "lifespan"
            or self._access.is_open(scope["path"])
            or self._access.admits(_header(scope, b"authorization"))
        ):
            await self._app(scope, receive, send)
        else:
            error = Unauthorized(f"{scope.get('method', 'GET')} {scope['path']}")
            headers = {"WWW-Authenticate": 'Bearer realm="rookery"'}
            await _refuse(error, scope, receive, send=send, headers=headers)


class RequireLocalHost:
    """ASGI middleware that answers 400 to requests for another host than this machine's loopback.

    It guards services on loopback that everybody may call: a web site could otherwise read them with the
    browser of a user, by a name of its own that it points to 127.0.0.1 (DNS rebinding).
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        host = "" if scope["type"] == "lifespan" else _header(scope, b"host")
        if not host or _is_local(host):  # browsers always send one
            await self._app(scope, receive, send)
        else:
            await _refuse(ForeignHost(host[:QUOTED_CHARS]), scope, receive, send=send)


def _is_local(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:  # an address that is none
        return False


class AnswerAtEnd:
    """ASGI middleware that answers 503 to requests that uvicorn cancels, as they did not end in time."""

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        begun = False

        async def sending(message: "Message") -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if scope["type"] == "lifespan":
                raise
            if not begun:  # otherwise uvicorn breaks the connection, because the answer is incomplete
                error, headers = Unavailable("the service is stopping"), {"Retry-After": "1"}
                await _refuse(error, scope, receive, send=send, headers=headers)


def _header(scope: "Scope", name: bytes) -> str:
    value: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return value.decode("latin-1")


async def _refuse(
    error: RookeryError,
    scope: "Scope",
    receive: "Receive",
    *,
    send: "Send",
    headers: dict[str, str] | None = None,
) -> None:
    if scope["type"] == "websocket":
        # It is not accepted yet, so uvicorn answers 403.
        await send({"type": "websocket.close", "code": 1008})
        return
    from starlette.responses import JSONResponse  # not installed where no server runs

    answer = JSONResponse(problem(error), error.http_status, headers, media_type="application/problem+json")
    await answer(scope, receive, send)


class TokenInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # not generic at run time
    """Aborts calls without the token with UNAUTHENTICATED. The health service is open."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        method, metadata = handler_call_details.method, dict(handler_call_details.invocation_metadata)
        if method.startswith(_HEALTH) or self._access.admits(str(metadata.get("authorization", ""))):
            return await continuation(handler_call_details)

        async def refuse(requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            error = Unauthorized(method)
            await context.abort(grpc.StatusCode[error.grpc_code], str(error))

        # Of streams, whatever the method is: this handler answers before the first request has come.
        return grpc.stream_stream_rpc_method_handler(refuse)

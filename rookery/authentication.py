"""Refuses calls without the bearer token: ASGI middleware for HTTP, an interceptor for gRPC."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc

from rookery.access import Access
from rookery.errors import Unauthorized, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_HEALTH = "/grpc.health.v1.Health/"


class RequireToken:
    """ASGI middleware that answers 401 to requests without the token, and never reads their bodies."""

    def __init__(self, app: "ASGIApp", access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] == "lifespan" or self._access.is_open(scope["path"]) or self._admitted(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # It is not accepted yet, so uvicorn answers 403.
            await send({"type": "websocket.close", "code": 1008})
        else:
            from starlette.responses import JSONResponse  # not installed where no server runs

            error = Unauthorized(f"{scope['method']} {scope['path']}")
            headers = {"WWW-Authenticate": 'Bearer realm="rookery"'}
            body = problem(error)
            answer = JSONResponse(body, error.http_status, headers, media_type="application/problem+json")
            await answer(scope, receive, send)

    def _admitted(self, scope: "Scope") -> bool:
        said = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return self._access.admits(said.decode("latin-1"))


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

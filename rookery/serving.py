"""Runs a service: uvicorn and grpc.aio in one process, with probes, metrics and a graceful shutdown.

`fastapi` and `uvicorn` are imported in the functions that need them, so that importing this module is cheap.
"""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Self

import grpc
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from rookery import __version__
from rookery.access import OPEN, Access, is_loopback
from rookery.connections import ROOM, Listener, bounded, connection_limit, raise_descriptor_limit
from rookery.errors import (
    QUOTED_CHARS,
    InvalidInput,
    RookeryError,
    SetupError,
    free_frames,
    problem,
    validation_message,
)
from rookery.grpc_connections import GrpcConnections
from rookery.middleware import (
    MAX_BODY_BYTES,
    AnswerAtEnd,
    BodyLimit,
    RequireLocalHost,
    RequireToken,
    TokenInterceptor,
)
from rookery.processes.ports import bind
from rookery.retries import pause
from rookery.waits import overdue

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)

DRAIN_S = 10.0
"""How long a stopping service waits for requests in flight."""

CONNECTION_AGE_S = 15.0
"""After this time (+-10%) a gRPC client is asked to reconnect: only then does it look for new replicas. Calls
in progress finish on the old connection, however long they take."""

ReadyCheck = Callable[[], Awaitable[str | None]]
"""Returns None if the service is ready, else the reason why it is not."""

GREETING_S = 5.0
"""A connection to the gRPC port that does not speak HTTP/2 by then is closed."""

_UNCOMPRESSED = 1
"""gRPC's bit for it. Others are refused: gRPC limits the size of a message only once it is decompressed."""

_TICKS = 10
"""uvicorn's ticks in a second."""

HEALTH_S = 0.5
"""Seconds between two updates of the gRPC health status."""

_QUOTED_ERRORS = 10

BODY_PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not UTF-8"},
    413: {"description": "The body is too large"},
}
"""For OpenAPI: what `add_problem_handlers` refuses of a body."""


class Address(Protocol):
    """Settings of a service: where it listens, and what its callers need."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def access(self) -> Access: ...
    @classmethod
    def variable(cls, name: str) -> str: ...


@dataclass
class Service:
    """An HTTP app and, optionally, gRPC servicers and background tasks that run with it."""

    name: str
    app: "FastAPI"
    host: str
    port: int
    port_setting: str
    access: Access = OPEN
    public: bool = False
    """Whether everybody may call it over HTTP, and it says itself what needs a token."""
    grpc_port: int | None = None
    grpc_port_setting: str = ""
    add_grpc: Callable[[grpc.aio.Server], None] | None = None
    grpc_services: tuple[str, ...] = ()
    background: tuple[Callable[[asyncio.Event], Awaitable[None]], ...] = ()
    on_stop: Callable[[], Awaitable[None]] | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    ready: ReadyCheck | None = None
    """Determines the status of the gRPC health service, like `/readyz` over HTTP. None: always serving."""

    @classmethod
    def at(cls, settings: Address, name: str, app: "FastAPI", **options: Any) -> Self:
        """A service at the address of its settings. `options` are further fields."""
        setting = f"--port ({settings.variable('port')})"
        return cls(
            name,
            app,
            settings.host,
            port=settings.port,
            port_setting=setting,
            access=settings.access,
            **options,
        )


def add_probes(app: "FastAPI", *, ready: ReadyCheck | None = None) -> None:
    """Adds `/healthz` (the process is alive), `/readyz` (200, or 503 with the reason) and `/metrics`.

    Without `ready`, it is ready as soon as it answers.
    `/readyz` also says what the process waits for, if that takes longer than expected (see `rookery.waits`).
    """
    from fastapi import Response

    @app.get("/healthz", tags=["probes"])
    async def healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz", tags=["probes"], responses={503: {"description": "Not ready, and why"}})
    async def readyz(response: Response) -> dict[str, str]:
        reason = await ready() if ready else None
        waits = "; ".join(map(str, overdue()))
        detail = {"waiting": waits} if waits else {}
        if reason is None:
            return {"status": "ready", **detail}
        response.status_code = 503
        return {"status": "not ready", "reason": reason, **detail}

    @app.get("/metrics", tags=["probes"], response_class=Response)
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def background_service(
    settings: Address, name: str, *background: Callable[[asyncio.Event], Awaitable[None]], ready: ReadyCheck
) -> Service:
    """A service without an API of its own: `background` does the work, HTTP serves probes and metrics."""
    from fastapi import FastAPI

    app = FastAPI(title=f"Rookery {name}", version=__version__)
    add_probes(app, ready=ready)
    return Service.at(settings, name, app, background=background)


def add_problem_handlers(app: "FastAPI", *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
    """Limits the size of request bodies, and returns all errors as RFC 9457 problem documents. A problem
    document quotes the invalid value."""
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    app.add_middleware(BodyLimit, max_bytes=max_body_bytes)

    def problem_response(body: dict[str, object], headers: dict[str, str]) -> JSONResponse:
        status = int(str(body["status"]))
        return JSONResponse(body, status, headers, media_type="application/problem+json")

    @app.exception_handler(RookeryError)
    async def rookery_error(request: Request, error: RookeryError) -> JSONResponse:
        logger.log(error.log_level, "%s: %s", _call(request), error)
        retry = error.retry_after_s
        headers = {"Retry-After": str(max(1, round(retry)))} if retry is not None else {}
        return problem_response(problem(error), headers)

    @app.exception_handler(RequestValidationError)
    async def bad_request(request: Request, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        message = validation_message(errors[:_QUOTED_ERRORS], quote=_short)
        if len(errors) > _QUOTED_ERRORS:
            message += f"; and {len(errors) - _QUOTED_ERRORS} more"
        if isinstance(error.body, bytes):  # which FastAPI has not read as JSON
            message += f"; the Content-Type is {request.headers.get('content-type')!r}, not application/json"
        free_frames(error, *(each.get("ctx", {}).get("error") for each in errors))
        return problem_response(problem(InvalidInput(message)), {})

    @app.exception_handler(HTTPException)
    async def http_exception(request: Request, error: HTTPException) -> JSONResponse:
        body: dict[str, object] = {
            "type": "about:blank",
            "title": str(error.detail),
            "status": error.status_code,
            "detail": _call(request),
        }
        free_frames(error)
        return problem_response(body, dict(error.headers or {}))


@asynccontextmanager
async def grpc_errors(context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
    """Aborts the gRPC call with the status code of a `RookeryError` raised inside the `with` block."""
    try:
        yield
    except RookeryError as error:
        logger.log(error.log_level, "grpc: %s", error)
        await context.abort(grpc.StatusCode[error.grpc_code], str(error))


async def serve(service: Service) -> None:
    """Serves until SIGINT or SIGTERM, then accepts no new requests and finishes those in flight.

    The service also stops when a background task ends. If the task raised an exception, it is raised here.
    Raises `SetupError` if a port is taken; the message names the setting that changes it.
    """
    raise_descriptor_limit()
    if not service.public:
        service.access.warn_if_open(service.name, service.host)
    stopping = service.stopping
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    http_socket = bind(service.host, service.port, setting=service.port_setting)
    try:
        grpc_server = await _start_grpc(service)
    except SetupError:
        http_socket.close()
        raise
    tasks = [asyncio.create_task(_http(service, http_socket))]
    tasks += [asyncio.create_task(_guard(task, stopping)) for task in service.background]
    url = f"{service.access.scheme}://{service.host}:{http_socket.getsockname()[1]}"
    grpc_port = f" and grpc port {service.grpc_port}" if grpc_server else ""
    logger.info("%s listens on %s%s", service.name, url, grpc_port)
    try:
        await stopping.wait()
    except asyncio.CancelledError:  # Ctrl-C came before the handlers; without an end, threads would go on
        stopping.set()
    logger.info("%s drains", service.name)
    if grpc_server:
        await grpc_server.stop(DRAIN_S)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    if service.on_stop:
        await service.on_stop()
    if fault := next((result for result in results if isinstance(result, Exception)), None):
        raise fault


async def _http(service: Service, sock: socket.socket) -> None:
    import uvicorn
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Server(uvicorn.Server):
        """Closes idle connections. Leaves signals to `serve`, which drains gRPC and HTTP together."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def on_tick(self, counter: int) -> bool:
            if counter % _TICKS == 0:
                listener.close_idle()
            return await super().on_tick(counter)

    limit = connection_limit()
    app: ASGIApp = service.app
    if not service.public:
        app = RequireToken(app, service.access)
        if not service.access.token and is_loopback(service.host):
            app = RequireLocalHost(app)
    config = uvicorn.Config(
        AnswerAtEnd(app),
        http=bounded(AutoHTTPProtocol),
        log_config=None,
        access_log=False,
        backlog=limit // ROOM,
        timeout_graceful_shutdown=int(DRAIN_S),
        **service.access.server_tls(),
    )
    server = Server(config)
    listener = Listener(sock, server.server_state.connections, limit=limit)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stop = asyncio.create_task(service.stopping.wait())
    await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
    service.stopping.set()
    server.should_exit = True
    await serving


async def _start_grpc(service: Service) -> grpc.aio.Server | None:
    if service.add_grpc is None or service.grpc_port is None:
        return None
    limit = connection_limit()
    connections = GrpcConnections(limit=limit)
    server = grpc.aio.server(
        interceptors=[TokenInterceptor(service.access), connections],
        options=[
            ("grpc.max_receive_message_length", MAX_BODY_BYTES),
            ("grpc.max_send_message_length", 64 << 20),
            ("grpc.so_reuseport", 0),
            ("grpc.max_connection_age_ms", round(CONNECTION_AGE_S * 1000)),
            ("grpc.max_allowed_incoming_connections", limit),
            ("grpc.server_handshake_timeout_ms", round(GREETING_S * 1000)),
            ("grpc.http2.settings_timeout", round(GREETING_S * 1000)),
            ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
        ],
    )
    service.add_grpc(server)
    health = await _add_health_and_reflection(server, service.grpc_services)
    service.background += (lambda stopping: _tell_health(health, service, stopping),)
    try:
        host = f"[{service.host}]" if ":" in service.host else service.host
        bound = service.access.add_grpc_port(server, f"{host}:{service.grpc_port}")
    except RuntimeError as error:
        raise SetupError(
            f"grpc port {service.grpc_port} on {service.host} is taken: "
            f"choose another with {service.grpc_port_setting}"
        ) from error
    service.grpc_port = bound
    service.background += (partial(connections.keep_room, bound),)
    await server.start()
    return server


async def _add_health_and_reflection(server: grpc.aio.Server, names: tuple[str, ...]) -> Any:
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_health.v1._async import HealthServicer
    from grpc_reflection.v1alpha import reflection

    servicer = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for name in ("", *names):
        await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return servicer


async def _tell_health(servicer: Any, service: Service, stopping: asyncio.Event) -> None:
    """Updates the gRPC health status from `service.ready`, and sets it to not serving when stopping."""
    from grpc_health.v1.health_pb2 import HealthCheckResponse

    while not stopping.is_set():
        well = service.ready is None or await service.ready() is None
        status = HealthCheckResponse.SERVING if well else HealthCheckResponse.NOT_SERVING
        for name in ("", *service.grpc_services):
            await servicer.set(name, status)
        await pause(stopping, HEALTH_S)
    await servicer.enter_graceful_shutdown()


async def _guard(task: Callable[[asyncio.Event], Awaitable[None]], stopping: asyncio.Event) -> None:
    try:
        await task(stopping)
    finally:
        stopping.set()


def _call(request: "Request") -> str:
    return f"{request.method} {request.url.path[:QUOTED_CHARS]}"


def _short(value: object) -> str:
    """The beginning of a value as JSON. A large value is not encoded further than that."""
    # A check for cycles, which JSON has not, would keep the value in one of the encoder's own.
    pieces = json.JSONEncoder(default=str, check_circular=False).iterencode(value)
    text = "".join(islice(pieces, QUOTED_CHARS + 1))
    return text if len(text) <= QUOTED_CHARS else f"{text[:QUOTED_CHARS]}..."

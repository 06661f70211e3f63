"""Rookery's routes on vLLM's OpenAI server: the `vllm.endpoint_plugins` entry point.

vLLM loads it only if `VLLM_PLUGINS` names `rookery`. Its settings come from the `INFERENCE_*` variables.
vLLM's own routes are those of `VLLM_ROUTES`. This module wires the parts; `policies` has the logic.
"""

import asyncio
import logging
import threading
from argparse import Namespace
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, NonNegativeInt

from rookery import logs
from rookery.access import is_loopback
from rookery.config.inference import ServerSettings
from rookery.errors import (
    QUOTED_CHARS,
    EngineFault,
    InvalidInput,
    RookeryError,
    Unavailable,
    validation_message,
)
from rookery.hub import weights_digest
from rookery.middleware import RequireLocalHost, RequireToken
from rookery.serving import add_problem_handlers
from rookery.streams import RunStreams
from rookery.trace import Adapter, PolicyVersion
from services.inference.server import adapter as lora
from services.inference.server import full_weights, move
from services.inference.server.adapter import AdapterRules
from services.inference.server.download import DownloadingRules, most_weights
from services.inference.server.drain import DrainMiddleware, RequestDrainer, shut_down_on_signal
from services.inference.server.follower import POLL_S, PolicyFollower
from services.inference.server.full_weights import FullWeightsRules
from services.inference.server.full_weights_policies import FullWeightsPolicies
from services.inference.server.policies import Policies, VersionChecks
from services.inference.server.sleep import Sleeper

if TYPE_CHECKING:
    from starlette.datastructures import State
    from vllm.v1.engine.async_llm import AsyncLLM

logger = logging.getLogger(__name__)

SPARE_DOWNLOADS = 8
"""How many downloaded adapters stay on disk besides those that are served."""

VLLM_ROUTES = frozenset(
    {"/health", "/metrics", "/ping", "/version", "/v1/chat/completions", "/v1/completions"}
)
"""The routes of vLLM that stay. Of the others, some stop the engine or change its weights."""

MAX_LEASE_S = 3600.0
"""A lease is short, and renewed: whoever dies without ending theirs does not keep a slot for long."""


class NotReady(Unavailable):
    """No policy is served yet. Normal at every start, so it is logged as INFO."""

    log_level = logging.INFO
    title = "Not ready"


class _Reload(BaseModel):
    """Body of `POST /reload`."""

    version: int = Field(ge=0)
    path: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    base_model: str = Field(min_length=1)
    rollback: bool = False


class _Lease(BaseModel):
    """Body of `POST /lease`."""

    version: int = Field(ge=0)
    seconds: float = Field(gt=0, le=MAX_LEASE_S)


class _Tokens(BaseModel):
    """Body of `POST /detokenize`."""

    tokens: list[NonNegativeInt] = Field(max_length=64)


class _ProblemRoute(APIRoute):
    """Answers a bad body with 422 and a problem document, instead of vLLM's own error."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_or_refuse(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise InvalidInput(validation_message(error.errors()[:1])) from None

        return handle_or_refuse


@dataclass(frozen=True, slots=True)
class ServerState:
    """The objects that the routes use, kept in the app's state."""

    client: "AsyncLLM"
    policies: Policies
    sleeper: Sleeper
    follower: PolicyFollower | None
    tasks: tuple["asyncio.Task[None]", ...]

    def not_ready(self) -> str | None:
        """Why the server is not ready, or None if it is."""
        if self.client.errored:
            return "vLLM's engine has died"
        if any(task.done() for task in self.tasks):
            return "a background task of the server has ended: see the log, and restart it"
        if self.policies.served is not None:
            return None
        if self.follower is None:
            return None if self.policies.prepared else "warming up"
        return self.follower.waiting_for or "loading the policy"


router = APIRouter(route_class=_ProblemRoute, tags=["rookery"])
router.add_api_route(move.PATH, move.move, methods=["POST"])


def _state(request: Request) -> ServerState:
    state: ServerState = request.app.state.rookery
    return state


@router.post("/reload")
async def reload(body: _Reload, request: Request) -> dict[str, Any]:
    """Serves another policy version. Requests in flight keep theirs."""
    adapter = Adapter(PolicyVersion(body.version, body.sha256), body.path, body.base_model)
    done = await _state(request).sleeper.reload(adapter, rollback=body.rollback)
    return {
        **_description(done.adapter),
        "changed": done.changed,
        "seconds": done.seconds,
        "canary": {
            "max_difference": done.canary_max_difference,
            **(asdict(done.agreement) if done.agreement else {}),
        },
    }


@router.post("/lease")
async def lease(body: _Lease, request: Request) -> dict[str, Any]:
    """Keeps a served version served though newer ones come; again, to renew the lease."""
    adapter = _state(request).policies.lease(body.version, seconds=body.seconds)
    until = datetime.now(UTC) + timedelta(seconds=body.seconds)
    return {**_description(adapter), "until": until.isoformat(timespec="seconds")}


@router.delete("/lease/{version}")
async def end_lease(version: int, request: Request) -> dict[str, Any]:
    """Ends the lease of a version, if there is one."""
    _state(request).policies.end_lease(version)
    return {"version": version}


@router.post("/detokenize")
async def detokenize(body: _Tokens, request: Request) -> dict[str, str]:
    """The text of a few tokens, like vLLM's route, which takes any number. Clients ask how prompts end."""
    tokenizer = _state(request).client.get_tokenizer()
    if body.tokens and max(body.tokens) >= len(tokenizer):
        raise InvalidInput(f"no token {max(body.tokens)}: there are {len(tokenizer)}")
    return {"prompt": tokenizer.decode(body.tokens)}


@router.get("/policy")
async def policy(request: Request) -> dict[str, Any]:
    """The version behind the alias `policy`; 503 before the first, and while the server sleeps."""
    state = _state(request)
    reason = state.not_ready() or ("asleep" if state.sleeper.asleep else None)
    if reason or state.policies.served is None:
        raise NotReady(reason or "no policy yet: POST /reload")
    return _description(state.policies.served)


@router.get("/readyz", responses={503: {"description": "Not ready, and why"}})
async def readyz(request: Request, response: Response) -> dict[str, str]:
    """200 once the server is warm and has loaded the run's version; `/policy` says which it serves now.

    A server that sleeps stays ready, because a service's name leads only to servers that are ready, and the
    trainer must reach this one to wake it.
    """
    state = _state(request)
    reason = state.not_ready()
    if reason is None:
        return {"status": "asleep" if state.sleeper.asleep else "ready"}
    response.status_code = 503
    return {"status": "not ready", "reason": reason}


@router.get("/healthz")
async def healthz(request: Request) -> dict[str, str]:
    """200 while vLLM's engine is alive."""
    if _state(request).client.errored:
        raise EngineFault("vLLM's engine has died")
    return {"status": "alive"}


@router.post("/sleep")
async def sleep(request: Request) -> dict[str, bool]:
    """Frees the GPU's memory, with --sleep. Requests wait until /wake_up or /reload."""
    await _state(request).sleeper.sleep()
    return {"asleep": True}


@router.post("/wake_up")
async def wake_up(request: Request) -> dict[str, bool]:
    """Takes the memory back, and lets the requests go on."""
    await _state(request).sleeper.wake_up()
    return {"asleep": False}


@router.get("/v1/models")
async def list_models(request: Request) -> dict[str, Any]:
    """Every name that a request may give: of the base model and the versions, and the alias."""
    return {"object": "list", "data": await _model_cards(request)}


@router.get("/v1/models/{name:path}")
async def one_model(name: str, request: Request) -> JSONResponse:
    """The model that a request for `name` is answered by; 404 in vLLM's words if there is none."""
    if card := next((card for card in await _model_cards(request) if card["id"] == name), None):
        return JSONResponse(card)
    message = f"The model `{name[:QUOTED_CHARS]}` does not exist."
    error = {"message": message, "type": "NotFoundError", "param": "model", "code": 404}
    return JSONResponse({"error": error}, status_code=404)


async def _model_cards(request: Request) -> list[dict[str, Any]]:
    """vLLM's own list has an adapter under its first name for each of its names, so never as `policy`."""
    models = request.app.state.openai_serving_models
    cards = [card.model_dump() for card in (await models.show_available_models()).data]
    # The last ones are of the adapters, in the order of their names in requests.
    for card, name in zip(reversed(cards), reversed(models.lora_requests), strict=False):
        card["id"] = name
    return cards


def _description(adapter: Adapter) -> dict[str, Any]:
    return {
        "version": adapter.version.number,
        "sha256": adapter.version.sha256,
        "name": adapter.version.name,
        "path": adapter.path,
        "base_model": adapter.base_model,
    }


class RookeryPlugin:
    """Implements vLLM's endpoint plugin protocol."""

    name = "rookery"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        """Adds the routes and the middleware, and removes those of vLLM's routes that are not open. vLLM adds
        its error handlers later, for its own errors."""
        settings = ServerSettings()
        is_open = VLLM_ROUTES | settings.further_routes({getattr(route, "path", "") for route in app.routes})
        app.router.routes[:] = [route for route in app.routes if getattr(route, "path", "") in is_open]
        add_problem_handlers(app)
        app.include_router(router)
        app.state.rookery_drainer = RequestDrainer(least_s=settings.drain_s)
        app.add_middleware(DrainMiddleware, drainer=app.state.rookery_drainer)
        app.add_middleware(RequireToken, access=settings.access)
        if not settings.access.token and is_loopback(settings.host):
            app.add_middleware(RequireLocalHost)

    async def init_state(self, engine_client: "AsyncLLM", state: "State", args: Namespace) -> None:
        """Starts the background tasks: warm-up and unloading, the policy record, the orderly end."""
        from vllm import envs

        logs.configure("inference")
        envs.enable_envs_cache()  # as the engine does; the server asks for variables many times a request
        settings = ServerSettings()
        stopping = threading.Event()
        policies = _policies(settings, engine_client, state, stopping)
        drainer: RequestDrainer = state.rookery_drainer
        sleeper = Sleeper(policies, engine_client, drainer, may_sleep=settings.sleep)
        tasks = [asyncio.create_task(_maintain(sleeper, stopping))]
        follower = None
        if settings.follow:
            run = RunStreams(settings.redis_url, settings.run, once=True)
            follower = PolicyFollower(run.policy, sleeper)
            tasks.append(asyncio.create_task(follower.run()))
        for task in tasks:
            task.add_done_callback(_log_failure)
        state.rookery = ServerState(engine_client, policies, sleeper, follower, tuple(tasks))
        state.rookery_shutdown = asyncio.create_task(shut_down_on_signal(engine_client, state, drainer))


def _policies(
    settings: ServerSettings, client: "AsyncLLM", state: "State", stopping: threading.Event
) -> Policies:
    serving = state.openai_serving_models
    folder = settings.model_dir
    names = settings.base_names | {digest for digest in [weights_digest(folder)] if digest}
    if settings.full_weights:
        from services.inference.server.engine import FullWeightsVllmEngine

        return FullWeightsPolicies(
            FullWeightsVllmEngine(client, serving, base=str(folder)),
            _downloading(FullWeightsRules(settings.adapter_root, names, folder), settings, stopping),
            state.rookery_drainer,
        )
    from services.inference.server.engine import VllmEngine

    engine = VllmEngine(client, serving)
    rules = AdapterRules(settings.adapter_root, names, settings.max_lora_rank, precision=engine.precision)
    return Policies(
        engine,
        _downloading(rules, settings, stopping),
        keep=settings.max_loras - 1,
        leases=settings.leases,
    )


def _downloading(rules: VersionChecks, settings: ServerSettings, stopping: threading.Event) -> VersionChecks:
    """The rules, which first download a version that is elsewhere if the settings say from where."""
    if not settings.adapter_url:
        return rules
    kind = full_weights if settings.full_weights else lora
    return DownloadingRules(
        rules,
        settings.adapter_url,
        root=settings.adapter_root,
        names=(kind.CONFIG_FILE, kind.WEIGHTS_FILE),
        max_weights=most_weights(settings.model_dir),
        access=settings.access,
        # More than are loaded: vLLM reads an adapter that it has evicted from disk again.
        keep=4 if settings.full_weights else settings.max_loras + settings.leases + SPARE_DOWNLOADS,
        stopping=stopping,
    )


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()):
        logger.critical("a background task ended: %s", error, exc_info=error)


async def _maintain(sleeper: Sleeper, stopping: threading.Event) -> None:
    try:
        while True:
            try:
                await sleeper.maintain()
            except RookeryError as error:
                logger.warning("could not prepare or unload versions: %s", error)
            await asyncio.sleep(POLL_S)
    finally:
        # Otherwise a thread that waits for Redis or a download would delay the interpreter's exit.
        stopping.set()

"""Runs the trainer process: training in a thread, probes and reload calls in the event loop."""

import asyncio
import logging
import signal
import threading
from pathlib import Path

import torch
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse

from rookery import __version__
from rookery.config.trainer import TrainerSettings
from rookery.errors import RookeryError
from rookery.hub import check_allowed
from rookery.plots.steps import METRICS_FILE, read_metrics
from rookery.remote import open_store, upload
from rookery.serving import Service, add_probes, serve
from rookery.streams import RunStreams
from services.trainer.autobatch import resolve_micro_batch_tokens
from services.trainer.batches.process_rewards import tokenizer_of
from services.trainer.distributed.placement import device_named, own_device
from services.trainer.distributed.process_group import Follower, World, join_processes
from services.trainer.loop import check_resumable, train
from services.trainer.model.policies import build_policy
from services.trainer.training import optimizer as adam
from services.trainer.training.policy_trainer import follow
from services.trainer.versions import commits
from services.trainer.versions.publisher import Publisher

logger = logging.getLogger(__name__)


async def run(settings: TrainerSettings) -> None:
    """Trains until the last step or a signal, in this process or in all processes that a launcher started."""
    check_allowed(str(settings.model), settings.allowed_models)
    settings = own_device(settings)
    # Check before taking over the run, because taking it over ends a trainer that is running.
    adam.check(device_named(settings.device), bits=settings.adam_bits, offload=settings.offload)
    if settings.process_rewards:
        tokenizer_of(str(settings.model))
    if (metrics := settings.run_dir / METRICS_FILE).exists():
        read_metrics(metrics)
    # Fewer threads are faster on a busy machine: one delayed thread makes the others wait at each barrier.
    torch.set_num_threads(settings.threads or max(1, torch.get_num_threads() // 2))
    with join_processes(settings) as world:
        await (_follow(settings, world) if isinstance(world, Follower) else _lead(settings, world))


async def _follow(settings: TrainerSettings, world: Follower) -> None:
    stop_requested = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    policy = await asyncio.to_thread(build_policy, settings)
    await asyncio.to_thread(follow, settings, policy, world, stop_requested=stop_requested)


async def _lead(settings: TrainerSettings, world: World) -> None:
    state, stop = {"reason": "loading the model"}, threading.Event()
    app = FastAPI(title="Rookery trainer", version=__version__)

    async def ready() -> str | None:
        return state.get("reason")

    async def training(stopping: asyncio.Event) -> None:
        with world.leading(stop):
            loop = asyncio.get_running_loop()
            await asyncio.to_thread(_train, settings, world, state, stop=stop, loop=loop)
        if settings.rest:
            await stopping.wait()

    async def stop_training(stopping: asyncio.Event) -> None:
        await stopping.wait()
        stop.set()

    add_probes(app, ready=ready)
    add_routes(app, settings.adapters_dir)
    await serve(Service.at(settings, "trainer", app, background=(training, stop_training)))


def add_routes(app: FastAPI, root: Path) -> None:
    """Adds `GET /adapters/{version}/{name}`, which answers range requests, for the versions in `root`."""

    @app.get(
        "/adapters/{version}/{name}",
        response_class=FileResponse,
        responses={404: {"description": "No such file of a version"}},
        tags=["adapters"],
    )
    def adapter_file(version: str, name: str) -> FileResponse:
        """A file of a version, such as /adapters/policy-v000042/adapter_model.safetensors."""
        folder = next((f for f in commits.folders(root).values() if f.name == version), None)
        path = next((p for p in commits.served_files(folder) if p.name == name), None) if folder else None
        if path is None:
            raise HTTPException(404, f"no file {name[:100]!r} of version {version[:100]!r}")
        return FileResponse(path, media_type="application/octet-stream")


def _train(
    settings: TrainerSettings,
    world: World,
    state: dict[str, str],
    *,
    stop: threading.Event,
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Trains in this thread; `loop` sends the reloads."""
    run = RunStreams(settings.redis_url, settings.run, stopping=stop)
    if settings.adapter_store:
        open_store(settings.adapter_store)  # raises now, not after the first version
    # Lock before anything is written or taken over: a second trainer must not disturb the first one.
    with commits.sole_writer(settings.adapters_dir):
        policy = build_policy(settings)
        state["reason"] = "waiting for redis"
        commit = check_resumable(settings, run)  # before anything of the run is replaced
        run.agree({"batch_groups": settings.batch_groups})
        state["reason"] = "starting"
        settings = resolve_micro_batch_tokens(settings, policy)
        settings.write_resolved(settings.run_dir)
        epoch = run.take_over()
        publisher = Publisher(run.policy, settings, epoch=epoch, loop=loop)
        state.pop("reason")
        try:
            train(settings, policy, run, publisher, commit=commit, epoch=epoch, stopping=stop, world=world)
        finally:
            asyncio.run_coroutine_threadsafe(publisher.close(), loop).result()
        if settings.store:
            _store(settings)


def _store(settings: TrainerSettings) -> None:
    """Copies the newest version. A store that fails is logged, because the run on disk is whole."""
    newest = list(commits.folders(settings.adapters_dir).values())[-1]
    names = ("settings.json", "trainer.toml", METRICS_FILE, newest.relative_to(settings.run_dir).as_posix())
    try:
        upload(settings.run_dir, names, settings.store)
        logger.info("copied %s to %s", newest, settings.store)
    except RookeryError as error:
        logger.error("%s is not copied: %s", newest, error)

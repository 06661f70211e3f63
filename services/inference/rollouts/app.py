"""The HTTP app of the rollouts: probes and metrics only."""

import asyncio

from fastapi import FastAPI

from rookery import __version__
from rookery.errors import Unavailable
from rookery.serving import add_probes, add_problem_handlers
from rookery.streams import RunStreams
from services.inference.rollouts.peers import Peers


def create_app(streams: RunStreams, peers: Peers) -> FastAPI:
    """The app. Ready while Redis, the reward service and an inference server with a policy answer."""
    app = FastAPI(title="Rookery rollouts", version=__version__)

    async def ready() -> str | None:
        try:
            await asyncio.to_thread(streams.ping, once=True)
        except Unavailable as error:
            return str(error)
        return peers.away()

    add_probes(app, ready=ready)
    add_problem_handlers(app)
    return app

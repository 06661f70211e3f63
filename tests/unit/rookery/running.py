"""Runs a service inside the test's own event loop, as `serve` runs it in a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from rookery.serving import Service, serve

START_S = 60.0


@asynccontextmanager
async def running(service: Service) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client of `service`, which is stopped and drained at the end."""
    task = asyncio.create_task(serve(service))
    url = f"http://{service.host}:{service.port}"
    async with httpx.AsyncClient(base_url=url, timeout=START_S) as client:
        try:
            await answers(client, task)
            yield client
        finally:
            service.stopping.set()
            await task


async def answers(client: httpx.AsyncClient, task: asyncio.Task[None]) -> None:
    """Returns when the service answers at all; raises what ended it, if something did."""
    async with asyncio.timeout(START_S):
        while True:
            try:
                await client.get("/healthz")
                return
            except httpx.ConnectError:
                if task.done():
                    await task
                await asyncio.sleep(0.01)

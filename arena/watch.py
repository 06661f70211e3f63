"""Evaluates every Nth version of a run while it trains, on fixed positions and in a short match.

The run's policy record says which version is the newest. A version that is due is leased from the inference
server, so that it stays served, and its figures become one line of strength.jsonl. If a peer fails, the
evaluation waits; a fault never becomes a result.
"""

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from arena.version_evaluator import VersionEvaluator
from rookery.clients import InferenceClient
from rookery.config.arena import WatchSettings
from rookery.errors import NotFound, RookeryError, SetupError, Unavailable
from rookery.files import replace_file
from rookery.logs import configure
from rookery.metrics import EVALUATED_VERSION, EVALUATION, EVALUATION_S
from rookery.mlflow_run import ID_FILE, connect, log_metrics
from rookery.plots.steps import PREFIX, STRENGTH_FILE, as_step, read_strength
from rookery.serving import background_service, serve
from rookery.streams import PolicyRecord, RunStreams
from rookery.trace import PolicyVersion

logger = logging.getLogger("arena.watch")

POLL_S = 1.0
RETRY_S = 5.0
LEASE_S = 120.0
NICENESS = 5
_NO_POLICY = "no policy published yet"


class Watcher:
    """Evaluates the versions of one run."""

    def __init__(self, settings: WatchSettings, policy: PolicyRecord) -> None:
        """Raises SetupError if the opponent or the referee cannot be made."""
        self.trouble: str | None = _NO_POLICY
        """Why nothing can be evaluated at the moment; None if nothing is wrong."""
        self._settings = settings
        self._policy = policy
        self._inference = InferenceClient(settings.inference_url, access=settings.access)
        self._evaluator = VersionEvaluator(settings)
        self._done = self._newest = -1

    async def run(self) -> None:
        """Watches until cancelled. Errors are logged, and tried again: training must not end with them.
        Raises `SetupError` if a service demands another token."""
        if rows := read_strength(self._settings.run_dir):
            _show(rows[-1])
            await asyncio.to_thread(_send_to_mlflow, self._settings.run_dir)
        try:
            while True:
                try:
                    await self._step()
                    self._report(None)
                except SetupError:
                    raise
                except RookeryError as error:
                    self._report(str(error))
                await asyncio.sleep(POLL_S)
        finally:
            await self._inference.close()
            await self._evaluator.close()

    def _report(self, trouble: str | None) -> None:
        if trouble and trouble != self.trouble:
            logger.warning("cannot evaluate now: %s", trouble)
        self.trouble = trouble

    async def _step(self) -> None:
        """Evaluates the newest version that is due, unless that has been done."""
        policy = await asyncio.to_thread(self._policy.read)
        if policy is None:
            raise Unavailable(_NO_POLICY)
        newest = policy.version.number
        due = newest - newest % self._settings.every
        if due != self._done or newest < self._newest:
            await self._evaluate_newest(due, newest)
        self._done, self._newest = due, newest

    async def _evaluate_newest(self, due: int, newest: int) -> None:
        """Evaluates `due`, or `newest` if the former is no longer served. Raises `NotFound` if the server
        does not serve them, or not any more."""
        try:
            await self._evaluate_leased(due)
        except NotFound as error:
            if due == newest:
                raise
            logger.info("cannot evaluate version %d: %s", due, error)
            rows = read_strength(self._settings.run_dir)
            if not any(due <= row["version"] <= newest for row in rows):
                await self._evaluate_leased(newest)

    async def _evaluate_leased(self, number: int) -> None:
        async with self._lease(number) as version:
            row = await self._evaluate_patiently(version)
            if row is None:
                return
            if await self._inference.lease(number, seconds=LEASE_S) != version:
                raise NotFound(
                    f"{version.name} was replaced while it was evaluated: the run went back to an older one"
                )
            path = self._settings.run_dir / STRENGTH_FILE
            written = path.read_bytes() if path.exists() else b""
            replace_file(path, written + json.dumps(row, allow_nan=False).encode() + b"\n")
        _show(row)
        logger.info("evaluated %s in %.0f s", version.name, row["seconds"])
        await asyncio.to_thread(_send_to_mlflow, self._settings.run_dir)

    @asynccontextmanager
    async def _lease(self, number: int) -> AsyncIterator[PolicyVersion]:
        """Keeps the version served meanwhile. If the lease is lost, requests for it raise `NotFound`."""

        async def renew() -> None:
            while True:
                await asyncio.sleep(LEASE_S / 3)
                with suppress(RookeryError):
                    await self._inference.lease(number, seconds=LEASE_S)

        version = await self._inference.lease(number, seconds=LEASE_S)
        self._report(None)
        renewing = asyncio.create_task(renew())
        try:
            yield version
        finally:
            renewing.cancel()
            with suppress(RookeryError):
                await self._inference.end_lease(number)

    async def _evaluate_patiently(self, version: PolicyVersion) -> dict[str, Any] | None:
        while True:
            try:
                return await self._evaluator.evaluate(version)
            except Unavailable as error:
                self._report(str(error))
                await asyncio.sleep(RETRY_S)


def _show(row: Mapping[str, Any]) -> None:
    EVALUATED_VERSION.set(row["version"])
    EVALUATION_S.set(row["seconds"])
    figures = as_step(row)
    for name in row["metrics"]:
        for value, suffix in (("mean", ""), ("low", "_low"), ("high", "_high")):
            EVALUATION.labels(name, value).set(figures.get(f"{PREFIX}{name}{suffix}", float("nan")))


def _send_to_mlflow(folder: Path) -> None:
    """Sends what MLflow does not have yet, if the trainer tracks the run there. Errors are only logged."""
    if not (folder / ID_FILE).exists():
        return
    try:
        run_id = str(json.loads((folder / ID_FILE).read_text())["run_id"])
        client = connect(folder)
        from mlflow.entities import Metric

        sent = {(m.step, m.timestamp) for m in client.get_metric_history(run_id, f"{PREFIX}seconds")}
        for row in read_strength(folder):
            version, time_ms = int(row["version"]), int(1000 * row["time"])
            figures = {name: value for name, value in as_step(row).items() if name != "step"}
            if (version, time_ms) not in sent:
                metrics = [Metric(name, value, time_ms, version) for name, value in figures.items()]
                for name, reason in log_metrics(client, run_id, metrics).items():
                    logger.warning("MLflow refuses %s of version %d: %s", name, version, reason)
    except Exception as error:
        logger.warning("could not send the strength of versions to MLflow: %s", error)


async def serve_watcher(settings: WatchSettings) -> None:
    """Watches until SIGINT or SIGTERM, and answers probes meanwhile."""
    configure("arena")
    os.nice(NICENESS)
    run = RunStreams(settings.redis_url, settings.run)
    watcher = Watcher(settings, run.policy)

    async def watch(stopping: asyncio.Event) -> None:
        working = asyncio.create_task(watcher.run())
        stop_requested = asyncio.create_task(stopping.wait())
        await asyncio.wait({working, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        stop_requested.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def ready() -> str | None:
        return await run.redis.unreachable() or watcher.trouble

    await serve(background_service(settings, "arena", run.redis.stop_waiting, watch, ready=ready))

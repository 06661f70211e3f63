"""Evaluates every Nth version of a run while it trains, on fixed positions and in a short match.

The run's policy record says which version is the newest. A version that is due is leased from the inference
server, so that it stays served, and its figures become one line of strength.jsonl. A fault of a peer is
waited out and never becomes a result.
"""

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from rookery import __version__
from rookery.clients import InferenceClient, RewardClient
from rookery.errors import NotFound, PeerFault, RookeryError, Unavailable
from rookery.metrics import EVALUATED_VERSION, EVALUATION, EVALUATION_S
from rookery.mlflow_run import ID_FILE, connect
from rookery.plots.strength import PREFIX, STRENGTH_FILE, as_step, read_strength
from rookery.serving import Service, add_probes, serve
from rookery.streams import RunStreams
from rookery.trace import PolicyVersion
from services.arena.answers import Answers
from services.arena.asking import Asker, Way, reward_version_of
from services.arena.ledger import LEDGER_FILE, Ledger, key_of
from services.arena.matches.game import Game
from services.arena.matches.journal import read_games
from services.arena.matches.report import MatchReport
from services.arena.matches.session import JOURNAL, run_match
from services.arena.matches.settings import MatchSettings
from services.arena.measures import move_metrics
from services.arena.players.spec import make_player
from services.arena.positions import Chosen, fens_sha256
from services.arena.report import replace_file
from services.arena.sections.positions import MOVE
from services.arena.session import REWARD_TIMEOUT_S, held_out
from services.arena.settings import WatchSettings
from services.arena.stats import Bootstrap, Ratio
from services.arena.tables import estimate_json

logger = logging.getLogger("services.arena.watch")

FOLDER = "strength"
"""Folder of the answers and games of each version, in that of the run."""

MEASURED = (
    "legal_rate", "legal_rate_greedy", "action_accuracy", "action_accuracy_greedy", "regret_legal",
    "regret_legal_greedy", "reward",
)  # fmt: skip
"""The metrics of answers to positions that strength.jsonl has."""

POLL_S = 1.0
RETRY_S = 5.0
LEASE_S = 120.0
NICENESS = 10
PRIORITY = 1
"""That of requests to vLLM, which answers those of the rollouts (0) first."""


class Watcher:
    """Evaluates the versions of one run."""

    def __init__(self, settings: WatchSettings, streams: RunStreams) -> None:
        """Raises InvalidInput or SetupError if the opponent or the referee cannot be made."""
        self.trouble: str | None = None
        """Why nothing can be evaluated at the moment; None if nothing is wrong."""
        self._settings = settings
        self._streams = streams
        self._others = [
            dict(make_player(spec).describe()) for spec in (settings.opponent, settings.referee) if spec
        ]
        self._inference = InferenceClient(settings.inference_url)
        self._reward = RewardClient(settings.reward_target, timeout_s=REWARD_TIMEOUT_S)
        self._chosen: Chosen | None = None
        self._settled = self._newest = -1

    async def run(self) -> None:
        """Watches until cancelled. Errors are logged, and tried again: training must not end with them."""
        if rows := read_strength(self._settings.run_dir):
            _show(rows[-1])
        try:
            while True:
                try:
                    await self._step()
                    self._report(None)
                except RookeryError as error:
                    self._report(str(error))
                await asyncio.sleep(POLL_S)
        finally:
            await self._inference.close()
            await self._reward.close()

    def _report(self, trouble: str | None) -> None:
        if trouble and trouble != self.trouble:
            logger.warning("cannot evaluate now: %s", trouble)
        self.trouble = trouble

    async def _step(self) -> None:
        """Evaluates the newest version that is due, unless that has been done."""
        policy = await asyncio.to_thread(self._streams.policy)
        if policy is None:
            return
        newest = policy.version.number
        due = newest - newest % self._settings.every
        if due != self._settled or newest < self._newest:
            await self._evaluate_newest(due, newest)
        self._settled, self._newest = due, newest

    async def _evaluate_newest(self, due: int, newest: int) -> None:
        """Evaluates `due`, or `newest` if the former is no longer served.

        Raises:
            NotFound: the server does not serve them, or not any more.
        """
        try:
            await self._evaluate_leased(due)
        except NotFound as error:
            logger.info("cannot evaluate version %d: %s", due, error)
            rows = read_strength(self._settings.run_dir)
            if not any(due <= row["version"] <= newest for row in rows):
                await self._evaluate_leased(newest)

    async def _evaluate_leased(self, number: int) -> None:
        async with self._lease(number) as version:
            row = await self._measure_patiently(version)
            if row is None:
                return
            if await self._inference.lease(number, seconds=LEASE_S) != version:
                raise NotFound(f"{version.name} was replaced while it was evaluated: the run went back")
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
        renewing = asyncio.create_task(renew())
        try:
            yield version
        finally:
            renewing.cancel()
            with suppress(RookeryError):
                await self._inference.end_lease(number)

    async def _measure_patiently(self, version: PolicyVersion) -> dict[str, Any] | None:
        while True:
            try:
                return await self._measure(version)
            except Unavailable as error:
                self._report(str(error))
                await asyncio.sleep(RETRY_S)

    async def _measure(self, version: PolicyVersion) -> dict[str, Any] | None:
        """The line of the version, or None if strength.jsonl has it. Earlier answers and games are kept."""
        started, settings = time.time(), self._settings
        self._chosen = self._chosen or await held_out(settings)
        reward_version = await reward_version_of(self._reward)
        conditions = self._conditions(self._chosen, reward_version)
        head = {"version": version.number, "sha256": version.sha256, "settings": conditions}
        if any(head.items() <= row.items() for row in read_strength(settings.run_dir)):
            return None
        folder = settings.run_dir / FOLDER / version.name
        player = make_player(self._spec(version))
        with Ledger(folder / LEDGER_FILE) as ledger:
            asker = Asker(
                ledger=ledger,
                reward=self._reward,
                reward_version=reward_version,
                temperature=settings.temperature,
                seed=settings.seed,
                concurrency=settings.concurrency,
            )
            try:
                way = Way(MOVE, settings.style, settings.samples)
                answers = await asker.positions(player, self._chosen.positions, way)
            finally:
                await player.close()
        report = await self._play(version, folder) if settings.pairs else None
        metrics = await asyncio.to_thread(_metrics, settings, answers, report, folder / JOURNAL)
        seconds = round(time.time() - started, 1)
        return {**head, "time": round(started, 1), "seconds": seconds, "metrics": metrics}

    async def _play(self, version: PolicyVersion, folder: Path) -> MatchReport:
        settings = self._settings
        match = MatchSettings.model_construct(
            player=self._spec(version),
            opponent=settings.opponent,
            pairs=settings.pairs,
            illegal="random",
            max_plies=settings.max_plies,
            referee=settings.referee or None,
            concurrency=settings.concurrency,
            seed=settings.seed,
            out=folder,
        )
        report = await run_match(match, console=Console(quiet=True))
        if report.unplayed:
            raise PeerFault(f"{len(report.unplayed)} games of the match: {report.unplayed[0].reason}")
        return report

    def _spec(self, version: PolicyVersion) -> str:
        settings = self._settings
        options = {
            "style": settings.style,
            "max-tokens": settings.max_tokens,
            "source": f"run:{settings.run}@{version.number}:{version.sha256[:12]}",
            "priority": PRIORITY,
        }
        place = f"{settings.inference_url}#{version.name}"
        return ",".join((place, *(f"{key}={value}" for key, value in options.items())))

    def _conditions(self, chosen: Chosen, reward_version: str) -> str:
        """A hash of everything but the version that decides the figures."""
        names = {"style", "max_tokens", "samples", "temperature", "seed", "pairs", "max_plies"}
        decides = self._settings.model_dump(include=names)
        decides |= {"fens": fens_sha256(chosen.positions), "others": self._others}
        return key_of({**decides, "reward_version": reward_version})[:12]


def _metrics(
    settings: WatchSettings, answers: list[Answers], report: MatchReport | None, journal: Path
) -> dict[str, Any]:
    """The metrics by name, each with `mean` and `ci95` as in report.json."""
    measures = {metric.name: measure for metric, measure in move_metrics(settings.samples).items()}
    ratios = {name: measures[name](answers) for name in MEASURED if name in measures}
    bootstrap = Bootstrap(ratios, seed=settings.seed)
    metrics = {name: estimate_json(bootstrap.estimate(name)) for name in ratios}
    if report is None:
        return metrics
    (encounter,) = report.encounters
    first_tries = _first_tries(read_games(journal), encounter.player)
    estimate = Bootstrap({"": first_tries}, seed=settings.seed).estimate("")
    elo = encounter.elo
    bounds = None if elo.low is elo.high is None else [elo.low, elo.high]
    return {
        **metrics,
        "legal_rate_match": estimate_json(estimate),
        "elo": {"mean": elo.value, "ci95": bounds},
    }


def _first_tries(games: list[Game], player: str) -> Ratio:
    """The share of the player's turns whose first answer was a legal move, by game."""
    turns = [game.turns_of(player) for game in games]
    return Ratio.of([sum(turn.legal_at_once for turn in own) for own in turns], [len(own) for own in turns])


def _show(row: Mapping[str, Any]) -> None:
    """Sets the Prometheus metrics."""
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

        known = {(m.step, m.timestamp) for m in client.get_metric_history(run_id, f"{PREFIX}seconds")}
        for row in read_strength(folder):
            version, time_ms = int(row["version"]), int(1000 * row["time"])
            figures = {name: value for name, value in as_step(row).items() if name != "step"}
            if (version, time_ms) not in known:
                metrics = [Metric(name, value, time_ms, version) for name, value in figures.items()]
                client.log_batch(run_id, metrics=metrics)
    except Exception as error:
        logger.warning("could not send the strength of versions to MLflow: %s", error)


async def serve_watcher(settings: WatchSettings) -> None:
    """Watches until SIGINT or SIGTERM, and answers probes meanwhile."""
    from fastapi import FastAPI

    os.nice(NICENESS)
    stopped = threading.Event()
    streams = RunStreams(settings.redis_url, settings.run, stopping=stopped)
    watcher = Watcher(settings, streams)

    async def watch(stopping: asyncio.Event) -> None:
        working = asyncio.create_task(watcher.run())
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
        stopped.set()
        told.cancel()
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    async def ready() -> str | None:
        try:
            await asyncio.to_thread(streams.ping, once=True)
        except Unavailable as error:
            return str(error)
        return watcher.trouble

    app = FastAPI(title="Rookery arena", version=__version__)
    add_probes(app, ready=ready)
    await serve(
        Service(
            name="arena",
            app=app,
            host=settings.host,
            port=settings.port,
            port_setting="--port (ARENA_PORT)",
            background=(watch,),
        )
    )

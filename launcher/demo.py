"""`rookery demo`: a short run, and an evaluation that compares its last policy with the first.

The arena asks both about the same held-out positions and mates in one, with the run's inference and reward
services, and lets them play a match in which a random legal move replaces an illegal one.
"""

import asyncio
import json
from pathlib import Path

from rich.console import Console

from launcher.evaluate import arena
from launcher.plan import Plan, default_lines
from launcher.runs import HELD_OUT_FILE, settle_settings, write_held_out
from launcher.session import End, Session
from launcher.settings import DemoSettings
from rookery.access import Access
from rookery.clients import InferenceClient
from rookery.command_line import INTERRUPTED
from rookery.errors import RookeryError
from rookery.remote import shipped
from rookery.streams import RunStreams
from rookery.terminal import SafeConsole
from rookery.trace import Adapter, PolicyVersion, policy_name

ENDS = {"max_plies": 100, "referee": "stockfish,nodes=200", "limit_cp": 500}
"""How games of the match end, because weak players can hardly mate: at a lead of 13 pawns for six plies,
and after 100 plies, when a lead of 5 pawns wins."""

MATES = Path("samples/mates_in_1.csv")
"""Left out where it is not there, as in an image."""

_RELOAD_TIMEOUT_S = 120.0


def demo(given: DemoSettings, console: Console | None = None) -> int:
    """Trains, evaluates and writes the report. Returns the exit status.

    Raises:
        SetupError: a service cannot start; the message says what to change.
        RookeryError: a service crashed too often, or the evaluation failed.
    """
    console = console or SafeConsole()
    settings = settle_settings(given)
    with Session(settings, console) as session:
        session.say(f"run {settings.run}: everything it writes is in {session.plan.run_dir}")
        for line in default_lines(given, session.plan):
            session.say(line)
        held_out = write_held_out(
            session.plan.run_dir / HELD_OUT_FILE,
            source=settings.games,
            count=max(settings.eval_positions, settings.evaluate_positions if settings.evaluate_every else 0),
            seed=settings.seed,
        )
        end = session.train()
        if end is End.INTERRUPT:
            return INTERRUPTED
        session.say(f"{end} after {session.steps_done} steps; evaluating")
        session.stop("rollouts", "trainer", "feed")
        session.await_ready("inference")
        session.finish_evaluation()
        session.stop("arena")
        session.pause_display()
        if session.steps_done == 0:
            raise RookeryError(f"run {settings.run!r} has not finished a single step: give it more --minutes")
        if session.interrupts:
            return INTERRUPTED
        try:
            evaluate_versions(settings, session.plan, held_out, console)
        except RookeryError:
            if session.interrupts:
                return INTERRUPTED
            raise
    return INTERRUPTED if session.interrupts else 0


def evaluate_versions(settings: DemoSettings, plan: Plan, held_out: Path, console: Console) -> None:
    """Evaluates the first and the last version of the run, and writes the report to the run's folder.

    A server of whole models holds one version at a time, so the first one answers before the last one is
    loaded. Raises `RookeryError` if no version was published, the server refuses one of them, or the arena
    failed.
    """
    versions = first_and_last(plan, settings.run)
    players = [_spec(settings, plan, version) for version in versions]
    mates = (
        {"puzzles": shipped(MATES), "puzzle_count": settings.eval_positions}
        if settings.task == "move" and shipped(MATES).is_file()
        else {}
    )
    flags = {
        "reward_target": plan.reward_target,
        "positions": held_out,
        "count": settings.eval_positions,
        "samples": settings.eval_samples,
        "seed": settings.seed,
        "out": plan.run_dir,
        "sections": f"positions,reasoning,matches{',puzzles' if mates else ''}",
        **mates,
        **settings.access_values,
    }
    # A rollback removes the names of all later versions, so the first version must be loaded first.
    for version, player in zip(versions, players, strict=True):
        asyncio.run(_reload(plan.url("inference"), version, settings.access))
        if plan.serves_whole_models:
            arena("evaluate", player, flags={**flags, "ask_only": True})
    if settings.eval_pairs and settings.task == "move" and not plan.serves_whole_models:
        console.print("match of the last version with the first")
        games = {"pairs": settings.eval_pairs, "seed": settings.seed, "out": plan.run_dir / "matches"}
        # Greedy play of weak players repeats moves: nearly every game would be drawn.
        sampled = [f"{player},temperature=1" for player in reversed(players)]
        arena("match", *sampled, flags={**games, **ENDS, "illegal": "random"})
    arena("evaluate", *players, flags=flags)


def first_and_last(plan: Plan, run: str) -> tuple[Adapter, Adapter]:
    """The first and the last version of the run. Raises `RookeryError` if no version was published."""
    last = RunStreams(plan.redis_url, run).policy.read()
    if last is None:
        raise RookeryError(f"run {run!r} has no policy")
    folder = Path(last.path).parent / policy_name(0)
    sha256 = json.loads((folder / "state.json").read_text())["sha256"]
    return Adapter(PolicyVersion(0, sha256), str(folder), last.base_model), last


def _spec(settings: DemoSettings, plan: Plan, adapter: Adapter) -> str:
    """The version as a player, which keeps its identity when it is served again at another address."""
    version = adapter.version
    options = {
        "style": settings.shown_style,
        "max-tokens": settings.max_tokens,
        "source": f"run:{settings.run}@{version.number}:{version.sha256[:12]}",
        **settings.access.player_options,
    }
    return ",".join(
        (f"{plan.url('inference')}#{version.name}", *(f"{key}={value}" for key, value in options.items()))
    )


async def _reload(url: str, adapter: Adapter, access: Access) -> None:
    async with InferenceClient(url, access=access, timeout_s=_RELOAD_TIMEOUT_S) as inference:
        await inference.reload(adapter, rollback=True)

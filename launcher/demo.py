"""`rookery demo`: a short run, and an evaluation that compares its last policy with the first.

The arena asks both about the same held-out positions and mates in one, with the run's inference and reward
services, and lets them play a match in which a random legal move replaces an illegal one.
"""

import asyncio
import json
import math
import time
from pathlib import Path

from rich.console import Console

from launcher.evaluate import arena
from launcher.plan import Plan, default_lines
from launcher.runs import HELD_OUT_FILE, settle_settings, write_held_out
from launcher.session import End, Session
from launcher.settings import DemoSettings
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

TRAINING_SHARE = 0.6
"""The share of the demo's minutes in which the services start and train."""
LEAST_STEPS, LEAST_POSITIONS, LEAST_PAIRS = 30, 200, 10
"""What a slow machine does at least, so that an effect can be seen."""

_RELOAD_TIMEOUT_S = 120.0


def demo(given: DemoSettings, console: Console | None = None) -> int:
    """Trains, evaluates and writes the report. Returns the exit status.

    Raises:
        SetupError: a service cannot start; the message says what to change.
        RookeryError: a service crashed too often, or the evaluation failed.
    """
    console, started = console or SafeConsole(), time.monotonic()
    settings = settle_settings(given)
    seconds = 60 * (settings.minutes or math.inf)
    # `minutes` is the time of the whole demo, not of the training.
    with Session(settings.model_copy(update={"minutes": None}), console) as session:
        session.say(f"run {settings.run}: everything it writes is in {session.plan.run_dir}")
        for line in default_lines(given, session.plan):
            session.say(line)
        held_out = write_held_out(
            session.plan.run_dir / HELD_OUT_FILE,
            source=settings.games,
            count=max(settings.eval_positions, settings.evaluate_positions if settings.evaluate_every else 0),
            seed=settings.seed,
        )
        end = session.train(deadline=started + TRAINING_SHARE * seconds, least_steps=LEAST_STEPS)
        if end is End.INTERRUPT:
            session.say(f"{session.steps_done} steps. Go on with: {settings.command_to_go_on}")
            return INTERRUPTED
        session.say(f"{end} after {session.steps_done} steps; evaluating")
        session.stop("rollouts", "trainer", "feed")
        session.await_ready("inference")
        session.finish_evaluation()
        session.stop("arena")
        session.pause_display()
        if session.interrupts:
            return INTERRUPTED
        try:
            evaluate_versions(settings, session.plan, held_out, console, deadline=started + seconds)
        except RookeryError:
            if session.interrupts:
                return INTERRUPTED
            raise
    return INTERRUPTED if session.interrupts else 0


def evaluate_versions(
    settings: DemoSettings, plan: Plan, held_out: Path, console: Console, *, deadline: float
) -> None:
    """Evaluates the first and the last version of the run, and writes the report to the run's folder.

    The first positions and games show how long all would take. If that is beyond the `deadline`
    (`time.monotonic`), fewer are taken. A server of whole models holds one version at a time, so the first
    one answers before the last one is loaded. Raises `RookeryError` if no version was published, the server
    refuses one of them, or the arena failed.
    """
    versions = first_and_last(plan)
    first, last = (_spec(settings, plan, version) for version in versions)
    flags = _evaluation_flags(settings, plan, held_out)
    games = {"seed": settings.seed, "out": plan.run_dir / "matches", **ENDS, "illegal": "random"}

    def evaluate(*players: str, count: int, ask_only: bool = False) -> None:
        limits = {"count": count, "puzzle_count": count, "ask_only": ask_only}
        arena("evaluate", *players, flags={**flags, **limits})

    def play(pairs: int) -> None:
        # Greedy play of weak players repeats moves: nearly every game would be drawn.
        sampled = [f"{player},temperature=1" for player in (last, first)]
        arena("match", *sampled, flags={**games, "pairs": pairs})

    positions, pairs = min(LEAST_POSITIONS, settings.eval_positions), min(LEAST_PAIRS, settings.eval_pairs)
    plays = pairs and settings.task == "move" and not plan.serves_whole_models
    # A rollback removes the names of all later versions, so the first version must be loaded first.
    _load(settings, plan, versions[0])
    begun = time.monotonic()
    evaluate(first, count=positions, ask_only=True)
    more_s = 2 * (time.monotonic() - begun) * (settings.eval_positions / positions - 1)
    if not plan.serves_whole_models:
        _load(settings, plan, versions[1])
    if plays:
        console.print("match of the last version with the first")
        begun = time.monotonic()
        play(pairs)
        more_s += (time.monotonic() - begun) * (settings.eval_pairs / pairs - 1)
    share = min(1.0, max(0.0, deadline - time.monotonic()) / more_s) if more_s else 1.0
    positions += round(share * (settings.eval_positions - positions))
    pairs += round(share * (settings.eval_pairs - pairs))
    if share < 1:
        games_played = f", {pairs} of {settings.eval_pairs} openings" if plays else ""
        console.print(
            f"so that all ends in about {settings.minutes:g} minutes (--minutes): {positions:,} of "
            f"{settings.eval_positions:,} positions{games_played}"
        )
    if plays and pairs > LEAST_PAIRS:
        play(pairs)
    if plan.serves_whole_models:
        evaluate(first, count=positions, ask_only=True)
        _load(settings, plan, versions[1])
        evaluate(last, count=positions, ask_only=True)
    evaluate(first, last, count=positions)


def _evaluation_flags(settings: DemoSettings, plan: Plan, held_out: Path) -> dict[str, object]:
    """The flags of `rookery arena evaluate` for both versions."""
    mates = settings.task == "move" and shipped(MATES).is_file()
    return {
        "reward_target": plan.reward_target,
        "positions": held_out,
        "samples": settings.eval_samples,
        "seed": settings.seed,
        "out": plan.run_dir,
        "sections": f"positions,reasoning,matches{',puzzles' if mates else ''}",
        **({"puzzles": shipped(MATES)} if mates else {}),
        **settings.access_values,
    }


def first_and_last(plan: Plan) -> tuple[Adapter, Adapter]:
    """The first and the last version of the run. Raises `RookeryError` if no version was published."""
    last = RunStreams(plan.redis_url, plan.run).policy.read()
    if last is None:
        raise RookeryError(f"run {plan.run!r} has no policy")
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


def _load(settings: DemoSettings, plan: Plan, version: Adapter) -> None:
    async def reload() -> None:
        url, access = plan.url("inference"), settings.access
        async with InferenceClient(url, access=access, timeout_s=_RELOAD_TIMEOUT_S) as inference:
            await inference.reload(version, rollback=True)

    asyncio.run(reload())

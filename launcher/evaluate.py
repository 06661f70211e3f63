"""`rookery evaluate`: starts what an evaluation of players needs, and runs the arena on them.

Models and versions of runs are served during the evaluation. If one server cannot hold all of them, they are
served one after the other; the arena keeps their answers.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import Field, PositiveInt
from rich.console import Console

from launcher.plan import HOST
from launcher.runs import HELD_OUT_FILE, write_held_out
from launcher.serve_players import batches, serve
from launcher.services import SERVICES, as_flags
from launcher.supervisor import running
from rookery.access import AccessSettings
from rookery.config.arena import OF_POSITIONS, EvaluationSettings
from rookery.config.data import SAMPLE
from rookery.devices import Device
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import Child, Command
from rookery.processes.ports import Ports
from rookery.remote import FolderPath, PathOrUrl, ShippedPath
from rookery.terminal import SafeConsole

_SHARED = ("out", *(EvaluationSettings.model_fields.keys() - {"players", "positions"}))
"""The settings that the arena has under the same names."""


class EvaluateSettings(EvaluationSettings, env_prefix="EVALUATE_"):
    """Evaluate one or several players, and write one page about them: OUT/report.html.

    A player is model:DIR_OR_HUB_ID, run:RUN[@VERSION], http://HOST:PORT#MODEL, stockfish,nodes=N,
    fairy,level=L, uci:PATH,nodes=N, random or first-legal. The first one is the baseline of the others. A
    killed evaluation continues where it stopped if it is started again.
    """

    positions: Path | None = None
    """JSONL file with one position per line. Default: positions of held-out games of --source."""
    source: PathOrUrl = SAMPLE
    """Games to draw held-out positions from: a file (.pgn, .pgn.zst, .gz or .bz2) or its URL."""
    puzzles: tuple[ShippedPath, ...] = (Path("samples/puzzles.csv"), Path("samples/mates_in_1.csv"))
    """Files of puzzles: the Lichess CSV, or PGN whose games start at the solver's turn. Repeatable."""
    pairs: PositiveInt = 50
    """Openings of a match; each is played with both colours. With more than two players, all play all."""
    sprt: str | None = Field(default=None, pattern=r"^-?[\d.]+,-?[\d.]+$")
    """Stop the match of two players as soon as one is clear: the first is at most, or at least, so many Elo
    stronger. For example 0,20."""
    nodes: PositiveInt = 1000
    """Stockfish nodes per search of the reward service."""
    device: Device = "auto"
    """cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto."""
    out: FolderPath = Path("runs/evaluation")
    """Folder of the answers and the report."""


def evaluate(settings: EvaluateSettings, console: Console | None = None) -> int:
    """Evaluates, and writes the report. Returns the exit status. Raises `SetupError` if a player or the
    positions cannot be found, or a service does not start; `RookeryError` if the arena failed (it has said
    why)."""
    console = console or SafeConsole()
    groups, served = batches(settings.players), dict[str, str]()
    asked = set(settings.sections.split(","))
    if "matches" in asked and len(settings.players) < 2:
        raise SetupError("a match needs two players: name another one, or leave out `matches` of --sections")
    settings.out.mkdir(parents=True, exist_ok=True)
    flags = {name: getattr(settings, name) for name in _SHARED}
    with ExitStack() as exits:
        if asked & OF_POSITIONS:
            flags["positions"] = settings.positions or write_held_out(
                settings.out / HELD_OUT_FILE, source=settings.source, count=settings.count, seed=settings.seed
            )
            console.print("starting the reward service")
            log = settings.out / "logs" / "reward.log"
            _, ports = exits.enter_context(reward_service(log, nodes=settings.nodes))
            flags["reward_target"] = f"dns:///{HOST}:{ports['grpc_port']}"
        if "matches" in asked:
            _play(settings)
        for number, group in enumerate(groups, start=1):
            with serve(group, device=settings.device, logs=settings.out / "logs") as resolved:
                served |= dict(zip(group, resolved, strict=True))
                if number < len(groups):
                    arena("evaluate", *resolved, flags={**flags, "ask_only": True})
                else:
                    arena("evaluate", *(served[spec] for spec in settings.players), flags=flags)
    return 0


def _play(settings: EvaluateSettings) -> None:
    """Plays the match of two players, or the tournament of more."""
    command = "match" if len(settings.players) == 2 else "tournament"
    with serve(settings.players, device=settings.device, logs=settings.out / "logs") as resolved:
        flags = {"pairs": settings.pairs, "seed": settings.seed, "out": settings.out / "matches"}
        arena(command, *resolved, flags={**flags, **({"sprt": settings.sprt} if settings.sprt else {})})


@contextmanager
def reward_service(log: Path, **flags: object) -> Iterator[tuple[Child, Mapping[str, int]]]:
    """A reward service that runs meanwhile, and its ports by the names of their settings. Raises `SetupError`
    if it does not start."""
    with Ports(HOST) as free:
        ports = {name: free.choose(default) for name, default in SERVICES["reward"].ports.items()}
        command = Command(
            "reward service",
            (*SERVICES["reward"].argv, *as_flags({"host": HOST, **ports, **flags})),
            log,
            probe_url=f"{AccessSettings().access.scheme}://{HOST}:{ports['port']}/readyz",
        )
        with running(command) as child:
            yield child, ports


def arena(command: str, *players: str, flags: Mapping[str, object]) -> None:
    """Runs the arena in this terminal. Raises `RookeryError` if it failed, and has printed why; `SetupError`
    if a player or a setting is wrong."""
    argv = [sys.executable, "-m", "launcher", "arena", command, *players, *as_flags(flags)]
    status = subprocess.run(argv, check=False).returncode
    if status:
        kind = SetupError if status == 2 else RookeryError
        raise kind(f"the arena's {command} ended with status {status}")

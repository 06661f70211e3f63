"""`rookery evaluate`: starts what an evaluation of players needs, and runs the arena on them.

Models and versions of runs are served during the evaluation. If one server cannot hold all of them, they are
served one after the other; the arena keeps their answers.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field, NonNegativeInt, PositiveInt
from rich.console import Console

from launcher.plan import HOST
from launcher.runs import HELD_OUT_FILE, write_held_out
from launcher.serve_players import batches, planned, read_endpoint, serve, training_folders
from launcher.services import SERVICES, as_flags
from launcher.supervisor import running
from rookery.access import AccessSettings
from rookery.config.arena import ASKS_POSITIONS, EvaluationSettings
from rookery.config.data import SAMPLE
from rookery.devices import Device
from rookery.errors import RookeryError, SetupError
from rookery.processes.child import Child, ServiceCommand
from rookery.processes.ports import Ports
from rookery.prompt import LINES
from rookery.remote import FolderPath, NamedPath, PathOrUrl, ShippedPath
from rookery.settings import ReportSettings
from rookery.terminal import SafeConsole
from rookery.trackers import Trackers, check_trackers, means

CONTAMINATION_FILE = "contamination.json"
_SHARED = ("out", *(EvaluationSettings.model_fields.keys() - {"players", "positions"}))
"""The settings that the arena has under the same names."""


class EvaluateSettings(EvaluationSettings, ReportSettings, env_prefix="EVALUATE_"):
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
    llm_chess: NonNegativeInt = 0
    """Games of each language model by the rules of LLM Chess, against each of --llm-chess-opponent: in its
    dialogue; models that read no sentences, such as rook-small, by their prompts."""
    llm_chess_opponent: tuple[str, ...] = ("random",)
    """Who plays White in them, such as random or stockfish,nodes=1. Repeatable."""
    data: tuple[NamedPath, ...] = ()
    """For contamination: NAME=FILE of data that the player of that name was trained on. Default: the archives
    of runs, and the files that the manifests of models name. Repeatable."""
    nodes: PositiveInt = 1000
    """Stockfish nodes per search of the reward service."""
    device: Device = "auto"
    """cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto."""
    out: FolderPath = Path("runs/evaluation")
    """Folder of the answers and the report."""


class BatterySettings(EvaluateSettings, env_prefix="BATTERY_"):
    """Evaluate players in every section: `rookery evaluate --sections all`, on one page with a summary.

    positions, reasoning, brittleness, puzzles, matches, contamination, and suites and chessqa if --suites and
    --chessqa name files. The first player is the baseline. A battery that was killed, or whose budget is
    spent, continues if it is started again.
    """

    sections: str = "all"
    """Which ones, separated by commas; all: those for which there is what they need."""
    out: FolderPath = Path("runs/battery")
    """Folder of the answers and the report."""


def evaluate(settings: EvaluateSettings, console: Console | None = None) -> int:
    """Evaluates, and writes the report. Returns the exit status. Raises `SetupError` if a player or the
    positions cannot be found, or a service does not start; `RookeryError` if the arena failed (it has said
    why)."""
    console = console or SafeConsole()
    check_trackers(settings.trackers)
    groups, started = batches(settings.players), time.monotonic()
    asked = settings.asks
    if settings.sections == "all" and len(settings.players) < 2:
        asked -= {"matches"}
    if "matches" in asked and len(settings.players) < 2:
        raise SetupError("a match needs two players: name another one, or leave out `matches` of --sections")
    if settings.dry_run:
        with TemporaryDirectory() as folder:
            arena("evaluate", *planned(settings.players), flags=_flags(settings, asked, Path(folder)))
        return 0
    settings.out.mkdir(parents=True, exist_ok=True)
    flags = _flags(settings, asked, settings.out)
    if "contamination" in asked:
        _search_data(settings, flags)
    with ExitStack() as exits:
        if asked & ASKS_POSITIONS:
            console.print("starting the reward service")
            log = settings.out / "logs" / "reward.log"
            _, ports = exits.enter_context(reward_service(log, nodes=settings.nodes))
            flags["reward_target"] = f"dns:///{HOST}:{ports['grpc_port']}"
        if "matches" in asked:
            _play(settings)
        _ask(settings, groups, flags, started=started)
    _record(settings)
    return 0


def _flags(settings: EvaluateSettings, asked: Set[str], folder: Path) -> dict[str, object]:
    """Those of the arena. Positions that are not given are held-out ones, written to `folder`."""
    flags = {name: getattr(settings, name) for name in _SHARED}
    if asked & ASKS_POSITIONS:
        flags["positions"] = settings.positions or write_held_out(
            folder / HELD_OUT_FILE, source=settings.source, count=settings.count, seed=settings.seed
        )
    return flags


def _ask(
    settings: EvaluateSettings, groups: Sequence[list[str]], flags: Mapping[str, object], *, started: float
) -> None:
    """Asks the players of one group after the other; the last time writes the report of all."""
    served: dict[str, str] = {}
    if settings.llm_chess:  # the page shows its games
        flags = {**flags, "sections": ",".join(sorted(settings.asks | {"matches"}))}
    for number, group in enumerate(groups, start=1):
        with serve(group, device=settings.device, logs=settings.out / "logs") as resolved:
            served |= dict(zip(group, resolved, strict=True))
            if settings.budget_minutes:
                left = settings.budget_minutes - (time.monotonic() - started) / 60
                flags = {**flags, "budget_minutes": max(left, 1e-6)}
            _play_llm_chess(settings, resolved)
            if number < len(groups):
                arena("evaluate", *resolved, flags={**flags, "ask_only": True})
            else:
                arena("evaluate", *(served[spec] for spec in settings.players), flags=flags)


def _play_llm_chess(settings: EvaluateSettings, resolved: Sequence[str]) -> None:
    """Plays LLM Chess: models that read sentences by its dialogue, others, and those that select one of
    several answers, by their prompts."""
    for spec in resolved if settings.llm_chess else ():
        if spec.startswith(("http://", "https://")):
            _, model, options = read_endpoint(spec)
            style = options.get("style", "")
            reads = style not in LINES and not ("source" in options and style.startswith("mover-"))
            if reads and not options.keys() & {"dialogue", "vote", "verify", "best-of"}:
                spec = f"{spec},dialogue=llm-chess"
            for opponent in settings.llm_chess_opponent:
                folder = f"matches-{options.get('name', model)}-{opponent}".replace("/", "-")
                flags = {"llm_chess": True, "pairs": settings.llm_chess, "seed": settings.seed}
                arena("match", spec, opponent, flags={**flags, "out": settings.out / folder})


def _record(settings: EvaluateSettings) -> None:
    """Sends the means of the report to the trackers."""
    if settings.trackers:
        report = json.loads((settings.out / "report.json").read_bytes())
        trackers = Trackers(settings.trackers, settings.out, settings.model_dump(mode="json"))
        trackers.log(dict(means(report["sections"])))
        trackers.close()


def _search_data(settings: EvaluateSettings, flags: Mapping[str, object]) -> None:
    """Counts the positions of the exams in the data of the players. Raises `SetupError` if a file cannot be
    read; the message quotes it."""
    folders = training_folders(settings.players)
    named = {text.partition("=")[0] for text in settings.data}
    data = [*settings.data, *(f"{n}={folder}" for n, folder in folders.items() if n not in named)]
    exams = [flags.get("positions"), *settings.puzzles, *settings.suites, *settings.chessqa]
    out = settings.out / CONTAMINATION_FILE
    if not data or not any(exams):
        out.unlink(missing_ok=True)  # of an evaluation with other players
        return
    command = [sys.executable, "-m", "chess_datasets", "overlap", *map(str, filter(None, exams))]
    command += [*chain.from_iterable(("--data", text) for text in data), "--out", str(out)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SetupError(f"contamination: {done.stderr.strip().removeprefix('error: ')}")


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
        command = ServiceCommand(
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

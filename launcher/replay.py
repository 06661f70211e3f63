"""`rookery replay`: trains on a recorded run's groups again, and compares the bytes of every version."""

import json
import os
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import MappingProxyType

from pydantic import NonNegativeInt
from pydantic_settings import CliPositionalArg
from rich.console import Console
from rich.progress import Progress

from launcher.redis_server import redis_argv, redis_url
from launcher.runs import recorded_name
from launcher.services import SERVICES
from rookery.commands import BY_NAME
from rookery.errors import QUOTED_CHARS, InvalidInput, RookeryError, SetupError, Unavailable
from rookery.processes.child import Child, ServiceCommand, Watchdog, last_lines
from rookery.remote import FolderPath, PathOrUrl, find_run
from rookery.settings import CONFIG_VARIABLE, SHARED, Settings, shared_variable
from rookery.streams import RunStreams
from rookery.terminal import SafeConsole

START_S = 30.0
"""How long Redis may take to start."""
POLL_S = 0.2
SETTLED_S = 2.0
"""A batch that was just settled gets its version within this time."""
_STRONGER = ("TRAINER_", "DATA_REPUBLISH_", *map(shared_variable, SHARED))
"""How variables begin that are stronger than the recorded settings."""
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


class ReplaySettings(Settings, env_prefix="REPLAY_"):
    """Train on the groups of an archive again, with a recorded run's settings, and compare the versions.

    On the same kind of CPU with the same number of threads, each version that the run still has must have the
    same bytes. If one differs, then the settings or the archive are not those of the run, or training is not
    deterministic. The archive must have all groups of the run. Variables such as TRAINER_LR have no effect.
    """

    run: CliPositionalArg[PathOrUrl]
    """The recorded run, by name or folder, with trainer.toml and adapters/."""
    archive: PathOrUrl = ""
    """Folder or URL of the archive. Default: `archive` in the run's folder."""
    name: str = ""
    """Name of the run in the archive. Default: that of its first start, or its folder."""
    steps: NonNegativeInt = 0
    """Stop after this many steps. 0: at the newest version that the run has."""
    out: FolderPath | None = None
    """Folder for the new versions and the logs. Default: `replay` in the run's folder."""


def replay(settings: ReplaySettings, console: Console | None = None) -> int:
    """Trains, prints one line for each version, and returns the exit status: 1 if one differs.

    Raises:
        SetupError: the recorded run is incomplete, or `out` is not empty.
        InvalidInput: a file of the recorded run is damaged.
        RookeryError: Redis or the trainer ended early; the message quotes its log.
    """
    console = console or SafeConsole(highlight=False, soft_wrap=True)
    folder = find_run(settings.run)
    recorded = versions(folder)
    newest = settings.steps or max(recorded, default=0)
    config, out = folder / "trainer.toml", settings.out or folder / "replay"
    if not newest or not config.exists():
        raise SetupError(f"{str(folder)!r} has no trainer.toml, or no version after 0 in adapters/")
    if out.exists() and any(out.iterdir()):
        raise SetupError(f"{out} is not empty: delete it, or name another folder with --out")
    batch = _batch_groups(config)
    if newest not in recorded:
        console.print(f"{folder} has no version {newest}: it has {', '.join(map(str, recorded))}")
    url, logs = redis_url(out / "redis"), out / "logs"
    stopping = threading.Event()
    stopping.set()  # its calls do not wait for a Redis that has ended
    run = RunStreams(url, "replay", stopping=stopping)
    with closing(run), _starting(logs) as start, _redis_faults(logs):
        _await_redis(start("redis", *redis_argv(out / "redis")), run)
        console.print(f"logs and versions are in {out}")
        republish = [
            *BY_NAME["data republish"].argv, settings.archive or str(folder / "archive"), "--to", "replay",
            "--run", settings.name or recorded_name(folder) or folder.resolve().name, "--redis-url", url,
        ]  # fmt: skip
        feeding = start("republish", *republish)
        train = [
            *SERVICES["trainer"].argv, "--run-dir", str(out), "--redis-url", url, "--run", "replay",
            "--inference-urls", "", "--adapter-store", "", "--store", "", "--no-mlflow", "--no-rest",
            "--port", "0",
        ]  # fmt: skip
        training = start("trainer", *train, env={CONFIG_VARIABLE: str(config)})
        _await_version(training, feeding, run, console, logs, newest=newest, batch=batch)
    return compare_versions(recorded, versions(out), console)


def versions(run_dir: Path) -> dict[int, str]:
    """The SHA-256 of every version in a run's folder, by number."""
    return dict(sorted(_version(path) for path in run_dir.glob("adapters/policy-v*/state.json")))


def _version(path: Path) -> tuple[int, str]:
    text = path.read_text(errors="replace")
    try:
        state = json.loads(text)
        return int(state["number"]), str(state["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        line = getattr(error, "lineno", 1)
        raise InvalidInput(
            f"{path}:{line}: no number and sha256 of a version: {text[:QUOTED_CHARS]!r}"
        ) from error


def _batch_groups(config: Path) -> int:
    text = config.read_text(errors="replace")
    try:
        return int(tomllib.loads(text)["trainer"]["batch_groups"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{config}: no batch_groups in [trainer]: {text[:QUOTED_CHARS]!r}") from error


@contextmanager
def _starting(logs: Path) -> Iterator[Callable[..., Child]]:
    """A function that starts a process from its name and command line, without variables that would change
    what the recorded run did. All of them end with the block."""
    names = [name for name in os.environ if name.upper().startswith(_STRONGER)]
    unset = dict.fromkeys((*names, *_TORCHRUN, CONFIG_VARIABLE))
    with ExitStack() as exits:
        watchdog = exits.enter_context(closing(Watchdog()))

        def start(name: str, *argv: str, env: Mapping[str, str] = MappingProxyType({})) -> Child:
            child = Child(ServiceCommand(name, argv, logs / f"{name}.log", env={**unset, **env}), watchdog)
            exits.callback(child.kill)
            return child

        yield start


@contextmanager
def _redis_faults(logs: Path) -> Iterator[None]:
    """Adds the end of Redis' log to the error that it does not answer."""
    try:
        yield
    except Unavailable as error:
        raise RookeryError(f"{error}: {' / '.join(last_lines(logs / 'redis.log', 3))}") from error


def _await_redis(server: Child, run: RunStreams) -> None:
    """Waits until Redis answers. Raises `Unavailable` if it has ended, or does not answer within
    `START_S`."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            run.redis.ping(once=True)
            return
        except Unavailable:
            if server.poll() is not None or time.monotonic() > deadline:
                raise
        time.sleep(POLL_S)


def _await_version(
    training: Child, feeding: Child, run: RunStreams, console: Console, logs: Path, *, newest: int, batch: int
) -> None:
    """Waits until the trainer has committed version `newest`, and shows how far it is. Its `max_steps` stays
    the recorded one, because the learning rates depend on it."""
    stalled_at = -1
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("steps", total=newest)
        while (status := training.poll()) is None:
            state, complete = run.overview(), feeding.poll()
            if complete:
                raise RookeryError(f"republish: {' / '.join(last_lines(logs / 'republish.log', 3))}")
            done = state.committed or 0
            if done >= newest:
                return
            if complete == 0 and state.traces < batch and done == stalled_at < newest:
                raise RookeryError(f"the archive ends after step {done} of {newest}: groups are missing")
            stalled_at = done if complete == 0 and state.traces < batch else -1
            progress.update(task, completed=done)
            time.sleep(POLL_S if stalled_at < 0 else SETTLED_S)
    if status:
        log_end = " / ".join(last_lines(logs / "trainer.log", 3))
        raise RookeryError(f"the trainer ended with status {status}: {log_end}")


def compare_versions(recorded: dict[int, str], replayed: dict[int, str], console: Console) -> int:
    """Prints whether each version of both has the same bytes. Returns 1 if one differs, or if no version
    after 0 is in both."""
    shared = [number for number in recorded if number in replayed]
    for number in shared:
        same = recorded[number] == replayed[number]
        console.print(f"version {number}: {'identical' if same else 'DIFFERS'}  {replayed[number]}")
    if not any(shared):
        console.print(f"nothing compared: recorded {[*recorded]}, replayed {[*replayed]}")
        return 1
    return int(any(recorded[number] != replayed[number] for number in shared))

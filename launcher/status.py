"""`rookery status`: shows the state of a run, once or repeatedly."""

import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat
from pydantic_settings import CliPositionalArg
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from launcher import dashboard
from launcher.observer import Observer, Snapshot, StepLog
from launcher.plan import HOST
from launcher.runs import ENDPOINTS_FILE, latest_endpoints, stored_settings
from launcher.services import SERVICES
from launcher.settings import DemoSettings, UpSettings
from rookery.access import AccessSettings
from rookery.errors import SetupError
from rookery.files import read_object
from rookery.folder_lock import is_locked
from rookery.masking import mask_setting
from rookery.plots.steps import METRICS_FILE, read_strength
from rookery.remote import FolderPath, PathOrUrl, find_run
from rookery.settings import RedisUrl
from rookery.terminal import SafeConsole


class RunPlace(AccessSettings, env_prefix="STATUS_"):
    """Which run a command looks at. The variables are those of `rookery status` for all of these commands."""

    run: CliPositionalArg[PathOrUrl] = ""
    """The run, by name or folder. Default: the one started last in --runs-dir; `default` with --redis-url."""
    runs_dir: FolderPath = Path("runs")
    """Folder in which `rookery up` keeps its runs."""
    redis_url: RedisUrl | None = None
    """Redis of the run. Default: read from the run's folder."""
    host: str = HOST
    """With --redis-url: host of the services. {service} stands for the name of each, for containers."""

    def place(self) -> dict[str, Any]:
        """The run's name, its folder, its Redis and the URLs of its probes. Raises `SetupError` if there is
        no such run, or the file of its addresses is damaged."""
        if self.redis_url is not None:
            hosts = {name: self.host.replace("{service}", name) for name in SERVICES}
            probes = {
                name: f"{self.access.scheme}://{hosts[name]}:{service.ports['port']}/readyz"
                for name, service in SERVICES.items()
            }
            name = Path(self.run).name or "default"
            folder = self.runs_dir / name
            return {"run": name, "run_dir": folder, "redis_url": self.redis_url, "probes": probes}
        if self.run:
            path: Path | None = find_run(self.run, runs_dir=self.runs_dir) / ENDPOINTS_FILE
        else:
            path = latest_endpoints(self.runs_dir)
        if path is None or not path.exists():
            missing = f"{str(path)!r} does not exist" if path else f"no run in {str(self.runs_dir)!r}"
            raise SetupError(f"{missing}: name a run that `rookery up` has started, or give --redis-url")
        try:
            endpoints = read_object(path)
            place = {name: endpoints[name] for name in ("run", "redis_url", "probes")}
        except KeyError as error:
            raise SetupError(f"{path} lacks {error}") from error
        return {**place, "run_dir": path.parent}


class StatusSettings(RunPlace):
    """Show the state of a run: versions, groups, streams, services.

    Without flags, this is the run that `rookery up` started last. With --redis-url it can be any run whose
    services use their default ports. The exit status is 1 if groups are astray, Redis does not answer or the
    run has ended.
    """

    watch: bool = False
    """Update the output until Ctrl-C."""
    every_s: PositiveFloat = 2.0
    """Seconds between two updates of --watch."""


def status(settings: StatusSettings, console: Console | None = None) -> int:
    """Prints the state of the run and returns the exit status. Raises `SetupError` if there is no such
    run."""
    console = console or SafeConsole()
    place = settings.place()
    run_dir: Path = place["run_dir"]
    observer = Observer(
        {name: url for name, url in place["probes"].items() if name != "redis"},
        redis_url=place["redis_url"],
        run=place["run"],
        run_dir=run_dir,
        access=settings.access,
    )
    with closing(observer):
        snapshot = observer.look()
        if snapshot.overview is None and settings.redis_url is None and not is_locked(run_dir):
            console.print(_last_page(run_dir))
            return 1
        if settings.watch:
            return _watch(place, observer, console, every_s=settings.every_s)
    console.print(_page(place, snapshot))
    run = snapshot.overview
    return 0 if run and not run.astray and not run.archive_astray else 1


def _watch(place: dict[str, Any], observer: Observer, console: Console, *, every_s: float) -> int:
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(_page(place, observer.look()), refresh=True)
            time.sleep(every_s)
    return 0


def _last_page(run_dir: Path) -> Group:
    """What the files of a run say that no process works on, and how to go on with it."""
    steps = StepLog(run_dir / METRICS_FILE).refresh()
    tables = dashboard.result_tables(Snapshot(steps=steps, strength=tuple(read_strength(run_dir))))
    settings = stored_settings(run_dir)
    done, goal = int(steps[-1].get("step", 0)) if steps else 0, settings.get("steps")
    place = run_dir.resolve()  # it may be `.`, or a link
    title = Text(f"run {place.name} does not run: {done}{f' of {goal}' if goal else ''} steps done", "bold")
    next_run = (DemoSettings if "eval_positions" in settings else UpSettings).model_construct(
        run=place.name,
        runs_dir=run_dir.parent if run_dir.name == place.name else place.parent,
        steps=2 * goal if goal and done >= goal else goal,
    )
    go_on = Text(f"Go on with: {next_run.command_to_go_on}", overflow="fold")
    return Group(title, *(tables if steps else ()), go_on)


def _page(place: dict[str, Any], snapshot: Snapshot) -> Group:
    name, recorded = place["run_dir"].resolve().name, place["run"]
    renamed = "" if name == recorded else f" ({recorded} in Redis: its folder was renamed or copied)"
    address = Text(f"{mask_setting(place['redis_url'])} ({snapshot.redis})", overflow="fold")
    address.stylize("dim" if snapshot.overview and not snapshot.overview.full else "red")
    page = dashboard.Page(f"run {name}{renamed}", dashboard.probe_rows(snapshot.probes), snapshot)
    return Group(page, address)

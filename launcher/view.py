"""`rookery view`: serves the viewer over the runs of a folder, and prints the address of one of them."""

import secrets
import signal
import webbrowser
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_settings import CliPositionalArg
from rich.console import Console

from launcher.plan import HOST
from launcher.runs import latest_endpoints
from launcher.services import SERVICES, as_flags
from launcher.supervisor import running
from rookery.access import TOKEN_VARIABLE, AccessSettings
from rookery.processes.child import ServiceCommand
from rookery.processes.ports import Ports
from rookery.remote import FolderOrUrl, PathOrUrl, find_run, is_url
from rookery.settings import HttpUrl, Port
from rookery.terminal import SafeConsole


class ViewSettings(AccessSettings, env_prefix="VIEW_"):
    """Show the answers of a run's policy in a browser, while it trains and afterwards.

    All runs of the folder are shown. Replaying dead letters and asking the policy need the token of the
    services, which you enter on the page. If there is none, the address that is printed has a new one.
    """

    run: CliPositionalArg[PathOrUrl] = ""
    """The run to open, by name, folder or URL, as s3://bucket/runs/my-run. Default: the one started last."""
    runs_dir: FolderOrUrl = "runs"
    """Folder with one folder for each run, or its URL."""
    inference_url: HttpUrl = ""
    """Server of the policy, for Play, as of `rookery serve players`. Default: that of the run, while up."""
    reward_url: HttpUrl = ""
    """Reward service, for verdicts in Play. Default: that of the run while it is up."""
    port: Port | None = None
    """Port of the page. Default: 8010, or any other if that is taken."""
    open: bool = False
    """Open the page in the browser."""


def view(settings: ViewSettings, console: Console | None = None) -> int:
    """Serves until Ctrl-C. Returns the exit status. Raises `SetupError` if there is no such run, the port is
    taken, or the viewer cannot start."""
    console = console or SafeConsole(highlight=False, soft_wrap=True)
    run, place = settings.run, ["--runs-dir", settings.runs_dir]
    if is_url(run):
        parent, _, run = run.rstrip("/").rpartition("/")
        archive = run.startswith("run=")  # as the archiver names the folder of a run
        run = run.removeprefix("run=")
        place = [*place, "--archive", parent] if archive else ["--runs-dir", parent]
    elif run and not is_url(settings.runs_dir):
        folder = find_run(run, runs_dir=settings.runs_dir).resolve()
        run, place = folder.name, ["--runs-dir", str(folder.parent)]
    elif newest := latest_endpoints(Path(settings.runs_dir)):
        run = newest.parent.name
    for name in ("inference_url", "reward_url"):
        if url := getattr(settings, name):
            place += [f"--{name.replace('_', '-')}", url]
    access = settings.access
    token = "" if access.token else secrets.token_urlsafe(16)
    with Ports(HOST) as ports, TemporaryDirectory(prefix="rookery-view-") as logs:
        port = ports.choose(SERVICES["viewer"].ports["port"], asked=settings.port, setting="--port")
        flags = ("--host", HOST, "--port", str(port), *place, *as_flags(settings.access_values))
        command = ServiceCommand(
            "viewer",
            (*SERVICES["viewer"].argv, *flags),
            Path(logs) / "viewer.log",
            probe_url=f"{access.scheme}://{HOST}:{port}/readyz",
            env={TOKEN_VARIABLE: token} if token else {},
        )
        with suppress(KeyboardInterrupt), running(command):
            url = f"{access.scheme}://{HOST}:{port}/{f'runs/{run}' if run else ''}"
            url += f"#token={token}" if token else ""
            console.print(url, soft_wrap=True, highlight=False)
            if settings.open:
                webbrowser.open(url)
            signal.pause()
    return 0

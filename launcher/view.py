"""`rookery view`: serves the viewer over the runs of a folder, and prints the address of one of them."""

import secrets
import signal
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_settings import CliPositionalArg, SettingsConfigDict
from rich.console import Console

from launcher.plan import HOST
from launcher.runs import latest_endpoints
from launcher.serve_players import running
from launcher.services import MODULES, PORTS
from rookery.access import AccessSettings
from rookery.errors import SetupError
from rookery.processes.child import Command, Watchdog
from rookery.processes.ports import Ports
from rookery.settings import Settings


class ViewSettings(Settings):
    """Look at what the policy of a run thinks, in a browser: while it trains, and afterwards.

    All runs of the folder are shown. The address that is printed has a token, with which dead letters can be
    replayed and the policy asked; without it, the page is read-only.
    """

    model_config = SettingsConfigDict(env_prefix="VIEW_")

    run: CliPositionalArg[str] = ""
    """Name of the run to open. Default: the one that was started last."""
    runs_dir: Path = Path("runs")
    """Folder with one folder for each run."""
    port: int | None = None
    """Port of the page. Default: 8010, or any other if that is taken."""
    open: bool = False
    """Open the page in the browser."""


def view(settings: ViewSettings, console: Console) -> int:
    """Serves until Ctrl-C. Returns the exit status.

    Raises:
        SetupError: there is no such run, the port is taken, or the viewer cannot start.
    """
    if settings.run and not (settings.runs_dir / settings.run).is_dir():
        raise SetupError(f"no run {settings.run!r} in {str(settings.runs_dir)!r}: see --runs-dir")
    newest = latest_endpoints(settings.runs_dir)
    run = settings.run or (newest.parent.name if newest else "")
    token, scheme = secrets.token_urlsafe(16), AccessSettings().access.scheme
    with Ports(HOST) as ports, TemporaryDirectory(prefix="rookery-view-") as folder:
        port = ports.choose(PORTS["viewer"]["port"], asked=settings.port, setting="--port")
        flags = ("--host", HOST, "--port", str(port), "--runs-dir", str(settings.runs_dir))
        command = Command(
            "viewer",
            (sys.executable, "-m", MODULES["viewer"], *flags),
            Path(folder) / "viewer.log",
            probe_url=f"{scheme}://{HOST}:{port}/readyz",
            env={"VIEWER_TOKEN": token},
        )
        with suppress(KeyboardInterrupt), running(command, Watchdog()):
            url = f"{scheme}://{HOST}:{port}/{f'runs/{run}' if run else ''}#token={token}"
            console.print(url, soft_wrap=True, highlight=False)
            if settings.open:
                webbrowser.open(url)
            signal.pause()
    return 0

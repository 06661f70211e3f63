"""`rookery view`: serves the viewer over the runs of a folder, and prints the address of one of them."""

import os
import secrets
import subprocess
import sys
import time
import webbrowser
from pathlib import Path

import httpx
from pydantic_settings import CliPositionalArg, SettingsConfigDict
from rich.console import Console

from launcher.plan import HOST
from launcher.probes import probe
from launcher.runs import latest_endpoints
from launcher.services import MODULES, PORTS
from rookery.errors import SetupError
from rookery.processes.ports import Ports
from rookery.settings import Settings

POLL_S = 0.2


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
    """Serves until Ctrl-C. Returns the exit status of the viewer.

    Raises:
        SetupError: there is no such run, or the port is taken.
    """
    if settings.run and not (settings.runs_dir / settings.run).is_dir():
        raise SetupError(f"no run {settings.run!r} in {str(settings.runs_dir)!r}: see --runs-dir")
    newest = latest_endpoints(settings.runs_dir)
    run = settings.run or (newest.parent.name if newest else "")
    token = secrets.token_urlsafe(16)
    with Ports(HOST) as ports:
        port = ports.choose(PORTS["viewer"]["port"], asked=settings.port, setting="--port")
        flags = ["--host", HOST, "--port", str(port), "--runs-dir", str(settings.runs_dir)]
        server = subprocess.Popen(
            [sys.executable, "-m", MODULES["viewer"], *flags], env={**os.environ, "VIEWER_TOKEN": token}
        )
        url = f"http://{HOST}:{port}/{f'runs/{run}' if run else ''}#token={token}"
        try:
            if _ready(server, port):
                console.print(url, soft_wrap=True, highlight=False)
                if settings.open:
                    webbrowser.open(url)
            return server.wait()
        except KeyboardInterrupt:  # the server gets it, too
            return server.wait()


def _ready(server: "subprocess.Popen[bytes]", port: int) -> bool:
    """Waits for the server. False if it ended."""
    with httpx.Client() as http:
        while server.poll() is None:
            if probe(f"http://{HOST}:{port}/readyz", http) is None:
                return True
            time.sleep(POLL_S)
    return False

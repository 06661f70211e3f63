"""Serves a version of a run that is down, so that Play can ask it, by processes of the viewer: an inference
server and a reward service. There are those of one version at a time, and they end with the viewer."""

import contextlib
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rookery.access import TOKEN_VARIABLE, Access, AccessSettings
from rookery.errors import NotFound, Unavailable
from rookery.processes.child import Child, ServiceCommand, Watchdog, last_lines
from rookery.processes.ports import Ports
from services.viewer.runs import RunFolder

HOST = "127.0.0.1"
_PLAYERS = (sys.executable, "-m", "launcher", "serve", "players")
_REWARD = (sys.executable, "-m", "services.reward")
_REWARD_PORT = 8180
_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """A version, and the addresses of its servers once it is `ready`; until then it is `starting`, or has
    `failed` with a `problem`."""

    run: str
    version: int
    state: str = "starting"
    problem: str = ""
    inference_url: str = ""
    reward_url: str = ""
    model: str = ""
    """Its name on the server."""
    style: str = ""

    def json(self) -> dict[str, Any]:
        names = ("version", "state", "problem", "model", "style")
        return {name: getattr(self, name) for name in names}


class VersionServer:
    """The servers of at most one version. Thread-safe."""

    def __init__(self, folder: Path, access: Access) -> None:
        self._folder, self._access = folder, access
        self._changing, self._exits = threading.Lock(), contextlib.ExitStack()
        self._served: Served | None = None

    def served(self, run: str) -> Served | None:
        """The version of this run that is served, or about to be."""
        served = self._served
        return served if served and served.run == run else None

    def serve(self, run: RunFolder, version: int) -> Served:
        """Starts servers of a version, in place of those of another one. Raises `NotFound` if its weights are
        not on this disk; `Unavailable` if this installation lacks what serves them."""
        if version not in run.versions():
            raise NotFound(f"no version {version} of run {run.name!r} on this disk: {run.versions()}")
        if missing := [package for package in ("launcher", "vllm") if find_spec(package) is None]:
            raise Unavailable(f"version {version} cannot be served here without {' and '.join(missing)}")
        with self._changing:
            served = Served(run.name, version)
            if self._served == served:  # it is about to be: asked twice
                return served
            self._stop()
            self._served = served
            try:
                self._start(run, served)
            except BaseException:
                self._stop()
                raise
            return served

    def stop(self) -> None:
        with self._changing:
            self._stop()

    def _stop(self) -> None:
        self._served = None
        self._exits.close()

    def _start(self, run: RunFolder, served: Served) -> None:
        variables = self._variables()
        self._folder.mkdir(exist_ok=True)
        log = self._folder / "players.log"
        port = self._exits.enter_context(Ports(HOST)).choose(_REWARD_PORT)
        with log.open("wb") as output:
            players = subprocess.Popen(
                (*_PLAYERS, f"run:{run.path.resolve()}@{served.version}", "--logs", str(self._folder)),
                stdin=subprocess.PIPE,  # its end ends the servers, also if this process is killed
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **variables},
                process_group=0,
            )
        self._exits.callback(_end, players)
        threading.Thread(target=self._follow, args=(served, players, port, log), daemon=True).start()
        watchdog = Watchdog()
        self._exits.callback(watchdog.close)
        scheme = ("--scheme", run.scheme()) if run.scheme() else ()
        flags = ("--host", HOST, "--port", str(port), "--grpc-port", "0", "--engines", "1", *scheme)
        reward = ServiceCommand("reward", (*_REWARD, *flags), self._folder / "reward.log", env=variables)
        child = Child(reward, watchdog)
        self._exits.callback(child.kill)

    def _variables(self) -> dict[str, str]:
        """The token and the certificates of the viewer, which may have them from its flags."""
        access = self._access
        values = {TOKEN_VARIABLE: access.token} | {
            AccessSettings.variable(f"tls_{name}"): str(getattr(access, name) or "")
            for name in ("cert", "key", "ca")
        }
        return {variable: value for variable, value in values.items() if value}

    def _follow(self, served: Served, players: "subprocess.Popen[str]", port: int, log: Path) -> None:
        """Waits for the address of the version, then for the end of its server, while no other one is
        served."""
        if players.stdout is None:
            return
        with players.stdout as lines:
            if line := lines.readline().strip():
                place, *options = line.split(",")
                url, _, model = place.partition("#")
                style = dict(option.partition("=")[::2] for option in options).get("style", "")
                ready = replace(
                    served,
                    state="ready",
                    inference_url=url,
                    reward_url=f"{self._access.scheme}://{HOST}:{port}",
                    model=model,
                    style=style,
                )
                with self._changing:
                    if self._served is not served:
                        return
                    self._served = served = ready
                lines.read()
        with self._changing:
            if self._served is served:
                problem = " ".join(last_lines(log, 1)) or "the server ended"
                self._served = Served(served.run, served.version, state="failed", problem=problem[-500:])
                self._exits.close()


def _end(process: "subprocess.Popen[str]") -> None:
    if process.stdin:
        process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

"""Runs the UCI engine on this process's standard input and output."""

import asyncio
import os
import random
import shlex
import subprocess
import threading
from pathlib import PurePath

import chess

from arena.players.player import Player
from arena.uci.engine import UciEngine
from rookery.config.arena import UciSettings
from rookery.errors import QUOTED_CHARS, SetupError
from rookery.files import expanded
from rookery.hub import local_model
from rookery.masking import printable
from rookery.remote import is_url, run_version

_IN, _OUT = 0, 1
_SERVED = ("model:", "run:")


async def run(settings: UciSettings) -> None:
    """Answers commands until `quit` or the end of the input. Raises `SetupError` before it reads any if this
    machine is to serve a model or run that it has not; `RookeryError` if the player could not be opened."""
    if settings.server_command == UciSettings.model_fields["server_command"].default:
        _find(settings.spec.partition(",")[0])
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    _read_lines(lines)
    server = Server(settings)
    seed = random.SystemRandom().getrandbits(30) if settings.seed is None else settings.seed
    engine = UciEngine(player_name(settings.spec), server.open_player, _write, seed=seed)
    try:
        await engine.run(lines.get)
    finally:
        server.close()


def _find(player: str) -> None:
    kind, _, place = player.partition(":")
    if is_url(place):
        return  # it is downloaded when the player is opened
    try:
        if kind == "model":
            local_model(place)
        elif kind == "run":
            run_version(place)
    except SetupError as error:
        raise SetupError(f"player {player[:QUOTED_CHARS]!r}: {error}") from error


def player_name(spec: str) -> str:
    """The player's name in `id name`.

    >>> player_name("run:demo@42,temperature=0.5"), player_name("stockfish,nodes=9,name=weak")
    ('demo@42', 'weak')
    """
    head, *options = spec.split(",")
    names = [option.removeprefix("name=") for option in options if option.startswith("name=")]
    return names[-1] if names else PurePath(head.removeprefix("run:").rpartition("#")[2]).name


class Server:
    """Opens the player. For `model:` and `run:`, starts a process that serves it, until `close`."""

    def __init__(self, settings: UciSettings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None

    async def open_player(self) -> Player:
        """The player, after a trial move: engines start with it, and an endpoint that is down is noticed.
        Raises `RookeryError` if there is no such player, it cannot be served, or it does not answer."""
        player = await asyncio.to_thread(self._player)
        try:
            await player.play(chess.Board(), seed=0)
        except BaseException:
            await player.close()
            raise
        return player

    def _player(self) -> Player:
        from arena.players.spec import make_player

        spec = self._settings.spec
        if self._settings.server_command and spec.startswith(_SERVED):
            spec = self._serve(spec)
        return make_player(spec)

    def _serve(self, spec: str) -> str:
        """Starts the server and returns the spec of its endpoint."""
        program = map(expanded, shlex.split(self._settings.server_command))
        command = [*program, "--device", self._settings.device, spec]
        # A group of its own: Ctrl-C in a terminal is for this process, which then ends the server.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self._process.stdout and self._process.stderr  # noqa: S101 -- opened as pipes
        if served := self._process.stdout.readline().strip():
            return served
        errors = self._process.stderr.read().strip().splitlines() or ["no reason given"]
        raise SetupError(f"player {spec[:QUOTED_CHARS]!r}: {errors[-1].removeprefix('error: ')}")

    def close(self) -> None:
        """Tells the server to end, and does not wait: it ends what it has started."""
        if self._process and self._process.poll() is None:
            self._process.terminate()


def _read_lines(lines: "asyncio.Queue[str | None]") -> None:
    """Reads lines in a thread, which ends with the process."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        rest = b""
        # os.read, because a thread that waits in sys.stdin would block the interpreter's exit.
        while data := os.read(_IN, 65536):
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                loop.call_soon_threadsafe(lines.put_nowait, line.decode(errors="replace"))
        if rest:
            loop.call_soon_threadsafe(lines.put_nowait, rest.decode(errors="replace"))
        loop.call_soon_threadsafe(lines.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()


def _write(line: str) -> None:
    os.write(_OUT, f"{printable(line)}\n".encode())

"""The UCI engine as a process of a test's own, and a policy server that can be told to fail."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import chess
import pytest

from tests.conftest import ROOT

WAIT_S = 240.0


class Uci:
    """Writes lines to the engine and reads its own."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "launcher", "uci", "--seed", "1", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def say(self, *lines: str) -> None:
        assert self.process.stdin
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def until(self, start: str) -> list[str]:
        """The lines up to the first that begins with `start`, which is the last."""
        seen: list[str] = []
        deadline = time.monotonic() + WAIT_S
        while not seen or not seen[-1].startswith(start):
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {start!r}, but {seen}")
            if line is None:
                pytest.fail(f"ended before {start!r}, after {seen}")
            seen.append(line)
        return seen

    def ask(self, *lines: str) -> list[str]:
        """Sends the lines and returns the answer up to `bestmove`."""
        self.say(*lines)
        return self.until("bestmove")

    def is_silent(self) -> bool:
        """Whether nothing came before the answer to `isready`."""
        self.say("isready")
        return self.until("readyok") == ["readyok"]

    def quit(self) -> tuple[list[str], int]:
        """What came after `quit`, and the exit status."""
        self.say("quit")
        status = self.process.wait(WAIT_S)
        rest: list[str] = []
        while (line := self._lines.get(timeout=WAIT_S)) is not None:
            rest.append(line)
        return rest, status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe and pipe.close()


@contextlib.contextmanager
def uci(*flags: str) -> Iterator[Uci]:
    engine = Uci(*flags)
    try:
        yield engine
    finally:
        engine.close()


@dataclass
class Policy:
    """An OpenAI-compatible server that answers with `moves` in turn, then with the first legal move.

    With `hangs` it answers nothing until `wake` is set; with `dead` every request ends without an answer.
    """

    moves: list[str] = field(default_factory=list)
    requests: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hangs: bool = False
    dead: bool = False
    status: int = 200
    hanging: list[object] = field(default_factory=list)
    wake: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def reset(self) -> None:
        """Forgets what it was told, once every request that hangs has ended."""
        self.wake.set()
        while self.hanging:
            time.sleep(0.01)
        self.__init__(url=self.url)  # type: ignore[misc]

    def answer(self, request: dict[str, object]) -> dict[str, object]:
        self.requests.append(request)
        messages = request["messages"]
        assert isinstance(messages, list)
        board = chess.Board(str(messages[-1]["content"]).removeprefix("Position (FEN): "))
        move = self.moves.pop(0) if self.moves else min(move.uci() for move in board.legal_moves)
        message = {"role": "assistant", "content": f"<think>I look.\nI see.</think>\\boxed{{{move}}}"}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


@contextlib.contextmanager
def policy_server() -> Iterator[Policy]:
    policy = Policy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply({"data": [{"id": "m", "owned_by": "somebody"}]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            policy.headers.append(dict(self.headers))
            policy.hanging.append(request)
            try:
                if policy.hangs:
                    policy.wake.wait(WAIT_S)
                if policy.dead:
                    self.close_connection = True
                    return
                self._reply(policy.answer(request))
            finally:
                policy.hanging.pop()

        def _reply(self, body: dict[str, object]) -> None:
            said = body if policy.status == 200 else {"error": f"no: {self.headers['Authorization']}"}
            data = json.dumps(said).encode()
            self.send_response(policy.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    policy.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield policy
    finally:
        policy.wake.set()
        server.shutdown()
        server.server_close()

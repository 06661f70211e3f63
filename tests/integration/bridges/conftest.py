"""A real reward service, questions of `rookery data`, an OpenAI-compatible endpoint with known answers."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import ROOT, TRAINERS
from tests.processes import serving


@pytest.fixture(scope="session")
def reward_url(stockfish_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--grpc-port", "0", "--engines", "1", "--engine-path", stockfish_path)
    with serving("services.reward", *flags, log=tmp_path_factory.mktemp("reward") / "log") as url:
        yield url


@pytest.fixture(autouse=True)
def bridge_environment(reward_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_REWARD_URL", reward_url)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "bridges", ROOT, TRAINERS))))
    monkeypatch.setenv("PATH", f"{TRAINERS / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "path", [*sys.path, str(TRAINERS)])


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight positions, as rook-tiny reads them."""
    path = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    command = [sys.executable, "-m", "chess_datasets", "sample", "--style", "mover-squares", "--count", "8"]
    path.write_bytes(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return path


@pytest.fixture(scope="session")
def puzzles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three puzzles of `samples/`, one line for each move of the solver."""
    folder = tmp_path_factory.mktemp("puzzles")
    command = [
        sys.executable,
        "-m",
        "chess_datasets",
        "tasks",
        "puzzle",
        "--count",
        "3",
        "--jsonl",
        "q.jsonl",
    ]
    command += ["--puzzles", "samples/puzzles.csv", "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder / "q.jsonl"


@pytest.fixture(scope="session")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four `P:` and `A:` lines."""
    folder = tmp_path_factory.mktemp("lines")
    command = [
        sys.executable,
        "-m",
        "chess_datasets",
        "tasks",
        "rookworld",
        "--count",
        "4",
        "--jsonl",
        "q.jsonl",
    ]
    subprocess.run([*command, "--out", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder / "q.jsonl"


@pytest.fixture(scope="session")
def brittleness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An endgame as it is and in changed forms."""
    folder = tmp_path_factory.mktemp("brittleness")
    position = {
        "id": "p",
        "fen": "8/5k2/8/8/3K4/8/4P3/8 w - - 0 60",
        "ply": 118,
        "phase": "endgame",
        "game_id": "g",
    }
    (folder / "heldout.jsonl").write_text(json.dumps(position))
    command = [sys.executable, "-m", "arena", "questions", "--count", "1"]
    command += ["--positions", str(folder / "heldout.jsonl")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (folder / "q.jsonl").write_bytes(done.stdout)
    return folder / "q.jsonl"


class _Endpoint(BaseHTTPRequestHandler):
    """Answers chats, streamed or not, with what `answers` has for the text of the last message."""

    answers: dict[str, str] = {}  # noqa: RUF012

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = asked["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[0]["text"]
        answer = self.answers.get(text, self.answers["default"])
        common = {"id": "1", "created": 0, "model": asked["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        message = {"role": "assistant", "content": answer}
        if asked.get("stream"):
            choice = {"index": 0, "delta": message, "finish_reason": "stop"}
            chunk = common | {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}
            self._send(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", "text/event-stream")
        else:
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            whole = common | {"object": "chat.completion", "choices": [choice], "usage": usage}
            self._send(json.dumps(whole), "application/json")

    def _send(self, text: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the endpoint answers to a prompt; `default` to any other."""
    answers = {"default": "I do not know."}
    monkeypatch.setattr(_Endpoint, "answers", answers)
    return answers


@pytest.fixture
def endpoint_url(answers: dict[str, str]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()

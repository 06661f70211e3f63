"""The service as a process: start-up errors, drain, no orphans, a light import."""

import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest

from rookery.v1 import reward_pb2, reward_pb2_grpc
from tests.waiting import until

FEN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


def children(pid: int) -> list[int]:
    """Living processes whose parent is `pid`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rsplit(") ", 1)[1].split()[:2]
        except OSError:
            continue
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.stockfish
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("over", ["http", "grpc"])
def test_a_stopping_service_answers_what_it_has_begun(
    start_service, over: str, number: signal.Signals
) -> None:
    service = start_service("--nodes", "400000")
    (engine,) = children(service.process.pid)
    request = {"fen": FEN, "response": r"\boxed{a3}"}
    with ThreadPoolExecutor() as threads, grpc.insecure_channel(service.grpc_target) as channel:
        if over == "grpc":
            stub = reward_pb2_grpc.RewardServiceStub(channel)
            called = stub.Score.future(reward_pb2.ScoreRequest(**request), timeout=60)
        else:
            answer = threads.submit(httpx.post, f"{service.url}/v1/score", json=request, timeout=60)
        until(lambda: "rookery_reward_engines_busy 1.0" in httpx.get(f"{service.url}/metrics").text)
        service.process.send_signal(number)
        if over == "grpc":
            assert called.result().verdict.move.san == "a3"
        else:
            assert answer.result().json()["outcome"] == "legal"
    service.process.wait(timeout=120)  # a second signal at its very end would decide its exit status
    status, log = service.stop()
    assert status == 0, log
    assert "Traceback" not in log
    assert not Path(f"/proc/{engine}").exists()


@pytest.mark.stockfish
@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_taken_port_is_named(stockfish_path: str, flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = {"--port": "0", "--grpc-port": "0", flag: str(taken.getsockname()[1])}
        done = serve(*(word for pair in ports.items() for word in pair), "--engine-path", stockfish_path)
    assert done.returncode == 2
    assert f"{ports[flag]} on 127.0.0.1 is taken: choose another with {flag}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--engine-path", "/nowhere/stockfish"], "REWARD_ENGINE_PATH"),
        (["--nodes", "none"], "nodes"),
        (["--scheme", "gold"], "scheme"),
        (["--redis-url", "http://me:secret@nowhere"], "redis_url: not a Redis URL"),
        (["--redis-url", "redis://me:secret@nowhere?tls=1"], "unexpected keyword argument 'tls'"),
    ],
)
def test_wrong_settings_are_named(flags: list[str], why: str) -> None:
    done = serve(*flags)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_the_import_and_the_help_are_light() -> None:
    code = (
        "import sys, contextlib, io; import services.reward; from services.reward.__main__ import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): main(['--help'])\n"
        "print(sorted({'fastapi', 'grpc', 'torch', 'chess', 'uvicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def serve(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.reward", *flags], capture_output=True, text=True, timeout=60
    )

"""The server's process before it becomes vLLM, and the end of a process that it starts."""

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT
from tests.waiting import until

HANGS_WHEN_IT_ENDS = """
import multiprocessing, os, signal, sys, time
from services.inference.server import start

class Hanging:
    def __del__(self, sleep=time.sleep):
        sleep(1000)

def engine():
    global hanging
    hanging = Hanging()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as vLLM's
    start.GRACE_S = 1
    start.end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(1000)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=engine).start()
"""


def test_an_engine_that_hangs_in_the_end_of_its_interpreter_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(HANGS_WHEN_IT_ENDS)
    with subprocess.Popen([sys.executable, script], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        engine = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    try:
        until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, within_s=60)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            engine.kill()


@pytest.mark.vllm
def test_a_taken_port_names_its_setting(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 384}))
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        command = [sys.executable, "-m", "services.inference.server", "--model", str(tmp_path)]
        done = subprocess.run(
            [*command, "--host", "127.0.0.1", "--port", port], capture_output=True, text=True, check=False
        )

    assert done.returncode == 2
    assert f"port {port} on 127.0.0.1 is taken: choose another with --port" in done.stderr

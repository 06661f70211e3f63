"""The server's process before it becomes vLLM."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm


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

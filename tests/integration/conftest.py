"""An S3 to talk to (moto's server, a process that speaks the real protocol), and names of hosts."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import s3fs

from rookery import replicas
from tests.conftest import free_port
from tests.waiting import wait_for

START_S = 240.0


@pytest.fixture(scope="session")
def _s3_endpoint() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    wait_for(url, process, within_s=START_S)
    yield url
    process.kill()
    process.wait()


@pytest.fixture
def s3_environment(_s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a process is told to find that S3; this one is told already."""
    told = {
        "AWS_ENDPOINT_URL": _s3_endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # it remembers where S3 was
    return {**os.environ, **told}


@pytest.fixture
def bucket(s3_environment: dict[str, str]) -> str:
    """The URL of an empty bucket."""
    name = f"rookery-{time.monotonic_ns()}"
    httpx.put(f"{s3_environment['AWS_ENDPOINT_URL']}/{name}").raise_for_status()
    return f"s3://{name}"


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses of names that end in `.test`, to change at any time, like lines of /etc/hosts."""
    table: dict[str, list[str]] = {}
    look_up = socket.getaddrinfo

    def looked_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if not str(host).endswith(".test"):
            return look_up(host, port, *args, **kwargs)
        if not table.get(host):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [found for address in table[host] for found in look_up(address, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(replicas, "RESOLVE_S", 0.1)
    return table

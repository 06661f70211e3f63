"""Runs the curl commands of a document without curl, which a bare machine may not have."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import httpx

_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def curls(document: Path) -> list[str]:
    """The curl commands of a document's shell blocks, one block each."""
    return [block for block in _BLOCK.findall(document.read_text()) if block.startswith("curl ")]


def run_curl(command: str, moved: Mapping[str, str]) -> httpx.Response:
    """The answer to a curl command of `-s`, `-H`, `-d` and an address; `moved` replaces addresses."""
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    address, headers, body = "", {}, None
    rest = iter(words[1:])
    for word in rest:
        if word == "-H":
            name, value = next(rest).split(": ", 1)
            headers[name] = value
        elif word == "-d":
            body = next(rest)
        elif word != "-s":
            address = word
    for old, new in moved.items():
        address = address.replace(old, new)
    method = "GET" if body is None else "POST"
    return httpx.request(method, address, headers=headers, content=body, timeout=60.0)

"""A keep-alive HTTP/1.1 connection that sends bytes made beforehand: a tenth of what httpx costs."""

import asyncio
import json
import re
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
LIMIT_BYTES = 1 << 20


def encode_post(host: str, path: str, body: object) -> bytes:
    """The whole request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


class Connection:
    """One request at a time to `host`, which is `address:port`."""

    def __init__(self, host: str) -> None:
        self._address, _, self._port = host.partition(":")

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            self._address, int(self._port), limit=LIMIT_BYTES
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def exchange(self, request: bytes) -> bytes:
        """The body of the reply.

        Raises:
            RuntimeError: the reply is no 200.
        """
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{head.splitlines()[0].decode()}: {body[:500].decode()}")
        return body

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from rookery.errors import SetupError
from rookery.http_pool import HttpPool


class Server:
    """Answers each request after a moment, and counts the connections it was asked over."""

    def __init__(self) -> None:
        self.connections = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            await asyncio.sleep(0.05)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[HttpPool]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        pool = HttpPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout_s=10.0)
        yield pool
        await pool.aclose()
        server.close()
        await server.wait_closed()


async def test_one_after_the_other_shares_a_connection() -> None:
    server = Server()
    async with server.pool() as pool:
        for _ in range(3):
            assert (await pool.request("GET", "/")).text == "ok"
    assert server.connections == 1


async def test_requests_at_once_do_not_wait_for_each_other() -> None:
    server = Server()
    async with server.pool() as pool:
        for _ in range(2):
            await asyncio.gather(*(pool.request("GET", "/") for _ in range(20)))
    assert server.connections == 20


async def test_a_failed_request_leaves_its_lane_usable() -> None:
    server = Server()
    async with server.pool() as pool:
        with pytest.raises(httpx.TimeoutException):
            await pool.request("GET", "/", timeout=0.01)
        assert (await pool.request("GET", "/")).text == "ok"


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "http://", "http:/h", " http://h", "http://h:port", "http://h:65536", "http://h:-1",
     "http://[::1", "http://h\x00"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_before_it_is_asked(url: str) -> None:
    with pytest.raises(SetupError) as caught:
        HttpPool(url, timeout_s=1.0)
    assert str(caught.value) == f"{url!r}: not a URL such as http://HOST:PORT"
    with pytest.raises(SetupError, match=r"'http://a:\*\*\*@h:x'"):
        HttpPool("http://a:secret@h:x", timeout_s=1.0)

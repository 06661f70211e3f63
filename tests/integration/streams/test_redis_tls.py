"""Redis over TLS: what ends the TLS before the real Redis is a proxy, as in front of many a hosted one."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rookery.access import Access
from rookery.errors import Unavailable
from rookery.streams import RunStreams
from tests.certificates import Authority

pytestmark = pytest.mark.redis


@asynccontextmanager
async def tls_before(redis_url: str, access: Access) -> AsyncIterator[int]:
    """The port of a proxy that demands a certificate of the authority, and shows one."""
    place = urlsplit(redis_url)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(place.hostname, place.port)
        await asyncio.gather(pipe(reader, back), pipe(there, writer), return_exceptions=True)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(access.ca))
    context.load_cert_chain(str(access.cert), str(access.key))
    context.verify_mode = ssl.CERT_REQUIRED
    async with await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_run_is_reached_over_tls_with_a_certificate_alone(redis_url: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    member = authority.sign("trainer")
    async with tls_before(redis_url, authority.sign("redis")) as port:
        ours = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={member.ca}"
        streams = RunStreams(f"{ours}&ssl_certfile={member.cert}&ssl_keyfile={member.key}", "test")
        first = await asyncio.to_thread(streams.take_over)
        assert await asyncio.to_thread(streams.take_over) > first
        streams.close()
        for url in (ours, f"rediss://127.0.0.1:{port}/0", f"redis://127.0.0.1:{port}/0"):
            stranger = RunStreams(url, "test")
            with pytest.raises(Unavailable):
                await asyncio.to_thread(stranger.redis.ping, once=True)
            stranger.close()

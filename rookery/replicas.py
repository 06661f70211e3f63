"""Resolves `http://gpu-a:8000,dns:///inference:8000` to servers, and follows changes of their addresses."""

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator

from rookery.masking import mask_setting
from rookery.settings import check_http_url

logger = logging.getLogger(__name__)

RESOLVE_S = 5.0
"""Pause between two look-ups of a name. Kubernetes' DNS lets answers be kept for as long."""
TIMEOUT_S = 3.0

_DNS = "dns:///"
_NAME = re.compile(r"dns:///(?P<host>[^:/\[\]]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})")


def split_urls(urls: str) -> tuple[str, ...]:
    """The URLs of a setting, which commas separate. Raises `ValueError` if one is neither `http://...`,
    `https://...` nor `dns:///NAME:PORT`."""
    parts = tuple(url.strip() for url in urls.split(",") if url.strip())
    for url in parts:
        try:
            _NAME.fullmatch(url) or check_http_url(url)
        except ValueError as error:
            raise ValueError(f"{mask_setting(url)!r}: {error} or dns:///NAME:PORT") from None
    return parts


async def follow(urls: str) -> AsyncIterator[tuple[str, ...]]:
    """Yields the URLs of all servers: now, and again whenever they change.

    A name stands for all its addresses. One that cannot be looked up keeps the addresses it had, so that an
    outage of the DNS stops nothing.
    """
    names = split_urls(urls)
    addresses: dict[str, tuple[str, ...]] = {}
    before = None
    while True:
        for name in names:
            addresses[name] = await _addresses(name, addresses.get(name, ()))
        now = tuple(dict.fromkeys(url for name in names for url in addresses[name]))
        if now != before:
            before = now
            yield now
        if not any(name.startswith(_DNS) for name in names):
            return
        await asyncio.sleep(RESOLVE_S)


async def _addresses(url: str, before: tuple[str, ...]) -> tuple[str, ...]:
    match = _NAME.fullmatch(url)
    if match is None:
        return (url,)
    host, port = match["host"].strip("[]"), int(match["port"])
    try:
        async with asyncio.timeout(TIMEOUT_S):
            infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        logger.warning("%s cannot be looked up, and stays %s: %s", url, ", ".join(before) or "empty", error)
        return before
    hosts = sorted({str(address[0]) for *_, address in infos})
    return tuple(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host in hosts)

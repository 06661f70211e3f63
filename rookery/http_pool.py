"""An HTTP client of one server with a connection for each concurrent request.

Each connection is an httpx client of its own. httpx's own pool scans all its connections for every
request: with 64 concurrent requests this took three quarters of a rollouts process's CPU time.
"""

import asyncio
from typing import Any

import httpx

from rookery.access import OPEN, Access
from rookery.errors import QUOTED_CHARS, SetupError
from rookery.masking import mask_setting
from rookery.settings import check_http_url


class HttpPool:
    """Connections to the server at `url`, opened on demand and kept for later requests."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        access: Access = OPEN,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises `SetupError` if `url` cannot be one."""
        try:
            check_http_url(url)
        except ValueError as error:
            raise SetupError(f"{mask_setting(url)[:QUOTED_CHARS]!r}: {error}") from None
        self._transport = transport
        self._headers = access.headers
        self._url, self._timeout = url, httpx.Timeout(timeout_s, connect=5.0)
        self._tls = access.client_tls()
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """As `httpx.AsyncClient.request`."""
        client = self._idle.pop() if self._idle else self._open()
        try:
            return await client.request(method, path, **options)
        finally:
            self._idle.append(client)

    def _open(self) -> httpx.AsyncClient:
        # uvicorn closes idle connections after 5 s: ours close earlier, and no request meets a closed one.
        limits = httpx.Limits(max_connections=1, keepalive_expiry=4.0)
        client = httpx.AsyncClient(
            base_url=self._url,
            headers=self._headers,
            timeout=self._timeout,
            limits=limits,
            verify=self._tls,
            transport=self._transport,
        )
        self._clients.append(client)
        return client

    async def aclose(self) -> None:
        await asyncio.gather(*(client.aclose() for client in self._clients))

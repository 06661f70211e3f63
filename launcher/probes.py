"""Asks a service once whether it is ready: HTTP for Rookery's services, PING for Redis."""

import socket
from urllib.parse import urlsplit

import httpx

TIMEOUT_S = 2.0


def probe(url: str, http: httpx.Client) -> str | None:
    """None if the service is ready, else the reason why it is not."""
    return probe_redis(url) if url.startswith("redis://") else _http(url, http)


def _http(url: str, http: httpx.Client) -> str | None:
    try:
        response = http.get(url, timeout=TIMEOUT_S)
        if response.is_success:
            return None
        return str(response.json().get("reason") or response.status_code)
    except httpx.ConnectError:
        return "not listening yet"
    except (httpx.HTTPError, ValueError) as error:
        return f"{type(error).__name__} {error}".strip()


def probe_redis(url: str) -> str | None:
    """None if Redis answers, else the reason. Unlike `rookery.streams`, this does not wait for Redis."""
    address = urlsplit(url)
    place = (address.hostname or "127.0.0.1", address.port or 6379)
    try:
        with socket.create_connection(place, timeout=TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError as error:
        return str(error)
    # NOAUTH: Redis runs but requires a password, which the services have.
    return None if answer.startswith((b"+PONG", b"-NOAUTH")) else answer.decode(errors="replace").strip()

"""Asks a service once whether it is ready."""

import httpx

from rookery.errors import cause_message

TIMEOUT_S = 2.0


def probe(url: str, http: httpx.Client) -> str | None:
    """None if the service is ready, else the reason why it is not."""
    try:
        response = http.get(url, timeout=TIMEOUT_S)
        if response.is_success:
            return None
        return str(response.json().get("reason") or response.status_code)
    except httpx.ConnectError:
        return "not listening yet"
    except (httpx.HTTPError, ValueError) as error:
        return cause_message(error)

"""The exceptions that Rookery raises on purpose, each with its HTTP status and log level.

A bad completion is data (an `Outcome` in a `Verdict`), never an exception.

* RookeryError                500, ERROR
  x InvalidInput              422, WARNING   the caller's FEN, PGN, adapter or request
    x Quarantined             422, ERROR     engines died on this position: do not retry
    x ContextExceeded         422, WARNING   a prompt leaves no room for an answer in the model's context
  x Unauthorized              401, WARNING   a call without the token
  x ForeignHost               400, WARNING   a call by another name, of a service on loopback without a token
  x NotFound                  404, WARNING
  x Conflict                  409, WARNING   the same policy version with other bytes, or an older version
  x Unavailable               503, WARNING   overloaded or stopping: retry later; never a reward
    x EngineFault             503, ERROR
    x PeerFault               503, ERROR
  x SetupError                500, CRITICAL  the process cannot start: a port taken, no Stockfish
  x WireError                 500, ERROR     a stream entry that does not decode
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from rookery.masking import mask_text, printable

QUOTED_CHARS = 200
"""The most characters of a value from outside that an error or the log quotes."""
MESSAGE_CHARS = 10_000
"""The longest message of an error, whatever it quotes."""


class RookeryError(Exception):
    """Base of all: carries its HTTP status, gRPC code name and log level once, for every transport. As text,
    it is cut at `MESSAGE_CHARS`, the passwords of URLs are masked, and control characters escaped."""

    http_status: ClassVar[int] = 500
    grpc_code: ClassVar[str] = "INTERNAL"
    log_level: ClassVar[int] = logging.ERROR
    title: ClassVar[str] = "Internal fault"

    retry_after_s: float | None = None

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > 10 * MESSAGE_CHARS:  # masks take time
            text = text[: 10 * MESSAGE_CHARS]
            word = (text.split() or [""])[-1]
            url = len(text) - len(word) + word.find("://") if text.endswith(word) and "://" in word else None
            text = text[:url]  # a mask would not know the beginning of a password
        message = printable(mask_text(text))  # before the cut, which could be in a password
        return message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}..."

    @property
    def kind(self) -> str:
        """The problem type, as in `urn:rookery:problem:invalid-input`."""
        name = type(self).__name__
        return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


class InvalidInput(RookeryError):
    """The caller's mistake; the message quotes the value."""

    http_status = 422
    grpc_code = "INVALID_ARGUMENT"
    log_level = logging.WARNING
    title = "Invalid input"


class Quarantined(InvalidInput):
    """Two engines died on this position. It is refused so that it does not kill more."""

    log_level = logging.ERROR
    title = "Quarantined position"


class ContextExceeded(InvalidInput):
    """The prompt leaves no room for an answer in the model's context; the message has the sizes."""

    title = "Context exceeded"


class Unauthorized(RookeryError):
    """A call without the token of the service, or with a wrong one."""

    http_status = 401
    grpc_code = "UNAUTHENTICATED"
    log_level = logging.WARNING
    title = "Unauthorized"

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call[:QUOTED_CHARS]} needs the token of this service: Authorization: Bearer TOKEN"
        )


class ForeignHost(RookeryError):
    """A call that names another host than this machine, of a service that only this machine may call."""

    http_status = 400
    log_level = logging.WARNING
    title = "Foreign host"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"host {host!r}: without a token, a service on loopback answers only to localhost and 127.0.0.1 "
            "(set ROOKERY_TOKEN or --token-file)"
        )


class NotFound(RookeryError):
    """The named thing does not exist."""

    http_status = 404
    grpc_code = "NOT_FOUND"
    log_level = logging.WARNING
    title = "Not found"


class Conflict(RookeryError):
    """The request contradicts what is already served."""

    http_status = 409
    grpc_code = "FAILED_PRECONDITION"
    log_level = logging.WARNING
    title = "Conflict"


class Unavailable(RookeryError):
    """This process is overloaded or stopping, or a service it needs is down. Retry later."""

    http_status = 503
    grpc_code = "UNAVAILABLE"
    log_level = logging.WARNING
    title = "Unavailable"

    retry_after_s = 1.0


class EngineFault(Unavailable):
    """Stockfish died, hung or answered nonsense."""

    log_level = logging.ERROR
    title = "Engine fault"


class PeerFault(Unavailable):
    """Another service did not answer, or answered with a fault of its own."""

    log_level = logging.ERROR
    title = "Peer fault"


class SetupError(RookeryError):
    """The process cannot start; the message says what to change."""

    log_level = logging.CRITICAL
    title = "Set-up error"


class WireError(RookeryError):
    """Bytes that do not decode to the expected record."""

    title = "Wire error"


def problem(error: RookeryError) -> dict[str, object]:
    """The RFC 9457 document of an error."""
    return {
        "type": f"urn:rookery:problem:{error.kind}",
        "title": error.title,
        "status": error.http_status,
        "detail": str(error),
    }


def cause_message(error: BaseException) -> str:
    """The type of `error`, and what the first exception of its chain says.

    httpx says "All connection attempts failed" where the operating system gave the reason. It suppresses that
    error as it does others, so of suppressed errors only those of the system count.
    """
    first = error
    while earlier := first.__cause__ or first.__context__:
        if first.__cause__ is None and first.__suppress_context__ and not isinstance(earlier, OSError):
            break
        first = earlier.exceptions[0] if isinstance(earlier, BaseExceptionGroup) else earlier
    return f"{type(error).__name__} {str(first) or error}".strip()


def free_frames(*errors: object) -> None:
    """Drops the tracebacks of those that are exceptions, and of their causes. Variables of their frames hold
    an error and the request, which would otherwise stay in memory until the garbage collector runs."""
    for error in errors:
        while isinstance(error, BaseException):
            error.__traceback__ = None
            error = error.__cause__ or error.__context__


def changed_settings(stored: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Which settings differ, by name; empty if none does.

    >>> changed_settings({"seed": 0, "count": 9}, {"seed": 1, "count": 9})
    'seed was 0, is 1'
    """
    return "; ".join(
        f"{name} was {stored.get(name)!r}, is {current.get(name)!r}"
        for name in sorted({*stored, *current})
        if stored.get(name) != current.get(name)
    )


def validation_message(
    errors: Sequence[Mapping[str, Any]],
    *,
    root: str = "",
    quote: Callable[[Any], str] = lambda value: repr(str(value)[:QUOTED_CHARS]),
    places: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Returns pydantic's `errors()` as one line: place, message and value of each.

    `root` is the place of an error that concerns the whole. If it is empty, such an error is its message.
    `places` says where the values of fields were found.

    >>> error = {"loc": ("port",), "msg": "Value error, too large", "input": 70000}
    >>> validation_message([error], places={"port": "DATA_PORT in the environment"})
    "port: too large (got '70000'; DATA_PORT in the environment)"
    """
    parts = []
    for error in errors:
        place = ".".join(str(part)[:QUOTED_CHARS] for part in error["loc"]) or root
        message = error["msg"].removeprefix("Value error, ")  # pydantic's prefix
        named = error["loc"][:1] if place else dict.fromkeys(re.findall(r"\w+", message))
        notes = [f"got {quote(error['input'])}"] if place and "input" in error else []
        notes += [places[name] for name in named if name in places]
        message = f"{place}: {message}" if place else message
        parts.append(f"{message} ({'; '.join(notes)})" if notes else message)
    return "; ".join(parts)

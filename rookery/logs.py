"""Logging set-up: JSON lines in containers, short text in a terminal. Passwords of URLs are masked.

Text also has no raw control characters.
"""

import faulthandler
import json
import logging
import os
import signal
import sys
import time

from google.protobuf.message import DecodeError

from rookery.errors import SetupError
from rookery.masking import mask_setting, mask_text, printable

_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line, `extra` fields included."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "event": mask_text(record.getMessage()),
        }
        for name, value in record.__dict__.items():
            if name not in _STANDARD and not name.startswith("_"):  # Ray's own fields begin with `_`
                entry[name] = mask_setting(value)
        if record.exc_info:
            entry["exception"] = mask_text(self.formatException(record.exc_info))
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """One line for each record, and the lines of its exception."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(mask_text(super().format(record)))


def shorten_decode_error(record: logging.LogRecord) -> bool:
    """A filter: a gRPC message that does not decode leaves no traceback, or any caller could fill the log."""
    error = record.exc_info[1] if record.exc_info else None
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, DecodeError):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args, record.exc_info = f"a gRPC message does not decode: {error}", (), None
    return True


def configure(service: str, *, level: str = "INFO") -> None:
    """Logs to stderr: text in a terminal, JSON elsewhere; `ROOKERY_LOGS=json|text` overrides this.

    On SIGUSR1, the process writes the stacks of its threads there. Raises `SetupError` if ROOKERY_LOG_LEVEL
    is no level, or ROOKERY_LOGS is neither.
    """
    level = os.environ.get("ROOKERY_LOG_LEVEL") or level
    if level not in logging.getLevelNamesMapping():
        names = ", ".join(logging.getLevelNamesMapping())
        raise SetupError(f"ROOKERY_LOG_LEVEL={level!r}: choose from {names}")
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or sys.stderr)
    choice = os.environ.get("ROOKERY_LOGS") or ("text" if sys.stderr.isatty() else "json")
    if choice not in ("json", "text"):
        raise SetupError(f"ROOKERY_LOGS={choice!r}: choose json or text")
    handler = logging.StreamHandler()
    if choice == "json":
        handler.setFormatter(JsonFormatter(service))
    else:
        handler.setFormatter(
            TextFormatter(f"%(asctime)s {service:<9} %(levelname)-7s %(message)s", "%H:%M:%S")
        )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("grpc._cython.cygrpc").addFilter(shorten_decode_error)
    for noisy in ("httpx", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    # Whoever imports peft is told to install kernels for products in 4 bits, which hardly anyone computes.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

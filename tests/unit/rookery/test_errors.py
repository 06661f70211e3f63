"""Every fault says once, for all transports, how bad it is."""

import json
import logging
import time

import grpc
import pytest

import rookery.errors
from rookery.errors import (
    Conflict,
    EngineFault,
    InvalidInput,
    NotFound,
    PeerFault,
    RookeryError,
    SetupError,
    Unavailable,
    WireError,
    cause_message,
)

ALL = [
    value
    for value in vars(rookery.errors).values()
    if isinstance(value, type) and issubclass(value, RookeryError)
]


@pytest.mark.parametrize(
    ("error", "status", "code", "level", "kind"),
    [
        (RookeryError, 500, "INTERNAL", logging.ERROR, "rookery-error"),
        (InvalidInput, 422, "INVALID_ARGUMENT", logging.WARNING, "invalid-input"),
        (NotFound, 404, "NOT_FOUND", logging.WARNING, "not-found"),
        (Conflict, 409, "FAILED_PRECONDITION", logging.WARNING, "conflict"),
        (Unavailable, 503, "UNAVAILABLE", logging.WARNING, "unavailable"),
        (EngineFault, 503, "UNAVAILABLE", logging.ERROR, "engine-fault"),
        (PeerFault, 503, "UNAVAILABLE", logging.ERROR, "peer-fault"),
        (SetupError, 500, "INTERNAL", logging.CRITICAL, "setup-error"),
        (WireError, 500, "INTERNAL", logging.ERROR, "wire-error"),
    ],
)
def test_status_code_level_and_kind(
    error: type[RookeryError], status: int, code: str, level: int, kind: str
) -> None:
    raised = error("what happened")
    assert (raised.http_status, raised.grpc_code, raised.log_level) == (status, code, level)
    assert raised.kind == kind
    assert str(raised) == "what happened"


@pytest.mark.parametrize("error", ALL)
def test_a_message_is_short_whatever_it_quotes(error: type[RookeryError]) -> None:
    assert len(str(error("a" * 1_000_000))) < 20_000
    assert str(error(f"{'a' * 9_990} redis://:secret@h")).count("secret") == 0
    masked = f"://:{'p' * 99_900}@h redis://user:secret"  # so that what follows is not cut
    assert "secret" not in str(error(f"{masked}{'Z' * 100}://@host"))


def test_a_message_of_100_megabytes_takes_no_time() -> None:
    error = InvalidInput("://:secret@h?token=a " * 5_000_000)
    started = time.thread_time()
    assert "secret" not in str(error)
    assert time.thread_time() - started < 0.1


@pytest.mark.parametrize("error", ALL)
def test_every_code_is_one_of_grpc(error: type[RookeryError]) -> None:
    assert error.grpc_code in grpc.StatusCode.__members__


@pytest.mark.parametrize("error", ALL)
def test_only_what_may_pass_asks_for_a_retry(error: type[RookeryError]) -> None:
    assert (error("").retry_after_s is not None) == issubclass(error, Unavailable)


@pytest.mark.parametrize("error", ALL)
def test_the_tree_in_the_docstring_names_every_error(error: type[RookeryError]) -> None:
    line = next(row for row in str(rookery.errors.__doc__).splitlines() if error.__name__ in row.split())
    assert str(error.http_status) in line or issubclass(error, Unavailable)


def test_cause_message_tells_the_first_error_of_the_chain() -> None:
    try:
        try:
            raise ConnectionRefusedError(111, "Connection refused")
        except OSError as error:
            raise RuntimeError("All connection attempts failed") from error
    except RuntimeError as error:
        assert cause_message(error) == "RuntimeError [Errno 111] Connection refused"


def test_cause_message_leaves_out_what_was_suppressed() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("<html>")  # raised `from None`, out of a StopIteration
    assert cause_message(caught.value) == "JSONDecodeError Expecting value: line 1 column 1 (char 0)"

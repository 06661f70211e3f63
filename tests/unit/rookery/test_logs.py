"""Log lines: one JSON object each, or short text; the environment decides."""

import json
import logging
from collections.abc import Iterator

import pytest

from rookery.errors import SetupError
from rookery.logs import JsonFormatter, configure


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_json_carries_the_message_and_the_extras() -> None:
    record = logging.getLogger("a.b").makeRecord(
        "a.b", logging.WARNING, "f", 1, "lost %s", ("g1",), None, extra={"group": "g1", "version": 7}
    )
    entry = json.loads(JsonFormatter("trainer").format(record))
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "WARNING",
        "service": "trainer",
        "logger": "a.b",
        "event": "lost g1",
        "group": "g1",
        "version": 7,
    }


def test_json_carries_the_exception() -> None:
    try:
        raise ValueError("bad yeast")
    except ValueError as error:
        record = logging.LogRecord(
            "a", logging.ERROR, "f", 1, "baking failed", (), (ValueError, error, error.__traceback__)
        )
    assert "ValueError: bad yeast" in json.loads(JsonFormatter("x").format(record))["exception"]


@pytest.mark.parametrize(
    ("name", "value", "choices"),
    [("ROOKERY_LOG_LEVEL", "loud", "from CRITICAL, "), ("ROOKERY_LOGS", "xml", "json or text")],
)
def test_a_wrong_choice_is_quoted(
    name: str, value: str, choices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=f"{name}='{value}': choose {choices}"):
        configure("data")


@pytest.mark.parametrize(("choice", "start"), [("json", '{"time": '), ("text", "")])
def test_the_environment_decides(
    choice: str, start: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOKERY_LOGS", choice)
    monkeypatch.setenv("ROOKERY_LOG_LEVEL", "WARNING")
    configure("data")
    logging.getLogger("x").info("hidden")
    logging.getLogger("x").warning("shown")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)
    assert "data" in line and "shown" in line

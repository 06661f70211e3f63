"""No password of a URL passes, whatever it is made of and however wrong the URL."""

import json
import logging
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rookery.errors import PeerFault, RookeryError, problem
from rookery.logs import JsonFormatter, TextFormatter
from rookery.masking import mask_setting, mask_text, mask_values
from rookery.settings import RunSettings

PLACES = (
    "redis://:{}@h:6379/0",
    "rediss://user:{}@h/0?ssl_cert_reqs=none",
    "redis://h:6379/0?password={}",
    "redis://h/0?db=1&password={}&client_name=me@home",
    "unix://user:{}@/run/redis.sock?db=0",
    "unix:///run/redis.sock?PassWord={}",
    "http://user:{}@a:8000/v1?x=1,http://user:{}@b:8000",
    "s3://KEY:{}@bucket/games.pgn",
    "https://store/games.pgn?X-Amz-Credential=A&X-Amz-Signature={}",
    "https://store/games.pgn?pass%77ord={}",
)
WORDS = st.text(st.characters(exclude_categories=["Z", "Cc", "Cs"]), min_size=1)
AWKWARD = ("p@ss", "a/b", "/@", "?", "#", "a?token=b", "a@b?token=c", "%2F", "a:b", "://", "=", "'")


@given(place=st.sampled_from(PLACES), first=WORDS, second=WORDS)
@example(place=PLACES[0], first="a@b?token=c", second="d")
@example(place=PLACES[2], first="p@ss", second="secret")
@example(place=PLACES[3], first="p@s:s&x", second="secret")
def test_what_is_shown_does_not_depend_on_the_password(place: str, first: str, second: str) -> None:
    def shown(password: str) -> tuple[str, str]:
        url = place.replace("{}", quote(password, safe=""))
        return mask_setting(url), mask_text(f"cannot reach {url} now")

    assert shown(first) == shown(second)


@given(
    place=st.sampled_from(PLACES),
    parts=st.lists(st.one_of(st.sampled_from(AWKWARD), WORDS), min_size=1),
    secret=st.uuids().map(lambda uuid: uuid.hex),
    where=st.integers(0, 9),
)
def test_no_raw_password_passes(place: str, parts: list[str], secret: str, where: int) -> None:
    """As people write it: `/`, `?`, `@` and all, so that the URL may be none. An & begins a parameter."""
    assume(not any("&" in part for part in parts))
    parts.insert(where % (len(parts) + 1), secret)
    url = place.replace("{}", "".join(parts))
    for shown in (mask_setting(url), mask_text(f"cannot reach {url!r}"), mask_text(f"x={url}")):
        assert secret not in shown


@pytest.mark.parametrize("password", ["my pass", "two\nlines", "tab\there"])
def test_a_setting_is_masked_to_its_end(password: str) -> None:
    assert mask_setting(f"redis://:{password}@h/0") == "redis://:***@h/0"
    assert mask_setting([f"reward.redis_url=redis://u:{password}@h/0"]) == [
        "reward.redis_url=redis://u:***@h/0"
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user@h/0", "redis://user@h/0"),
        ("redis://h/0?password=secret", "redis://h/0?password=***"),
        ("redis://user:p@ss@h/0", "redis://user:***@h/0"),
        ("redis://:pa/ss@h:6379/0", "redis://:***@h:6379/0"),
        ("unix://u:p@/s.sock?db=1", "unix://u:***@/s.sock?db=1"),
        ("s3://bucket/a@b/games.pgn", "s3://bucket/a@b/games.pgn"),
        ("policy@home, 5:3", "policy@home, 5:3"),
    ],
)
def test_the_rest_stays_readable(url: str, shown: str) -> None:
    assert mask_setting(url) == mask_text(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        '{"token": "a SECRET"}',
        r'"{\"api_key\": \"SECRET\"}"',
        "ROOKERY_TOKEN=SECRET",
        "password: 'SECRET'",
        "token='a SECRET without its end",
        "token=" + "\\" * 60 + "'SECRET",
    ],
)
def test_values_are_masked_by_their_keys(text: str) -> None:
    assert "SECRET" not in mask_values(text)


def test_a_value_of_backslashes_is_masked_at_once() -> None:
    assert mask_values("token='" + "\\" * 60 + "\nnext") == "token='***\nnext"


def test_errors_and_logs_are_masked() -> None:
    error = PeerFault("POST http://me:secret@a:8000/reload: 503")
    record = logging.LogRecord("x", 30, "f", 1, "no %s", ("redis://:secret@h/0",), (PeerFault, error, None))
    record.url = "redis://h?password=secret"
    lines = (
        str(error),
        str(problem(error)),
        JsonFormatter("x").format(record),
        TextFormatter().format(record),
    )
    for line in lines:
        assert "secret" not in line
        assert "***" in line
    assert json.loads(lines[2])["url"] == "redis://h?password=***"


@pytest.mark.parametrize(
    "url",
    [
        "redis://:se/cret@h/0",
        "redis://u:12/secret@h",
        "redis://:se#cret@h/0",
        "http://u:secret@h",
        "redis://:secret\u2100@h",
    ],
)
def test_a_url_that_would_be_misread_is_refused_unseen(url: str) -> None:
    with pytest.raises(RookeryError, match="redis_url: not a Redis URL") as caught:
        RunSettings.parse(["--redis-url", url], prog="p")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("value", [r"ab\cdef", r"\abc", r"a\b\c"])
def test_a_backslash_ends_no_value(value: str) -> None:
    assert mask_values(f"password={value} next") == "password=*** next"

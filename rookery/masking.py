"""Masks passwords and tokens before they reach a log, a file, the terminal or another process.

The texts come from outside, so every pattern takes time linear in the length of the text, whatever is in it.
Also escapes the characters by which a text of others would steer a terminal.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

_IN_TEXT = re.compile(r"://\S+")
_AS_VALUE = re.compile("://.+", re.DOTALL)
_PARAMETER = re.compile(r"([?&;]([^=&]*+)=)((?:(?!&[\w.%-]+=).)*+)|[?&;][^=&]*+", re.DOTALL)
"""One parameter of a query. Its value ends where the next parameter begins, not at any & or #.

What has no `=` is matched too, so that it is read only once.
"""
_SECRET = re.compile(r"pass|pwd|secret|token|credential|signature|\bsig\b|auth|api.?key|access.?key", re.I)

_KEY = (
    r"(?:[\w-]*[_-])?(?:pass(?:word|phrase|wd)?|pwd|secret|token|credentials?"
    r"|(?:api|access|secret|private)[_-]?key(?:[_-]id)?)"
)
_HEADER = re.compile(r"\b(Bearer\s+)[^\s\"',;]+", re.I)
_ASSIGNED = re.compile(
    rf"""((?<![\w-]){_KEY}\\*+["']?\s*+[=:]\s*+)"""
    r"""(?:(\\{0,15}["'])(?:(?!\2)(?:\\.|[^\\\n]))++|\\{16}\S*+|(?:[^\s"',;}\]\\]|\\(?!["']))++)""",
    re.I,
)
"""A quoted value, with its escapes, ends at the same quotation mark or with the line."""

_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""The control characters but tab and line feed, what changes the direction of a text, and halves of pairs."""


def printable(text: str) -> str:
    r"""A text of others as a terminal may show it: control characters are escaped as in JSON.

    >>> print(printable("\x1b[2Jgone \u202efen"))
    \u001b[2Jgone \u202efen
    """
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def mask_values(text: str) -> str:
    """Masks passwords and tokens in settings and logs, by their keys or as HTTP headers have them.

    >>> mask_values('token = "a b"; Authorization: Bearer abc; http://h/#token=abc; max_tokens = 9')
    'token = "***"; Authorization: Bearer ***; http://h/#token=***; max_tokens = 9'
    """
    text = _HEADER.sub(rf"\1{MASK}", text)
    return _ASSIGNED.sub(lambda match: f"{match[1]}{match[2] or ''}{MASK}", text)


def mask_text(text: str) -> str:
    """Masks the passwords of the URLs in a message. A URL ends at white space.

    >>> mask_text("no Redis at redis://:secret@redis:6379/0: refused")
    'no Redis at redis://:***@redis:6379/0: refused'
    """
    return _IN_TEXT.sub(lambda match: _mask(match[0]), text)


def mask_setting(value: Any) -> Any:
    """Masks passwords in the value of a setting, including strings in lists and dictionaries.

    A URL is taken to extend to the end of the string, so a password may contain any character.

    >>> mask_setting(["redis://h/0?password=a b", 6379])
    ['redis://h/0?password=***', 6379]
    """
    if isinstance(value, str):
        return _AS_VALUE.sub(lambda match: _mask(match[0]), value)
    if isinstance(value, Mapping):
        return {key: mask_setting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_setting(item) for item in value]
    return value


def _mask(place: str) -> str:
    """Masks everything that could be a password in any reading of a URL from its `://` on, valid or not.

    RFC 3986 does not allow a raw `/`, `?` or `@` in a password, but people write them. Therefore the user and
    password extend to the last `@`. If that `@` is in a secret parameter, all that follows is dropped too.
    """
    rest = place.removeprefix("://")
    masked = _mask_parameters(rest)
    user, colon, _ = rest.rpartition("@")[0].partition(":")
    if colon:
        after = f"@{masked.rpartition('@')[2]}" if masked.count("@") == rest.count("@") else ""
        masked = f"{_mask_parameters(user)}:{MASK}{after}"
    return f"://{masked}"


def _mask_parameters(text: str) -> str:
    def mask(match: re.Match[str]) -> str:
        secret = match[1] is not None and _SECRET.search(unquote(match[2]))
        return f"{match[1]}{MASK}" if secret else match[0]

    return _PARAMETER.sub(mask, text)

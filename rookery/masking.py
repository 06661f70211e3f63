"""Masks passwords and tokens before they reach a log, a file, the terminal or another process."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

MASK = "***"

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"
_IN_TEXT = re.compile(rf"{_SCHEME}\S+")
_AS_VALUE = re.compile(rf"{_SCHEME}.+", re.DOTALL)
_PARAMETER = re.compile(r"([?&;]([^=&]*)=)((?:(?!&[\w.%-]+=).)*)", re.DOTALL)
"""One parameter of a query. Its value ends where the next parameter begins, not at any & or #."""
_SECRET = re.compile(r"pass|pwd|secret|token|credential|signature|\bsig\b|auth|api.?key|access.?key", re.I)

_KEY = (
    r"(?:[\w-]*[_-])?(?:pass(?:word|phrase|wd)?|pwd|secret|token|credentials?"
    r"|(?:api|access|secret|private)[_-]?key(?:[_-]id)?)"
)
_SECRET_KEY = re.compile(_KEY, re.I)
_HEADER = re.compile(r"\b(Bearer\s+)[^\s\"',;]+", re.I)
_ASSIGNED = re.compile(
    rf"""((?<![\w-]){_KEY}\\*["']?\s*[=:]\s*)(?:(\\*["'])(?:(?!\2)(?:\\.|[^\n]))+\2|[^\s"',;}}\]\\]+)""", re.I
)


def is_secret(key: str) -> bool:
    """Whether the value of a setting of this name is a password, token or key.

    >>> is_secret("token"), is_secret("max_tokens"), is_secret("token_file")
    (True, False, False)
    """
    return bool(_SECRET_KEY.fullmatch(key))


def mask_values(text: str) -> str:
    """Masks passwords and tokens in settings and logs, by their keys or as HTTP headers have them.

    >>> mask_values('token = "a b"; Authorization: Bearer abc; http://h/#token=abc; max_tokens = 9')
    'token = "***"; Authorization: Bearer ***; http://h/#token=***; max_tokens = 9'
    """
    text = _HEADER.sub(rf"\1{MASK}", text)
    return _ASSIGNED.sub(lambda found: f"{found[1]}{found[2] or ''}{MASK}{found[2] or ''}", text)


def mask_text(text: str) -> str:
    """Masks the passwords of the URLs in a message. A URL ends at white space.

    >>> mask_text("no Redis at redis://:secret@redis:6379/0: refused")
    'no Redis at redis://:***@redis:6379/0: refused'
    """
    return _IN_TEXT.sub(lambda found: _mask(found[0]), text)


def mask_setting(value: Any) -> Any:
    """Masks passwords in the value of a setting, including strings in lists and dictionaries.

    A URL is taken to extend to the end of the string, so a password may contain any character.

    >>> mask_setting(["redis://h/0?password=a b", 6379])
    ['redis://h/0?password=***', 6379]
    """
    if isinstance(value, str):
        return _AS_VALUE.sub(lambda found: _mask(found[0]), value)
    if isinstance(value, Mapping):
        return {key: mask_setting(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_setting(item) for item in value]
    return value


def _mask(url: str) -> str:
    """Masks everything that could be a password in any reading of the URL, whether valid or not.

    RFC 3986 does not allow a raw `/`, `?` or `@` in a password, but people write them. Therefore the user and
    password extend to the last `@`. If that `@` is in a secret parameter, all that follows is dropped too.
    """
    scheme, _, rest = url.partition("://")
    masked = _mask_parameters(rest)
    user, colon, _ = rest.rpartition("@")[0].partition(":")
    if colon:
        place = f"@{masked.rpartition('@')[2]}" if masked.count("@") == rest.count("@") else ""
        masked = f"{_mask_parameters(user)}:{MASK}{place}"
    return f"{scheme}://{masked}"


def _mask_parameters(text: str) -> str:
    return _PARAMETER.sub(
        lambda found: found[1] + (MASK if _SECRET.search(unquote(found[2])) else found[3]), text
    )

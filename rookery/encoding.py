"""The text in files of others: UTF-16 with a byte order mark, UTF-8 with or without one, or else Latin-1."""

import codecs
from pathlib import Path

UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def decode(data: bytes) -> str:
    """The text of some bytes. The encoding may change within a file of games, so each may have its own.

    >>> [decode("\\u00e9".encode(name)) for name in ("utf-8", "utf-8-sig", "utf-16", "latin-1")]
    ['\\xe9', '\\xe9', '\\xe9', '\\xe9']
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError:  # as from a mark of UTF-16, which is no UTF-8
        return data.decode("utf-16" if data.startswith(UTF16_MARKS) else "latin-1", errors="replace")


def encoding_of(path: Path) -> str:
    """The encoding of a file that is read line by line: UTF-16 if it has the mark, else UTF-8."""
    with path.open("rb") as file:
        return "utf-16" if file.read(2) in UTF16_MARKS else "utf-8-sig"

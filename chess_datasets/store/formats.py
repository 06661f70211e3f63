"""The format of a file, by its first bytes and not by its name."""

import codecs
import json
import re
from contextlib import suppress
from enum import StrEnum

from chess_datasets.store.folders import Folder
from chess_datasets.store.jsonl import text_blocks
from chess_datasets.store.parquet import is_parquet

# A tag or a first move, after any blank lines, comments, escaped lines and bracketed words that are no tag.
_PGN = re.compile(rb'(?:\s|\xef\xbb\xbf|\{[^}]*\}|[;%][^\n]*+|\[[^\]"\n]*\])*+(?:\[[A-Za-z]\w*\s+"|1\s*\.)')
_JSON = re.compile(rb'[\[{]\s*(?:["\[\]{}0-9-]|true|false|null|\Z)')


class Format(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    JSON = "json"
    PGN = "pgn"
    TEXT = "text"


def format_of(folder: Folder, name: str) -> Format:
    """The format of a file, from its first bytes. Raises `SetupError` if the file does not exist or cannot be
    read."""
    if is_parquet(folder, name):
        return Format.PARQUET
    with text_blocks(folder, name) as blocks:
        start = next(blocks, b"").removeprefix(codecs.BOM_UTF8).lstrip()
    if _PGN.match(start):
        return Format.PGN
    if not _JSON.match(start):
        return Format.TEXT
    if start.startswith(b"{"):
        with suppress(ValueError):
            json.loads(start.partition(b"\n")[0])
            return Format.JSONL
    return Format.JSON

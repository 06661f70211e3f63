"""Reads JSON objects from the files of a run."""

import json
from pathlib import Path
from typing import Any

from rookery.errors import InvalidInput


def read_object(path: Path, *needed: str) -> dict[str, Any]:
    """Returns the object in a file.

    Raises:
        InvalidInput: it is missing, damaged, or lacks a `needed` key.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} is missing or damaged: {error}") from error
    if not isinstance(value, dict) or (missing := set(needed) - value.keys()):
        lacks = "is no JSON object" if not isinstance(value, dict) else f"lacks {', '.join(sorted(missing))}"
        raise InvalidInput(f"{path} {lacks}: {str(value)[:120]!r}")
    return value

"""Presets: TOML files beside this module that set a whole run; any other source of a setting wins."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rookery.errors import SetupError


def presets_dir() -> Path:
    """The folder of the preset files."""
    return Path(__file__).parent


def preset_names() -> list[str]:
    """All there are, in alphabetical order."""
    return sorted(path.stem for path in presets_dir().glob("*.toml"))


def read_preset(name: str) -> dict[str, dict[str, Any]]:
    """Its tables, one a service.

    Raises:
        SetupError: there is no such preset; the message lists them.
    """
    if name not in preset_names():
        raise SetupError(f"no preset {name!r}: choose from {', '.join(preset_names())}")
    return tomllib.loads((presets_dir() / f"{name}.toml").read_text())


def preset_table(name: str, wanted: Sequence[str]) -> dict[str, Any]:
    """What a preset sets for the first of the `wanted` tables that it has.

    Raises:
        SetupError: no such preset, or it is of other services.
    """
    tables = read_preset(name)
    for table in wanted:
        if table in tables:
            return tables[table]
    raise SetupError(f"preset {name!r} says nothing of {wanted[0]}: it sets {', '.join(sorted(tables))}")

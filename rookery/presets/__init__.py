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
    """The names of all presets, sorted."""
    return sorted(path.stem for path in presets_dir().glob("*.toml"))


def read_preset(name: str) -> dict[str, dict[str, Any]]:
    """The tables of a preset, one for each service.

    Raises:
        SetupError: there is no such preset; the message lists all.
    """
    if name not in preset_names():
        raise SetupError(f"no preset {name!r}: choose from {', '.join(preset_names())}")
    return tomllib.loads((presets_dir() / f"{name}.toml").read_text())


def preset_table(name: str, wanted: Sequence[str]) -> dict[str, Any]:
    """The settings of a preset in the first of the `wanted` tables that it has.

    Raises:
        SetupError: there is no such preset, or it has none of these tables.
    """
    tables = read_preset(name)
    for table in wanted:
        if table in tables:
            return tables[table]
    raise SetupError(f"preset {name!r} has no settings for {wanted[0]}: it has {', '.join(sorted(tables))}")

"""Records the source of each setting, and writes settings with their sources as TOML."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from pydantic_settings import BaseSettings, InitSettingsSource

from rookery.masking import mask_setting

Origins = Mapping[str, str]
"""Maps a field to its source, such as `environment` or `preset`. Fields with their default are missing."""

SOURCES = {
    "CliSettingsSource": "flag",
    "InitSettingsSource": "argument",
    "EnvSettingsSource": "environment",
    "SharedEnvironment": "environment",
    "TomlFile": "file",
    "PresetFile": "preset",
    "DataEnvironment": "environment",
}
"""Source names by the class of the source, in order of precedence."""

_last: ContextVar[Origins] = ContextVar("origins")


class OriginRecorder(InitSettingsSource):
    """A source without values. It runs last and records the source that each field's value came from."""

    def __call__(self) -> dict[str, Any]:
        data = self.settings_sources_data
        _last.set(
            {field: origin for source, origin in reversed(SOURCES.items()) for field in data.get(source, {})}
        )
        return {}


def last_origins() -> Origins:
    """The origins of the settings created last in this context; empty if there are none."""
    return _last.get({})


def place_of_value(name: str, variables: Sequence[str], table: str, file: str) -> str:
    """Where the value of a setting came from in the settings read last; empty for a flag or a default.
    `variables` are those of the setting in the environment, `table` is its table in the TOML `file`."""
    origin, environment = last_origins().get(name), {variable.upper() for variable in os.environ}
    if origin == "environment":
        return f"{next(filter(environment.__contains__, variables), 'a variable')} in the environment"
    return {"file": f"[{table}] {name} in {file}", "preset": "the preset"}.get(origin or "", "")


CHOSEN = frozenset({"a free port", "a new name"})
"""Origins of what is chosen anew at each start, so that no file should have it."""


def as_toml(
    settings: BaseSettings,
    table: str,
    origins: Origins | None = None,
    *,
    unread: Mapping[str, str] = MappingProxyType({}),
    preset: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """All settings as one TOML table, each with its source in a comment. Without `origins`, only the values.

    Passwords in URLs are masked. Commented out are settings with a password, those without a value (TOML has
    no null), those that are `CHOSEN`, and those in `unread`, with the reason. If `preset` has another value
    than the one in effect, a comment gives it.
    """
    lines = [f"[{table}]"]
    for name in type(settings).model_fields:
        if name == "dry_run":
            continue
        value = settings.model_dump(mode="json", include={name})[name]
        notes = [] if origins is None or name in unread else [_origin(settings, name, origins)]
        if name in preset and (name in unread or (name not in (origins or {}) and preset[name] != value)):
            notes.append(f"preset {getattr(settings, 'preset', '')} has {_toml(preset[name])}")
        masked = mask_setting(value)
        line = f"{name} = {_toml(masked)}"
        if masked != value or (origins or {}).get(name) in CHOSEN:
            line = f"# {line}"  # must not be read back: the mask is not the password
        if name in unread or value is None:
            line = f"# {name} has no effect with {unread[name]}" if name in unread else f"# {name} is not set"
        lines.append(f"{line:<44}  # {'; '.join(notes)}" if notes else line)
    return "\n".join(lines) + "\n"


def _origin(settings: BaseSettings, name: str, origins: Origins) -> str:
    field = type(settings).model_fields[name]
    origin = origins.get(name)
    if origin == "preset":
        return f"preset {getattr(settings, 'preset', '')}"
    if (
        origin is None
        and not field.is_required()
        and getattr(settings, name) != field.get_default(call_default_factory=True)
    ):
        return "default of the objective"
    return origin or "default"


def _toml(value: Any) -> str:
    # JSON and TOML have the same syntax for strings, numbers, booleans and lists of them, but for two things.
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Where each setting came from, and settings as TOML with that beside them."""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from rookery.masking import mask_setting

Origins = Mapping[str, str]
"""Field to source, as in `environment` or `preset tiny-cpu`; fields at their default are missing."""

SOURCES = {
    "CliSettingsSource": "flag",
    "InitSettingsSource": "argument",
    "EnvSettingsSource": "environment",
    "SharedEnvironment": "environment",
    "TomlFile": "file",
    "PresetFile": "preset",
}
"""By the class of the source, the strongest first."""

_last: ContextVar[Origins] = ContextVar("origins")


class Witness(PydanticBaseSettingsSource):
    """Contributes nothing; comes last and notes which source each field was first found in."""

    def __call__(self) -> dict[str, Any]:
        data = self.settings_sources_data
        _last.set(
            {field: origin for source, origin in reversed(SOURCES.items()) for field in data.get(source, {})}
        )
        return {}

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """Required of a source."""
        return None, field_name, False


def last_origins() -> Origins:
    """Of the settings built last in this context."""
    return _last.get({})


def as_toml(
    settings: BaseSettings,
    table: str,
    origins: Origins | None = None,
    *,
    unread: Mapping[str, str] = MappingProxyType({}),
    preset: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """All settings as one table, each with its source; without `origins`, only the values.

    Passwords in URLs are not shown. A setting with one is a comment, as is one without a value (TOML has no
    null) and one that is `unread`, with what leaves it so. Where the `preset` has other values than count,
    that is said.
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
        if masked != value:
            line = f"# {line}"  # read again, it would not be the password
        if name in unread or value is None:
            line = f"# {name} is not read with {unread[name]}" if name in unread else f"# {name} is not set"
        lines.append(f"{line:<44}  # {'; '.join(notes)}" if notes else line)
    return "\n".join(lines) + "\n"


def _origin(settings: BaseSettings, name: str, origins: Origins) -> str:
    field = type(settings).model_fields[name]
    found = origins.get(name)
    if found == "preset":
        return f"preset {getattr(settings, 'preset', '')}"
    if (
        found is None
        and not field.is_required()
        and getattr(settings, name) != field.get_default(call_default_factory=True)
    ):
        return "default of the objective"
    return found or "default"


def _toml(value: Any) -> str:
    # Strings, numbers, booleans and lists of them are written alike in JSON and in TOML.
    return json.dumps(value, ensure_ascii=False)

"""Settings of a process: environment, TOML file and flags, one frozen object passed down.

Every service subclasses `ServiceSettings` with its own environment prefix. There is no module-level
instance: `__main__` builds one with `parse` and hands it on.
"""

import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from rookery.errors import RookeryError, SetupError

CONFIG_VARIABLE = "ROOKERY_CONFIG"
"""Names a TOML file whose table of the same name as the service holds its settings."""


class Settings(BaseSettings):
    """Base of all settings: frozen, unknown keys refused, flags in kebab case, docstrings as help."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        use_attribute_docstrings=True,
        nested_model_default_partial_update=True,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags win over the environment, the environment over the TOML file."""
        path = os.environ.get(CONFIG_VARIABLE)
        shared = InitSettingsSource(settings_cls, _shared_environment(settings_cls))
        sources = (init_settings, env_settings, shared)
        if path is None:
            return sources
        table = cls.model_config.get("env_prefix", "").rstrip("_").lower()
        return (*sources, InitSettingsSource(settings_cls, _toml_table(Path(path), table)))

    @classmethod
    def parse(cls, argv: list[str], *, prog: str) -> Self:
        """Reads flags over environment over TOML.

        Raises:
            SetupError: a value is wrong; the message names it and its source.
        """
        try:
            source: CliSettingsSource[Any] = CliSettingsSource(cls, cli_prog_name=prog)
            return CliApp.run(cls, cli_args=argv, cli_settings_source=source)
        except ValidationError as error:
            raise SetupError(f"{prog}: {_readable(error)}") from error


def _toml_table(path: Path, table: str) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text()).get(table, {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{CONFIG_VARIABLE}={str(path)!r}: {error}") from error
    return values


Port = Annotated[int, Field(ge=0, le=65535)]


class RunSettings(Settings):
    """What every member of a run must agree on; the environment names both `ROOKERY_...`, for all alike."""

    redis_url: str = "redis://127.0.0.1:6379/0"
    """Where the streams live."""
    run: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run; prefixes every Redis key and names the folder under `runs/`."""


_SHARED = ("redis_url", "run")


def _shared_environment(settings_cls: type[BaseSettings]) -> dict[str, Any]:
    return {
        name: value
        for name in _SHARED
        if name in settings_cls.model_fields and (value := os.environ.get(f"ROOKERY_{name.upper()}"))
    }


def _readable(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in e['loc']) or 'settings'}: {e['msg']} (got {e['input']!r})"
        for e in error.errors(include_url=False)
    )


def fail(error: RookeryError) -> int:
    """Says on stderr why a process ends; its exit status: 2 when no retry can help, else 1."""
    sys.stderr.write(f"error: {error}\n")
    return 2 if isinstance(error, SetupError) else 1

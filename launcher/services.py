"""The services that `rookery serve` starts, and how settings reach them."""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import TypeAdapter, ValidationError

from rookery.commands import COMMANDS
from rookery.config.conditions import ConditionalSettings
from rookery.errors import SetupError
from rookery.flags import meant
from rookery.masking import mask_setting
from rookery.origins import Origins, as_toml, last_origins
from rookery.settings import SHARED, Settings, annotated_toml, shared_variable

_BOOLEAN = TypeAdapter(bool)


SERVICES = {
    command.name.split()[1]: command
    for command in COMMANDS
    if command.family == "serve" and not command.settings.startswith("launcher.")
}
"""By name. `rookery serve players` is no part of a run."""


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of one service of a run, and the source of each."""

    values: Settings
    origins: Origins

    @property
    def toml(self) -> str:
        """All settings as a TOML file that the service reads. Passwords are left out."""
        return as_toml(self.values, self.values.table(), unread=self.values.unread())

    @property
    def annotated_toml(self) -> str:
        """All settings as TOML, each with its source, for --dry-run."""
        return annotated_toml(self.values, self.origins)

    def child_environment(self) -> dict[str, str | None]:
        """What to change in the environment of a child that reads these settings from a TOML file.

        Variables come before the file, so those of these settings are removed. Secrets, which must not be in
        the file, and the settings that all members of a run share are variables.
        """
        values = self.values.model_dump(mode="json")
        names = {self.values.variable(name): name for name in values}
        changes: dict[str, str | None] = {key: None for key in os.environ if key.upper() in names}
        for variable, name in names.items():
            value = values[name]
            if name in SHARED:
                changes[shared_variable(name)] = None if value in (None, "") else str(value)
            elif mask_setting(value) != value:
                changes[variable] = str(value)
        return changes


def check_names(service: str, assigned: Iterable[str]) -> None:
    """Raises `SetupError` if a service has no setting of one of these names."""
    names = SERVICES[service].settings_class.model_fields.keys() - {"dry_run"}
    for name in assigned:
        if name not in names:
            wrong = f"{service} has no setting {name!r}{meant(name, names)}"
            raise SetupError(
                f"{wrong} (--set {service}.{name}; a resumed run keeps those in its settings.json)"
            )


def resolve(
    service: str,
    decided: Mapping[str, object],
    assigned: Mapping[str, str],
    *,
    defaults: Mapping[str, tuple[object, str]] | None = None,
) -> ServiceSettings:
    """The settings of a service as it would read them itself.

    `decided` are those that the run decides, `assigned` those of `--set`, as text. `defaults` come before the
    service's own: each has a value and its origin. Raises `SetupError` if there is no such setting, its value
    is wrong, or the run decides it.
    """
    kind = SERVICES[service].settings_class
    check_names(service, assigned)
    values = dict(decided)
    if "dry_run" in kind.model_fields:
        values["dry_run"] = False  # whatever a variable or file says: this is no command of the service
    for name, text in assigned.items():
        if name in decided:
            raise SetupError(f"--set {service}.{name}: the run decides this; see `rookery up --help`")
        is_boolean = kind.model_fields[name].annotation in (bool, bool | None)
        values[name] = _boolean(service, name, text) if is_boolean else text
    places = {name: f"--set {service}.{name}" for name in assigned}
    settings = kind.parse(as_flags(values), prog=service, places=places)
    origins = {**last_origins(), **dict.fromkeys(decided, "the run"), **dict.fromkeys(assigned, "--set")}
    if unset := {name: default for name, default in (defaults or {}).items() if name not in origins}:
        values = {name: value for name, (value, _) in unset.items()}
        resolved = resolve(service, {**decided, **values}, assigned)
        return replace(
            resolved, origins={**resolved.origins, **{name: origin for name, (_, origin) in unset.items()}}
        )
    return ServiceSettings(settings, origins)


def with_effect(
    service: str, decided: Mapping[str, object], assigned: Mapping[str, str], *, kept: Collection[str]
) -> dict[str, str]:
    """`assigned` without those that the run has `kept` and that have no effect beside the others."""
    kind, unread = SERVICES[service].settings_class, dict[str, str]()
    if kept and issubclass(kind, ConditionalSettings):
        with suppress(ValidationError):  # `resolve` says what is wrong
            unread = kind(**{**decided, **assigned}).unread()
    return {name: text for name, text in assigned.items() if name not in kept or name not in unread}


def _boolean(service: str, name: str, text: str) -> bool:
    try:
        return _BOOLEAN.validate_python(text)
    except ValidationError as error:
        raise SetupError(f"{service}: {name}: {text[:200]!r} is neither true nor false") from error


def as_flags(values: Mapping[str, object]) -> list[str]:
    """Settings as command-line arguments. Each value of a tuple has a flag of its own.

    >>> as_flags({"max_tokens": 9, "follow": True, "suites": ("a", "b"), "k": 1})
    ['--max-tokens=9', '--follow', '--suites=a', '--suites=b', '-k=1']
    """
    flags: list[str] = []
    for key, value in values.items():
        name = key.replace("_", "-")
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, bool):
                flags.append(f"--{name}" if item else f"--no-{name}")
            else:
                flags.append(f"--{name}={item}" if len(name) > 1 else f"-{name}={item}")
    return flags

"""Settings of single services: from `--set`, and which ports the environment or the TOML file ask for."""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rookery.errors import SetupError
from rookery.settings import CONFIG_VARIABLE


class Overrides:
    """What each service is told beside what the run decides for it."""

    def __init__(self, assignments: Iterable[str]) -> None:
        self._values: dict[str, dict[str, str]] = {}
        for assignment in assignments:
            target, value = assignment.split("=", 1)
            service, key = target.split(".", 1)
            self._values.setdefault(service, {})[key] = value
        self._table = _toml()

    def values(self, service: str, *, governed: Iterable[str]) -> dict[str, str]:
        """A service's overrides but its ports, which `port` hands to the plan.

        Raises:
            SetupError: one of them is for the whole run to decide.
        """
        own = self._values.get(service, {})
        values = {key: value for key, value in own.items() if key not in ("port", "grpc_port")}
        for key in values:
            if key in governed:
                raise SetupError(f"--set {service}.{key}: the run decides this; see `rookery up --help`")
        return values

    def port(self, service: str, key: str) -> tuple[int | None, str]:
        """The port that somebody asked for, if anybody did, and the setting to change it by."""
        variable = f"{service}_{key}".upper()
        setting = f"--set {service}.{key}=PORT or {variable}"
        asked = self._values.get(service, {}).get(key) or os.environ.get(variable)
        asked = asked or self._table.get(service, {}).get(key)
        if asked is None:
            return None, setting
        try:
            return int(asked), setting
        except ValueError:
            raise SetupError(f"{asked!r} is no port ({setting})") from None


def as_flag(key: str, value: str) -> list[str]:
    """A setting on a command line.

    >>> as_flag("max_tokens", "9"), as_flag("follow", "True"), as_flag("follow", "false")
    (['--max-tokens', '9'], ['--follow'], ['--no-follow'])
    """
    name = key.replace("_", "-")
    if value.lower() in ("true", "false"):
        return [f"--{name}" if value.lower() == "true" else f"--no-{name}"]
    return [f"--{name}", value]


def _toml() -> dict[str, Any]:
    path = os.environ.get(CONFIG_VARIABLE)
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{CONFIG_VARIABLE}={path!r}: {error}") from error

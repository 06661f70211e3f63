"""Settings of single services: `--set`, and the ports from the environment and the TOML file."""

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rookery.errors import SetupError
from rookery.settings import CONFIG_VARIABLE


class Overrides:
    """The settings of each service that the user gave with `--set`."""

    def __init__(self, assignments: Iterable[str]) -> None:
        self._values: dict[str, dict[str, str]] = {}
        for assignment in assignments:
            target, value = assignment.split("=", 1)
            service, key = target.split(".", 1)
            self._values.setdefault(service, {})[key] = value
        self._table = _toml()

    def values(self, service: str, *, governed: Iterable[str]) -> dict[str, str]:
        """The overrides of a service, except its ports (see `port`).

        Raises:
            SetupError: an override is in `governed`, the settings that the run decides.
        """
        own = self._values.get(service, {})
        values = {key: value for key, value in own.items() if key not in ("port", "grpc_port")}
        for key in values:
            if key in governed:
                raise SetupError(f"--set {service}.{key}: the run decides this; see `rookery up --help`")
        return values

    def port(self, service: str, key: str) -> tuple[int | None, str]:
        """The port that the user set for a service, or None, and how to set it, for error messages.

        Raises:
            SetupError: the value is not a number.
        """
        setting = f"--set {service}.{key}=PORT or {environment_variable(service, key)}"
        asked = self.given(service, key)
        if asked is None:
            return None, setting
        try:
            return int(asked), setting
        except ValueError:
            raise SetupError(f"{asked!r} is not a port ({setting})") from None

    def given(self, service: str, key: str) -> Any:
        """What `--set`, the environment or the TOML file says of a setting, or None."""
        asked = self._values.get(service, {}).get(key) or os.environ.get(environment_variable(service, key))
        return asked or self._table.get(service, {}).get(key)


def environment_variable(service: str, key: str) -> str:
    """The variable that sets a service's setting.

    >>> environment_variable("reward", "port"), environment_variable("reward-model", "port")
    ('REWARD_PORT', 'REWARD_SERVER_PORT')
    """
    prefix = "reward_server" if service == "reward-model" else service  # `rookery reward-model` trains one
    return f"{prefix}_{key}".upper()


def as_flag(key: str, value: str) -> list[str]:
    """A setting as command-line arguments.

    >>> as_flag("max_tokens", "9"), as_flag("follow", "True"), as_flag("follow", "false")
    (['--max-tokens', '9'], ['--follow'], ['--no-follow'])
    """
    name = key.replace("_", "-")
    if value.lower() in ("true", "false"):
        return [f"--{name}" if value.lower() == "true" else f"--no-{name}"]
    return [f"--{name}" if len(name) > 1 else f"-{name}", value]


def _toml() -> dict[str, Any]:
    path = os.environ.get(CONFIG_VARIABLE)
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SetupError(f"{CONFIG_VARIABLE}={path!r}: {error}") from error

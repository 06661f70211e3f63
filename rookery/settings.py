"""Settings of a process, read from flags, the environment, a TOML file and a preset.

Each service subclasses `Settings` with its own environment prefix. There is no module-level instance:
`__main__` creates one with `parse` and passes it on.
"""

import difflib
import os
import re
import sys
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliApp,
    CliSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from rookery.errors import QUOTED_CHARS, InvalidInput, NotFound, RookeryError, SetupError
from rookery.files import expanded, replace_file
from rookery.flags import complete_help, explain_arguments, explain_values, protect, restore
from rookery.masking import mask_setting, printable
from rookery.origins import OriginRecorder, Origins, as_toml, last_origins, place_of_value

CONFIG_VARIABLE = "ROOKERY_CONFIG"
"""The environment variable with the path of a TOML file. Each service reads the table with its own name."""


class Settings(BaseSettings):
    """Base class of all settings: frozen, unknown keys are errors, and docstrings are the help texts."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        cli_exit_on_error=False,
        use_attribute_docstrings=True,
        nested_model_default_partial_update=True,
    )

    help_group: ClassVar[str]

    def __init_subclass__(cls, *, env_prefix: str = "", help_group: str = "", **config: Any) -> None:
        """`env_prefix` begins the names of the variables; by default that of the base. `help_group` is the
        title of the group of `--help` with the settings that the class itself declares."""
        super().__init_subclass__(**config)
        cls.help_group = help_group
        if env_prefix:
            cls.model_config["env_prefix"] = env_prefix

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources by precedence: flags, environment, TOML file, preset."""
        shared = {
            name: value
            for name in SHARED
            if name in settings_cls.model_fields and (value := os.environ.get(shared_variable(name)))
        }
        sources = [init_settings, env_settings, SharedEnvironment(settings_cls, shared)]
        if values := configured(cls.table()):
            sources.append(TomlFile(settings_cls, values))
        if "preset" in settings_cls.model_fields:
            sources.append(PresetFile(settings_cls, {}))
        return (*sources, *cls.weakest_sources(), OriginRecorder(settings_cls, {}))

    @classmethod
    def weakest_sources(cls) -> tuple[PydanticBaseSettingsSource, ...]:
        """Further sources, which all others come before."""
        return ()

    @classmethod
    def table(cls) -> str:
        """The name of the service's table in a TOML file, for example `trainer`."""
        return cls.model_config.get("env_prefix", "").rstrip("_").lower()

    @classmethod
    def variable(cls, name: str) -> str:
        """The environment variable of a setting, such as `TRAINER_LR`."""
        return f"{cls.model_config.get('env_prefix', '')}{name}".upper()

    @classmethod
    def default_preset(cls, stronger: Mapping[str, Any]) -> str | None:
        """The preset to use if none is named, given the values of sources with higher precedence."""
        del stronger
        return None

    @classmethod
    def preset_values(cls, name: str) -> dict[str, Any]:
        """The values that a preset has for these settings. Raises `SetupError` if there is no such preset, or
        it has no table for this service."""
        # `demo` subclasses `up`, and `autobatch` the trainer: use the nearest class with a table.
        names = [base.table() for base in cls.__mro__ if issubclass(base, Settings)]
        tables = read_preset(name)
        for table in names:
            if table in tables:
                return tables[table]
        available = ", ".join(sorted(tables))
        raise SetupError(f"preset {name!r} has no settings for {names[0]}: it has {available}")

    @classmethod
    def of_preset(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """The preset's values to use, given those of sources with higher precedence. Default: all of them."""
        del stronger
        return dict(values)

    @classmethod
    def of_file(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """The TOML file's values to use, given those of sources with higher precedence. Default: all."""
        del stronger
        return dict(values)

    @field_validator("*")
    @classmethod
    def _check_paths(cls, value: Any) -> Any:
        """Expands ~/ in paths, and refuses those below a file. `rookery.remote` has types of text that do."""
        if isinstance(value, tuple):
            return tuple(cls._check_paths(each) for each in value)
        if isinstance(value, Path):
            value = expanded(value)
            check_path(value)
        return value

    def unread(self) -> Mapping[str, str]:
        """Settings that have no effect because of other settings, and the text that says which ones."""
        return {}

    @classmethod
    def parse(
        cls,
        argv: list[str],
        *,
        prog: str,
        show: Callable[[Self], None] | None = None,
        places: Mapping[str, str] = MappingProxyType({}),
    ) -> Self:
        """Reads the settings from `argv`, the environment, the TOML file and the preset.

        `show` prints the settings for --dry-run; by default `print_resolved` does. `places` says, for errors,
        where those who wrote `argv` had the values of settings from.

        Raises:
            SetupError: a flag is unknown or a value is wrong; the message names the setting, the value and
                where it comes from.
            SystemExit: --help or --dry-run was given, and has been answered.
        """
        wants_help = not {"-h", "--help"}.isdisjoint(argv)
        source = (_flags.__wrapped__ if wants_help else _flags)(cls, prog)
        if wants_help:  # which `complete_help` changes
            values = cls.values_without_flags()
            fields = {field.alias or name: field for name, field in cls.model_fields.items()}
            complete_help(source.root_parser, cls.__doc__ or "", fields, values, cls._places(values))
        try:
            settings = CliApp.run(cls, cli_args=argv, cli_settings_source=source)
        except ValidationError as error:
            details = error.errors(include_url=False)
            known = {**cls._places(last_origins()), **places}
            raise SetupError(f"{prog}: {explain_values(details, cls.model_fields, known)}") from error
        except SettingsError as error:
            message = explain_arguments(error, source.root_parser, cls._variables)
            raise SetupError(f"{prog}: {message}") from error
        if isinstance(settings, PresetSettings) and settings.dry_run:
            if show is None:
                settings.print_resolved(last_origins())
            else:
                show(settings)
            raise SystemExit(0)
        return settings

    @classmethod
    def values_without_flags(cls) -> dict[str, Any]:
        """What the environment, the TOML file and the preset set, for --help. {} if one of them is wrong."""
        environment, arguments = EnvSettingsSource(cls), InitSettingsSource(cls, {})
        values: dict[str, Any] = {}
        by_source: dict[str, dict[str, Any]] = {}
        with suppress(SettingsError, SetupError):
            for source in cls.settings_customise_sources(cls, arguments, environment, arguments, arguments):
                source._set_current_state(values)
                source._set_settings_sources_data(by_source)
                by_source[type(source).__name__] = source()
                values = {**by_source[type(source).__name__], **values}
            return {**cls.dependent_defaults(values), **values}
        return {}

    @classmethod
    def dependent_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that depend on other values, which are not validated yet."""
        del values
        return {}

    @classmethod
    def _variables(cls, name: str) -> list[str]:
        """The environment variables of a setting, the strongest first."""
        settings = [base for base in cls.__mro__ if issubclass(base, Settings)]
        bases = [base.variable(name) for base in settings if base.model_config["env_prefix"]]
        return [*dict.fromkeys(bases), *([shared_variable(name)] * (name in SHARED))]

    @classmethod
    def _places(cls, names: Iterable[str]) -> dict[str, str]:
        """Where the values of settings come from, which were read last. Flags and defaults are left out."""
        file = os.environ.get(CONFIG_VARIABLE, "")
        places = ((name, place_of_value(name, cls._variables(name), cls.table(), file)) for name in names)
        return {name: place for name, place in places if place}

    @classmethod
    def _add_argument(cls, parser: ArgumentParser, *flags: str, **options: Any) -> None:
        """Adds a flag to the group of the most basic class that declares the setting."""
        bases = [base for base in cls.__mro__ if issubclass(base, Settings)]
        declaring = [base for base in bases if options.get("dest") in base.model_fields]
        title = declaring[-1].help_group if declaring else ""
        # argparse lists its groups here alone; the first two are its own.
        group = next((group for group in parser._action_groups[2:] if group.title == title), None)
        if group is None and title:
            group = parser.add_argument_group(title)
        if values := re.match(r"tuple\[(\{.*?\}|[^,\]]+)", str(options.get("metavar"))):
            options["metavar"] = values[1]  # argparse parses one value at a time
        field = cls.model_fields.get(options.get("dest", flags[0]))
        if field and _RESTORE in field.metadata:
            options |= {"type": protect}
        if options.get("dest") in ("set", "vary"):  # of type `Assignments`
            options |= {"metavar": "NAME=VALUE"}
        elif field and _RESTORE in field.metadata:  # of type `Several`
            options |= {"nargs": "+"} | ({"action": "extend"} if "action" in options else {})
        (group or parser).add_argument(*flags, **options)


@lru_cache(maxsize=64)
def _flags(kind: type[Settings], prog: str) -> CliSettingsSource[Any]:
    """The parser of a command's flags. To make one takes longer than all else that `parse` does."""
    return CliSettingsSource(kind, cli_prog_name=prog, add_argument_method=kind._add_argument)


class SharedEnvironment(InitSettingsSource):
    """The variables that all members of a run read, such as ROOKERY_REDIS_URL and ROOKERY_TOKEN_FILE."""


class TomlFile(InitSettingsSource):
    """The TOML file named by ROOKERY_CONFIG."""

    def __call__(self) -> dict[str, Any]:
        settings = cast(type[Settings], self.settings_cls)
        return settings.of_file(super().__call__(), stronger=self.current_state)


class PresetFile(InitSettingsSource):
    """The preset named by a source with higher precedence, or the default one."""

    def __call__(self) -> dict[str, Any]:
        settings = cast(type[PresetSettings], self.settings_cls)
        name = self.current_state.get("preset") or settings.default_preset(self.current_state)
        if not name:
            return {}
        values = settings.of_preset(settings.preset_values(str(name)), stronger=self.current_state)
        return {"preset": name, **values}


def configured(table: str) -> dict[str, Any]:
    """A table of the TOML file named by ROOKERY_CONFIG; empty if there is none. Raises `SetupError` if the
    file cannot be read, or seems to have the table under another name."""
    path = os.environ.get(CONFIG_VARIABLE)
    if not path:
        return {}
    try:
        tables: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not TOML, not UTF-8, or too deep
        raise SetupError(f"{CONFIG_VARIABLE}={path!r}: {error}") from error
    values = tables.get(table, {})
    if not isinstance(values, dict):
        value = repr(mask_setting(values))[:QUOTED_CHARS]
        raise SetupError(f"{CONFIG_VARIABLE}={path!r}: {table!r} is {value}, not a table: [{table}]")
    names = {name.lower(): name for name in tables}
    if table not in tables and (meant := difflib.get_close_matches(table, names, n=1, cutoff=0.8)):
        raise SetupError(f"{CONFIG_VARIABLE}={path!r}: no table [{table}], but [{names[meant[0]]}]")
    return values


def presets_dir() -> Path:
    """The folder of the preset files, which are TOML."""
    return Path(__file__).parent / "presets"


def preset_names() -> list[str]:
    """The names of all presets, sorted."""
    return sorted(path.stem for path in presets_dir().glob("*.toml"))


def read_preset(name: str) -> dict[str, dict[str, Any]]:
    """The tables of a preset, one for each service. Raises `SetupError` if there is no such preset; the
    message lists all."""
    if name not in preset_names():
        raise SetupError(f"no preset {name!r}: choose from {', '.join(preset_names())}")
    return tomllib.loads((presets_dir() / f"{name}.toml").read_text())


class PresetSettings(Settings):
    """Settings with --preset and --dry-run."""

    preset: str | None = None
    """Name of a set of defaults for a whole run. An unknown name prints a list of them."""
    dry_run: bool = False
    """Print the resolved settings as TOML, each with its source, and exit."""

    def write_resolved(self, folder: Path) -> None:
        """Writes the settings to `folder`, as a TOML file that can be used with ROOKERY_CONFIG."""
        folder.mkdir(parents=True, exist_ok=True)
        text = as_toml(self, self.table(), unread=self.unread())
        replace_file(folder / f"{self.table()}.toml", text.encode())

    def print_resolved(self, origins: Origins) -> None:
        sys.stdout.write(annotated_toml(self, origins))


def annotated_toml(settings: Settings, origins: Origins) -> str:
    """The settings as TOML, each with its source."""
    name = getattr(settings, "preset", None)
    preset = settings.preset_values(name) if name else {}
    return as_toml(settings, settings.table(), origins, unread=settings.unread(), preset=preset)


HIGHEST_PORT = 65535
Port = Annotated[int, Field(ge=0, le=HIGHEST_PORT)]


def _check_redis_url(url: str) -> str:
    """Refuses URLs that redis-py would misread, or reject later with part of a password in the message."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError if it is not a number
        is_number = (parts.path.strip("/") or "0").isdecimal()
        is_valid = parts.scheme == "unix" or (parts.scheme in ("redis", "rediss") and is_number)
    except ValueError:
        is_valid = False
    if url and not is_valid:
        raise ValueError(
            "not a Redis URL such as redis://:PASSWORD@HOST:6379/0 or unix:///PATH; "
            "write / ? # of a password as %2F %3F %23"
        )
    return url


RedisUrl = Annotated[str, AfterValidator(_check_redis_url)]
"""A Redis URL as in redis-py: `redis://`, `rediss://` or `unix://`. Can be empty where "" means none."""


def check_http_url(url: str) -> str:
    """Refuses what cannot be the URL of a server, except "". Raises `ValueError`, which does not quote it,
    because it may have a password."""
    import httpx  # which is slow to import

    try:
        parts = httpx.URL(url)
        is_valid = parts.scheme in ("http", "https") and parts.host and 0 <= (parts.port or 0) < 1 << 16
    except httpx.InvalidURL:
        is_valid = False
    if url and not is_valid:
        raise ValueError("not a URL such as http://HOST:PORT")
    return url


HttpUrl = Annotated[str, AfterValidator(check_http_url)]
"""The URL of a server. Can be empty where "" means none."""


def check_path(path: Path, *, is_folder: bool = False) -> None:
    """Refuses a path below a file, for a folder also one of a file. It need not exist. Raises `ValueError`
    with the file."""
    if path.parts[:1] == ("~",):
        raise ValueError(f"{str(path)!r}: there is no home folder")
    path = path.absolute()
    for place in (path, *path.parents) if is_folder else path.parents:
        if os.path.lexists(place):
            if not place.is_dir():
                raise ValueError(f"{str(place)!r} is not a folder")
            return


def _rejoin_specs(parts: Any) -> Any:
    """Joins specs such as `stockfish,nodes=10` again, which pydantic-settings splits at their commas.

    >>> _rejoin_specs(["random", "stockfish", "nodes=10", "skill=3"])
    ('random', 'stockfish,nodes=10,skill=3')
    """
    specs: list[str] = []
    for part in map(str, parts):
        if specs and re.match(r"[\w. -]+=", part):
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return tuple(specs)


_RESTORE = BeforeValidator(restore)


def _check_characters(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if printable(value) != value or "\n" in value:
            raise ValueError(f"{value!r} has a control character")
    return values


Assignments = Annotated[tuple[str, ...], _RESTORE, AfterValidator(_check_characters)]
"""The values of a repeatable `--set NAME=VALUE`, with any characters but control characters."""


T = TypeVar("T")
Several = Annotated[T, _RESTORE]
"""A tuple, as a flag or positional argument that takes one or more values: `--source A B --source C`."""

Specs = Annotated[tuple[str, ...], BeforeValidator(_rejoin_specs)]
"""Players, each as the spec that `arena.players.spec` reads."""


class RunSettings(Settings, help_group="run"):
    """Settings that all members of a run share. ROOKERY_REDIS_URL and ROOKERY_RUN set them for all."""

    redis_url: RedisUrl = "redis://127.0.0.1:6379/0"
    """Redis with the run's streams."""
    run: str = Field(default="default", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run: the prefix of its Redis keys, and the name of its folder in `runs/`."""


_TRACKER = "(mlflow|wandb|trackio|tensorboard)"


class ReportSettings(Settings, help_group="trackers"):
    """Where metrics are recorded."""

    report_to: str = Field(default="", pattern=rf"^({_TRACKER}(,{_TRACKER}){{0,3}})?$")
    """Trackers that get the metrics, separated by commas: mlflow, wandb, trackio, tensorboard.
    ROOKERY_REPORT_TO sets it for all commands."""
    mlflow: bool = False
    """Log to MLflow: to MLFLOW_TRACKING_URI if set, else to files in mlruns/ next to the folder."""

    @property
    def trackers(self) -> frozenset[str]:
        """The names of the trackers."""
        return frozenset(filter(None, [*self.report_to.split(","), "mlflow" * self.mlflow]))


SHARED = (
    "report_to", "redis_url", "run", "token_file", "guard_metrics", "tls_cert", "tls_key", "tls_ca",
    "allowed_models",
)  # fmt: skip
"""The settings that a variable of all members of a run sets too: see `shared_variable`."""


def shared_variable(name: str) -> str:
    """The environment variable that sets a setting for all members of a run, such as `ROOKERY_RUN`."""
    return f"ROOKERY_{name.upper()}"


def misspelt_variables(variables: Iterable[str], *others: str) -> dict[str, str]:
    """The variables that are nearly, but not quite, one that all commands read, each with that one. `others`
    are further names.

    >>> misspelt_variables(["ROOKERY_REDIS_URI", "ROOKERY_RUN", "ROOKERY_REDIS_SERVICE_HOST"])
    {'ROOKERY_REDIS_URI': 'ROOKERY_REDIS_URL'}
    """
    start = shared_variable("")
    known = [name.removeprefix(start) for name in (*map(shared_variable, SHARED), CONFIG_VARIABLE, *others)]
    words = {name.removeprefix(start) for name in variables if name.startswith(start)}.difference(known)
    near = {word: difflib.get_close_matches(word, known, n=1, cutoff=0.8) for word in sorted(words)}
    return {f"{start}{word}": f"{start}{meant[0]}" for word, meant in near.items() if meant}


def fail(error: RookeryError, *, is_service: bool = False) -> int:
    """Prints the error to stderr. Returns the exit status: 2 if the input is wrong (do not retry), else 1. A
    service ends with 2 only if it cannot start: it is started again if it died of what others sent."""
    sys.stderr.write(f"error: {error}\n")
    wrong = SetupError if is_service else SetupError | InvalidInput | NotFound
    return 2 if isinstance(error, wrong) else 1

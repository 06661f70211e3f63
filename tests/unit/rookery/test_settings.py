"""Settings: flags over environment over TOML, and errors that name the value and the field."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from rookery.command_line import main
from rookery.commands import COMMANDS
from rookery.errors import InvalidInput, NotFound, RookeryError, SetupError, Unavailable
from rookery.origins import as_toml
from rookery.remote import FolderPath, NamedPath, PathOrUrl, PathsOrUrls
from rookery.settings import (
    CONFIG_VARIABLE,
    Assignments,
    Port,
    RunSettings,
    Settings,
    Several,
    fail,
    misspelt_variables,
)
from tests.commands import call


class Bakery(RunSettings, env_prefix="BAKERY_"):
    """Settings of a service that does not exist."""

    port: Port = 8080
    """Where it listens."""
    loaves: int = Field(default=10, gt=0)
    """Loaves in one batch."""
    rye: bool = False
    """Bake with rye."""
    grains: tuple[str, ...] = ("rye", "oats")
    """Grains in it."""
    set: Assignments = ()
    """What is set."""
    sizes: Several[tuple[int, ...]] = ()
    """Weights of loaves, in grams."""
    names: Several[tuple[str, ...]] = ("loaf",)
    """Names of loaves."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BAKERY_PORT", "BAKERY_LOAVES", "ROOKERY_RUN", "ROOKERY_REDIS_URL", CONFIG_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "run.toml"
    path.write_text('[bakery]\nport = 3\nloaves = 3\nrye = true\nrun = "from-toml"\n[other]\nx = 1\n')
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    return path


def parse(*argv: str) -> Bakery:
    return Bakery.parse(list(argv), prog="bakery")


def test_defaults() -> None:
    assert parse() == Bakery(port=8080, loaves=10, rye=False, run="default")


def test_flags_win_over_environment_over_toml(toml: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAKERY_PORT", "2")
    monkeypatch.setenv("BAKERY_LOAVES", "2")
    settings = parse("--port", "1")
    assert (settings.port, settings.loaves, settings.rye, settings.run) == (1, 2, True, "from-toml")


def test_nothing_of_one_command_line_is_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse("--port", "1", "--grains", "spelt", "--sizes", "5", "6", "--rye")
    assert (first.port, first.grains, first.sizes, first.rye) == (1, ("spelt",), (5, 6), True)
    with pytest.raises(SetupError):
        parse("--loaves", "none")
    with pytest.raises(SystemExit):
        parse("--help")
    assert parse() == Bakery()
    monkeypatch.setenv("BAKERY_PORT", "2")
    assert parse().port == 2
    assert parse("--grains", "wheat").grains == ("wheat",)


def test_every_member_of_a_run_reads_the_same_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_RUN", "quiet-rook")
    monkeypatch.setenv("ROOKERY_REDIS_URL", "redis://elsewhere:1/2")
    assert (parse().run, parse().redis_url) == ("quiet-rook", "redis://elsewhere:1/2")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "99999"], r"bakery: port: .*65535 \(got '99999'\)"),
        (["--loaves", "0"], r"bakery: loaves: .*greater than 0 \(got '0'\)"),
        (["--run", "a b"], r"bakery: run: .*pattern.* \(got 'a b'\)"),
        (["--port", "99999", "--loaves", "some"], r"port: .*; loaves: .*got 'some'"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value(argv: list[str], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        parse(*argv)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("BAKERY_LOAVES", "many", "loaves: .*got 'many'; BAKERY_LOAVES in the environment"),
        ("ROOKERY_RUN", "a b", "run: .*got 'a b'; ROOKERY_RUN in the environment"),
        ("BAKERY_GRAINS", "oats", "grains: not JSON such as .*got 'oats'; BAKERY_GRAINS in the environment"),
        ("BAKERY_SET", '["a\\u001b=1"]', "set: .* has a control character .*; BAKERY_SET in the environment"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SetupError, match=rf"^bakery: {message}\)$"):
        parse()


def test_a_misspelt_variable_is_named_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("ROOKERY_TOKN", "ROOKERY_RUN", "ROOKERY_REDIS_SERVICE_HOST"):
        monkeypatch.setenv(name, "x")
    call(main, ["check", "Checkmate.", "--fen", "8/8/8/8/8/5k2/6q1/7K w - - 0 1"])
    told = [record.getMessage() for record in caplog.records if "variable" in record.getMessage()]
    assert told == ["nothing reads the variable ROOKERY_TOKN; did you mean ROOKERY_TOKEN?"]


def test_variables_of_others_are_not_taken_for_misspelt_ones() -> None:
    """Of the bridges, compose, tests, and Kubernetes for the addresses of services."""
    names = "LOGS LOG_LEVEL PROFILE FAILPOINTS OPENING EPISODE REWARD_URL TOML MLFLOW_MODEL TEST_RUN TOKEN"
    names += " REDIS_PORT REDIS_PORT_6379_TCP PORT TRAINER_SERVICE_HOST"
    assert misspelt_variables([f"ROOKERY_{name}" for name in names.split()], "ROOKERY_TOKEN") == {}


def test_the_home_folder_is_expanded_where_shells_leave_it(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Oven(Settings, env_prefix="OVEN_"):
        out: FolderPath
        model: PathOrUrl
        names: Several[tuple[str, ...]] = ()
        data: NamedPath
        inputs: PathsOrUrls
        tests: tuple[Path, ...]

    home = toml.parent
    monkeypatch.setenv("HOME", str(home))
    toml.write_text(
        '[oven]\nmodel = "~/rye"\nnames = ["~/a", "b~/c"]\ninputs = "a,~/b,file://~/f"\ntests = ["~/t"]\n'
    )
    settings = Oven.parse(["--out=~/bread", "--data=x=~/d"], prog="oven")
    assert (settings.out, settings.tests, settings.model) == (home / "bread", (home / "t",), f"{home}/rye")
    assert (settings.data, settings.inputs) == (f"x={home}/d", f"a,{home}/b,file://~/f")
    assert settings.names == ("~/a", "b~/c"), "no paths"
    (home / "bread").touch()
    with pytest.raises(SetupError, match=f"out: '{home}/bread' is not a folder"):
        Oven.parse(["--out=~/bread", "--data=x=y"], prog="oven")


def test_a_flag_of_several_values_is_repeatable_and_leaves_them_intact() -> None:
    names = ["a,b", "[ab]*", ' "c"', "\\d", "{e}", "7", "-", "*"]
    settings = parse("--names", *names[:3], "--sizes", "750", "500", "--names", *names[3:])
    assert (settings.names, settings.sizes) == (tuple(names), (750, 500))
    with pytest.raises(SetupError, match=r"sizes\.1: .*got 'x,1'"):
        parse("--sizes", "750", "x,1")


def test_several_values_are_a_list_in_the_file_and_json_in_a_variable(
    toml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toml.write_text('[bakery]\nnames = ["a,b", "c"]\n')
    assert parse().names == ("a,b", "c")
    monkeypatch.setenv("BAKERY_NAMES", '["d"]')
    assert parse().names == ("d",)
    monkeypatch.delenv("BAKERY_NAMES")
    toml.write_text('[bakery]\nnames = "abc"\n')
    with pytest.raises(SetupError, match=r"names: .*tuple \(got 'abc'; \[bakery\] names in "):
        parse()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("laoves = 3", r"laoves: no such setting; did you mean 'loaves'\? \(got 3; \[bakery\] laoves in "),
        ("loaves = 0", r"loaves: .*greater than 0 \(got 0; \[bakery\] loaves in "),
    ],
)
def test_a_wrong_line_of_the_file_is_named_with_its_value(toml: Path, line: str, message: str) -> None:
    toml.write_text(f"[bakery]\n{line}\n")
    with pytest.raises(SetupError, match=rf"^bakery: {message}.*run\.toml\)$"):
        parse()


def test_a_broken_file_is_named(toml: Path) -> None:
    toml.write_text("[bakery")
    with pytest.raises(SetupError, match=r"ROOKERY_CONFIG='.*run\.toml': Expected ']'"):
        parse()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[bakry]\nloaves = 3\n", r"no table \[bakery\], but \[bakry\]"),
        ("[Bakery]\nloaves = 3\n", r"no table \[bakery\], but \[Bakery\]"),
        ("loaves = " + "[" * 3000 + "]" * 3000, "maximum recursion depth exceeded"),
        ("bakery = 3\n", "'bakery' is 3, not a table"),
    ],
)
def test_a_table_that_is_none_is_named(toml: Path, text: str, said: str) -> None:
    toml.write_text(text)
    with pytest.raises(SetupError, match=rf"ROOKERY_CONFIG='.*run\.toml': {said}"):
        Bakery.parse([], prog="bakery")


def test_tables_of_others_are_theirs(toml: Path) -> None:
    toml.write_text("[reward]\nport = 3\n")
    assert Bakery.parse([], prog="bakery").port == 8080


def test_a_password_is_not_kept(toml: Path) -> None:
    """Fed back, `***` would be taken for the password."""
    given = Bakery.parse(["--redis-url", "redis://:secret@redis:6379/0", "--port", "3"], prog="bakery")
    toml.write_text(as_toml(given, "bakery"))
    assert "secret" not in toml.read_text()
    again = Bakery.parse([], prog="bakery")
    assert (again.port, again.redis_url) == (3, Bakery().redis_url)


def test_a_missing_file_is_named(toml: Path) -> None:
    toml.unlink()
    with pytest.raises(SetupError, match=r"ROOKERY_CONFIG='.*run\.toml': .*No such file"):
        parse()


def test_an_unknown_flag_is_an_error_that_names_the_one_meant() -> None:
    wrong = "unrecognized arguments: --loafs 3; did you mean '--loaves'"
    with pytest.raises(SetupError, match=rf"^bakery: {wrong}\? \(bakery --help\)$"):
        parse("--loafs", "3")


@pytest.mark.parametrize("value", ["a,b", '"x', "\\n", "[1, 2]", "{e} ", " f\t", "é", ""])
def test_an_assignment_keeps_all_characters(value: str) -> None:
    assert parse("--set", f"a.b={value}", "--set", "c=1").set == (f"a.b={value}", "c=1")


@pytest.mark.parametrize("value", ["\x1b[2J", "\x7f", "a\nb", "\u202e", "\ue000", "\ue00fx"])
def test_an_assignment_with_a_control_character_is_refused(value: str) -> None:
    with pytest.raises(SetupError, match=r"set: .* has a control character"):
        parse("--set", f"a.b={value}")


def helped(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        parse(*argv)
    assert stopped.value.code == 0
    return " ".join(capsys.readouterr().out.split())


def test_help_shows_the_docstrings_and_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    text = helped(capsys, "--port", "1", "--help")
    assert text.startswith("usage: bakery [FLAGS] Settings of a service that does not exist. options:")
    assert "Loaves in one batch. (default: 10)" in text
    assert "--rye, --no-rye Bake with rye. --grains str Grains in it. (default: rye, oats)" in text
    assert "None" not in text


def test_help_shows_the_defaults_that_hold(
    toml: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAKERY_LOAVES", "2")
    text = helped(capsys, "--help")
    assert "(default: 2, BAKERY_LOAVES in the environment)" in text
    assert "(default: on, [bakery] rye in " in text
    toml.write_text("[bakery")
    assert "Loaves in one batch. (default: 10)" in helped(capsys, "-h")


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        parse().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "status"),
    [(SetupError, 2), (InvalidInput, 2), (NotFound, 2), (Unavailable, 1), (RookeryError, 1)],
)
def test_an_error_exits_with_2_if_what_was_given_is_wrong(
    kind: type[RookeryError], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(kind("port 80 is taken")) == status
    assert capsys.readouterr().err == "error: port 80 is taken\n"


def _programs(parent: type[Settings] = Settings) -> Iterator[type[Settings]]:
    for child in parent.__subclasses__():
        if child.__subclasses__():
            yield from _programs(child)
        elif child.__module__.startswith(("chess_datasets.", "rookery.config.", "services.", "launcher.")):
            yield child


def test_no_program_has_the_variables_that_all_share() -> None:
    config = pkgutil.iter_modules(importlib.import_module("rookery.config").__path__, "rookery.config.")
    for name in (
        *(module.name for module in config),
        *(command.settings.partition(":")[0] for command in COMMANDS if command.family == "data"),
        "launcher.exporter",
        "launcher.settings",
        "launcher.status",
    ):
        importlib.import_module(name)
    programs = {program.__name__: program.model_config.get("env_prefix") for program in _programs()}
    assert (programs["DataSettings"], programs["SampleSettings"]) == ("DATA_", "DATA_SAMPLE_")
    assert [name for name, prefix in programs.items() if prefix in ("ROOKERY_", "", None)] == []

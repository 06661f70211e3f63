import importlib.util
import inspect
import json
import os
import re
import shutil
import signal
import tarfile
import tomllib
from pathlib import Path
from typing import Annotated, get_args

import pytest
from pydantic_settings.sources.types import _CliPositionalArg

from launcher.runs import settle_settings
from launcher.settings import DemoSettings
from rookery import __version__, command_line
from rookery.access import AccessSettings
from rookery.command_line import main, usage
from rookery.commands import COMMANDS, Command, load
from rookery.settings import Settings
from scripts import smollm2
from scripts.commands import PAGE, text
from tests.commands import call
from tests.conftest import ROOT

RUNNABLE = [command for command in COMMANDS if command.function]
OF_TORCH = [command for command in RUNNABLE if "torch" in dict(command.needs)]


def test_ctrl_c_still_lets_the_tests_clean_up() -> None:
    """`launcher.command` is the program's start and changes that: tests take `main` from `command_line`."""
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_DFL


@pytest.mark.parametrize("command", [c for c in RUNNABLE if c not in OF_TORCH], ids=lambda c: c.name)
def test_a_command_has_a_function_and_settings(command: Command) -> None:
    assert_declared(command)


def assert_declared(command: Command) -> None:
    """What a command's row names is there."""
    function = load(command.function)
    if command.settings:
        taken = next(iter(inspect.signature(function).parameters.values())).annotation
        assert taken in [name for kind in load(command.settings).__mro__ for name in (kind, kind.__name__)]
    assert issubclass(load(command.settings or "rookery.settings:Settings"), Settings)
    for place in filter(None, (command.prepare, command.show)):
        assert callable(load(place))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for package, extra in command.needs:
        assert any(package == re.split(r"\W", line)[0] for line in extras[extra.partition("]")[0]])


@pytest.mark.parametrize(
    ("prefix", "argv", "name", "rest"),
    [
        ("", "serve data --port 1", "serve data", ["--port", "1"]),
        ("", "score FEN - --json", "score", ["FEN", "-", "--json"]),
        ("", "data stats x.pgn", "data stats", ["x.pgn"]),
        ("data", "stats x.pgn", "data stats", ["x.pgn"]),
        ("serve trainer", "", "serve trainer", []),
        ("serve trainer", "--lr 1", "serve trainer", ["--lr", "1"]),
        ("serve trainer", "sft --lr 1", "sft", ["--lr", "1"]),
        ("serve trainer", "serve reward-model", "serve reward-model", []),
        ("serve trainer", "serve trainer --lr 1", "serve trainer", ["--lr", "1"]),
    ],
)
def test_words_name_a_command(
    prefix: str, argv: str, name: str, rest: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        command_line, "_execute", lambda command, argv: calls.append((command.name, argv)) or 0
    )
    assert main(argv.split(), prefix=prefix) == 0
    assert calls == [(name, rest)]


@pytest.mark.parametrize(
    "command", [c for c in RUNNABLE if c.settings.startswith(("rookery", "launcher"))], ids=lambda c: c.name
)
def test_help_has_own_flags_first_and_access_last(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.name.split(), "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    groups = re.findall(r"^([a-z].*):$", text, re.MULTILINE)
    assert "(default: None" not in text and "(default: ()" not in text
    assert "access" not in groups[:-1]
    access = text.partition("\naccess:\n")[2]
    assert set(re.findall(r"^  (--[a-z-]+)", access, re.MULTILINE)) <= flags_of(AccessSettings)


def test_what_is_wrong_is_quoted_as_it_was_written_and_only_so_far(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["up", "--set", "a.b", "--set", "c,d"]) == 2
    assert capsys.readouterr().err.endswith("(got ['a.b', 'c,d'])\n")
    long = "x" * 10_000
    for flags in (["--" + long], ["--steps", long], ["--set", long], ["--model", long, "--dry-run"]):
        assert main(["up", *flags]) == 2
        assert len(capsys.readouterr().err) < 1000
    deep = "x/" * 1900  # may be a path
    for argv in (
        ["status", deep],
        ["plot", long],
        ["evaluate", f"run:{deep}"],
        ["evaluate", long],
        ["uci", "--player", f"run:{deep}"],
        ["data", "sample", "--count", "1", "--out", f"abc://{deep}"],
    ):
        assert main(argv) == 2
        assert len(capsys.readouterr().err) < 1000, argv


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in ("demo", "sweep", "serve archive"):
        with pytest.raises(SystemExit):
            main([*command.split(), "--help"])
        assert max(map(len, capsys.readouterr().out.splitlines())) <= columns


def flags_of(settings: type[Settings]) -> set[str]:
    return {f"--{name.replace('_', '-')}" for name in settings.model_fields}


def test_help_of_the_demo_shows_what_it_uses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    text = capsys.readouterr().out
    used = settle_settings(DemoSettings.parse([], prog="demo"))
    for name in ("model", "style", "staleness", "steps"):
        default = re.escape(f"(default: {getattr(used, name)}, preset rook-small)")
        assert re.search(rf"^  --{name} .*{default}$", text, re.MULTILINE)


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["serve", "trainer", "--model", "m", "--run-dir", "r"]) == 2
    assert "needs torch: pip install 'rookery[trainer]'" in capsys.readouterr().err


def test_the_list_of_commands_in_the_docs_is_that_of_the_table() -> None:
    assert PAGE.read_text() == text(), "make commands"


@pytest.mark.parametrize("family", ["", *(command.name for command in COMMANDS if not command.function)])
def test_help_lists_every_command(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("--help", "-h", "help"):
        assert main([*family.split(), word]) == 0
        assert capsys.readouterr().out == usage(family)
    assert main(family.split()) == 2
    assert capsys.readouterr().err == usage(family)
    listed = re.findall(r"^  ([a-z][a-z0-9-]*)(?: .*|  .*)$", usage(family).partition("A first run")[0], re.M)
    assert listed == [command.name.split()[-1] for command in COMMANDS if command.family == family]


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ("sreve", "no command 'sreve'; did you mean 'serve'? (rookery --help)"),
        ("serve rewrd --port 1", "no command 'rewrd'; did you mean 'reward'? (rookery serve --help)"),
        ("data smaple", "no command 'smaple'; did you mean 'sample'? (rookery data --help)"),
        ("arena mtach", "no command 'mtach'; did you mean 'match'? (rookery arena --help)"),
        ("xyzzy", "no command 'xyzzy' (rookery --help)"),
        (
            "up --stpes 5",
            "rookery up: unrecognized arguments: --stpes 5; did you mean '--steps'? (rookery up --help)",
        ),
        ("view a b", "rookery view: unrecognized arguments: b (rookery view --help)"),
        ("pipeline rnu x.toml", "rookery pipeline: action: "),
        ("serve reward --port", "rookery serve reward: argument --port: expected one argument"),
        ("merge", "rookery merge: the following arguments are required: RUN"),
        ("merge x", "rookery merge: out: Field required"),
        ("check text", "rookery check: say which position: --fen"),
    ],
)
def test_a_wrong_word_is_quoted_in_a_line_and_exits_with_2(
    argv: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv.split()) == 2
    written = capsys.readouterr().err
    assert written.startswith(f"error: {error}") and written.count("\n") == 1


def _path_types(kind: object) -> set[str]:
    """The checks of `rookery.remote` in a type of settings; `Path` for one without a check."""
    check = getattr(kind, "func", None)
    found = {"Path"} if kind is Path else set[str]()
    found |= (
        {str(getattr(check, "__name__", ""))}
        if getattr(check, "__module__", "") == "rookery.remote"
        else set()
    )
    return found.union(*map(_path_types, (*get_args(kind), *getattr(kind, "metadata", ()))))


def _argv(kind: type[Settings], name: str, value: str) -> list[str]:
    """A command line that sets one setting to a value, and gives all arguments before and after it."""
    positional = {
        key: value if key == name else "list" if key == "action" else "x"
        for key, field in kind.model_fields.items()
        if _CliPositionalArg in field.metadata and (field.is_required() or key == name)
    }
    flags = [] if name in positional else [f"--{name.replace('_', '-')}", value]
    return [*flags, *(["--"] if flags and positional else []), *positional.values()]


@pytest.mark.parametrize("command", RUNNABLE, ids=lambda command: command.name)
def test_a_path_below_a_file_is_refused_before_anything_starts(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kind = command.settings_class
    types = {
        name: _path_types(Annotated[field.annotation, *field.metadata, ""])
        for name, field in kind.model_fields.items()
    }
    for name, checks in types.items():
        wrong = [tmp_path / "file" / "x", tmp_path / "file" / "x" / "y"] if checks else []
        wrong += [tmp_path / "file"] if "_check_folder" in checks else []
        for path in map(str, wrong):
            done = call(main, [*command.name.split(), *_argv(kind, name, path)])
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), (name, done.stderr)
            said = "is not a folder" if "://" not in str(kind.model_fields[name].metadata) else "should match"
            assert re.search(rf" {name}(\.0)?: [^;]*{said} [^;]*\(got \W*{re.escape(path)}'", done.stderr), (
                done.stderr
            )
        if "_check_file" in checks:
            done = call(main, [*command.name.split(), *_argv(kind, name, str(tmp_path))])
            assert done.returncode == 2 and f"{name}: it is a folder (got '{tmp_path}')" in done.stderr


def test_settings_that_are_paths_by_their_help_are_so_by_their_type() -> None:
    names = {
        f"{command.name} {name}: {field.annotation}"
        for command in RUNNABLE
        for name, field in command.settings_class.model_fields.items()
        if re.search(r"\b([Ff]older|[Ff]iles?|[Dd]irectory|[Pp]ath)\b", field.description or "")
        and str in (field.annotation, *get_args(field.annotation))
        and not _path_types(Annotated[field.annotation, *field.metadata, ""])
        and name not in ("run", "name", "set", "text")  # names; a text that is in a file or not
    }
    assert not names


def test_no_model_is_made_below_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "x"):
        monkeypatch.setattr("sys.argv", ["smollm2", str(path)])
        assert smollm2.main() == 2
        fault = f"error: FOLDER: '{tmp_path}/file' is not a folder (got '{path}')\n"
        assert capsys.readouterr().err == fault


def test_a_default_below_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").touch()
    monkeypatch.chdir(tmp_path)
    for argv in (["status"], ["evaluate", "random"], ["up", "--dry-run"]):
        assert main(argv) == 2
        assert f"'{tmp_path}/runs' is not a folder" in capsys.readouterr().err


def test_an_empty_name_of_the_toml_file_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_CONFIG", "")
    assert main(["plan"]) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rookery {__version__}\n"


def test_the_changelog_ends_at_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[(\d+\.\d+\.\d+)\]", changelog, re.MULTILINE)[0] == __version__


def test_status_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--runs-dir", str(tmp_path)]) == 2
    assert f"no run in {str(tmp_path)!r}" in capsys.readouterr().err


def test_doctor_without_a_run_reports_about_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    with tarfile.open("rookery-doctor.tar.gz") as archive:
        file = archive.extractfile("rookery-doctor/versions.json")
        assert archive.getnames() == ["rookery-doctor/versions.json"] and file
        facts = json.load(file)
    assert {
        "python",
        "stockfish",
        "fairy-stockfish",
        "redis server",
        "GPUs",
        "torch",
        "memory",
    } <= facts.keys()
    assert facts["rookery"] == __version__ and facts["disk free, GiB"] >= 0
    if shutil.which("stockfish", path=os.environ["PATH"] + ":/usr/games"):
        assert facts["stockfish"].startswith("Stockfish ")
    assert f"stockfish: {facts['stockfish']}\n" in capsys.readouterr().out

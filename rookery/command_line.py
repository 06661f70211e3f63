"""Runs the command that a command line names. `rookery` and the `__main__` of each service call `main`.

All slow imports are made inside the functions, so that `main` can handle Ctrl-C during them.
"""

import errno
import gc
import importlib.util
import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rookery import __version__
from rookery.commands import BY_NAME, COMMANDS, Command, load

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as in shells."""

_PARTS = frozenset({"arena", "chess_datasets", "commentary", "launcher", "services"})
"""Packages of Rookery that an image may leave out."""

_EXAMPLES = """
A first run:

  rookery demo
  rookery score "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1" '\\boxed{e4}'
"""


def main(argv: Sequence[str] | None = None, *, prefix: str = "") -> int:
    """Runs one command and returns its exit status: 0 if all is done, 1 if it failed, 2 if the command, its
    settings or its input are wrong, so that the same call would fail again, 130 after Ctrl-C.

    `prefix` is put before the arguments, as `serve data` by `python -m services.data`, unless they name
    another command: `python -m services.trainer sft`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not (prefix in BY_NAME and BY_NAME[prefix].function and words and not words[0].startswith("-")):
        words = [*prefix.split(), *words]
    if argv is None:
        _prepare_process(words)
    try:
        return _run(words)
    except KeyboardInterrupt:
        return INTERRUPTED


def main_of(prefix: str, module: str) -> Callable[..., int]:
    """`main` with a prefix, for the module of that name. It is run at once if `python -m` runs the module."""
    program = partial(main, prefix=prefix)
    if module == "__main__":
        sys.exit(program())
    return program


def usage(family: str = "") -> str:
    """The help of `rookery`, or of a family of its commands."""
    rows = [command for command in COMMANDS if command.family == family]
    shown = [command.usage.removeprefix(family).lstrip() for command in rows]
    program = f"{family} {BY_NAME[family].usage.split()[1]}" if family else "COMMAND"
    lines, group = [f"usage: rookery {program} ..."], None
    for command, words in zip(rows, shown, strict=True):
        if command.group != group:
            group = command.group
            lines += ["", *([group] * bool(group))]
        lines.append(f"  {words:<{max(map(len, shown))}}  {command.summary}")
    lines.append(f"\n`rookery {program} --help` lists the flags of each.")
    return "\n".join(lines) + ("\n" if family else _EXAMPLES)


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        sys.stdout.write(f"rookery {__version__}\n")
        return 0
    name = _name(words)
    command, rest = BY_NAME.get(name), words[len(name.split()) :]
    if command and command.function:
        return _guarded(command, rest)
    if rest[:1] in (["-h"], ["--help"], ["help"]):
        sys.stdout.write(usage(name))
        return 0
    if not rest:
        sys.stderr.write(usage(name))
        return 2
    from rookery.errors import QUOTED_CHARS, SetupError
    from rookery.flags import meant
    from rookery.settings import fail

    known = [command.name.split()[-1] for command in COMMANDS if command.family == name]
    program = f"rookery {name}".strip()
    wrong = f"no command {rest[0][:QUOTED_CHARS]!r}{meant(rest[0], known)}"
    return fail(SetupError(f"{wrong} ({program} --help)"))


def _name(words: list[str]) -> str:
    """The name of the command or family that the words begin with."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in BY_NAME), "")


def _guarded(command: Command, argv: list[str]) -> int:
    from rookery.errors import RookeryError, SetupError
    from rookery.settings import fail

    try:
        return _execute(command, argv)
    except RookeryError as error:
        return fail(error, is_service=command.family == "serve")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] not in _PARTS:
            raise
        what = f"{error.name}, which is not installed here: an image has the parts of its own service"
        return fail(SetupError(f"rookery {command.name} needs {what}"))
    except BrokenPipeError:
        output = select.poll()
        output.register(sys.stdout, 0)
        if not output.poll(0):  # another pipe
            raise
        # The reader of the output closed it, as `| head` does. Python flushes it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _fail_of_system(command, error)


def _fail_of_system(command: Command, error: OSError) -> int:
    from rookery.errors import QUOTED_CHARS, RookeryError, SetupError
    from rookery.settings import fail

    if error.filename is None:  # a disk that filled up while something was written
        return fail(RookeryError(f"rookery {command.name}: {error.strerror}"))
    return fail(SetupError(f"{error.strerror}: {os.fsdecode(error.filename)[:QUOTED_CHARS]!r}"))


def _execute(command: Command, argv: list[str]) -> int:
    show = (lambda parsed: load(command.show)(parsed)) if command.show else None
    try:
        kind = command.settings_class
    except ModuleNotFoundError:
        _require(command)
        raise
    settings = kind.parse(argv, prog=f"rookery {command.name}", show=show)
    _require(command)
    if command.logs:
        from rookery.logs import configure

        configure(command.logs, level=command.level)
    _warn_of_misspelt()
    if command.prepare:
        load(command.prepare)(settings)
    function = load(command.function)
    if not gc.isenabled():  # see `_prepare_process`
        gc.freeze()
        gc.enable()
    status = function(settings)
    if hasattr(status, "send"):  # a coroutine
        import asyncio

        status = asyncio.run(status)
    sys.stdout.flush()
    return status if isinstance(status, int) else 0


def _warn_of_misspelt() -> None:
    import logging

    from rookery.access import TOKEN_VARIABLE
    from rookery.settings import misspelt_variables

    for name, meant in misspelt_variables(os.environ, TOKEN_VARIABLE).items():
        logging.getLogger(__name__).warning("nothing reads the variable %s; did you mean %s?", name, meant)


def _require(command: Command) -> None:
    from rookery.errors import SetupError

    for package, extra in command.needs:
        if importlib.util.find_spec(package) is None:
            raise SetupError(f"rookery {command.name} needs {package}: pip install 'rookery[{extra}]'")


def _prepare_process(words: list[str]) -> None:
    """Has Ctrl-C end the process quietly wherever it comes. What is not of the launcher can import modules in
    the working folder, such as reward functions."""
    # Until the modules are imported: garbage collection takes up to a fifth of a start with torch.
    gc.disable()
    command = BY_NAME.get(_name(words))
    if command and not command.function.startswith("launcher.") and not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # noqa: PTH109 - pathlib is a slow import
    sys.unraisablehook = _end_if_interrupted
    # asyncio.run replaces this handler, and no other one.
    signal.default_int_handler = _interrupt  # type: ignore[assignment]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for a job in the background
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: "FrameType | None") -> None:
    """Handles Ctrl-C. It ends the process during an import: packages would convert or print the exception."""
    if is_importing(frame):
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def is_importing(frame: "FrameType | None") -> bool:
    """Whether an import is under way in this frame or its callers."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end_if_interrupted(unraisable: "sys.UnraisableHookArgs") -> None:
    """Ends the process if a signal came where Python would print a traceback and go on, as in destructors."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    if isinstance(unraisable.exc_value, SystemExit) and isinstance(unraisable.exc_value.code, int):
        os._exit(unraisable.exc_value.code)
    sys.__unraisablehook__(unraisable)

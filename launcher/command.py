"""The `rookery` command.

A command of a service runs `python -m services.X` with the same flags in this process, so no service is
imported here. All slow imports are made inside the functions, so that `main` can handle Ctrl-C during them.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from rookery import __version__

TYPE_CHECKING = False  # importing `typing` is slow
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    from rich.console import Console

USAGE = """usage: rookery COMMAND ...

Whole runs on this machine
  demo                    train on the sample games for a few minutes, then compare before and after
  sweep --vary ...        run the demo under several settings and seeds, and measure what each changes
  up                      start all services and train until --steps, --minutes or Ctrl-C
  status                  show the state of a run: versions, groups, streams, services
  doctor                  gather what a bug report needs about a run into one file
  dead ACTION             list, show, replay or drop the entries that a run could not handle
  view [RUN]              look at the answers of a run in a browser
  exporter                export a run's streams as Prometheus metrics

Single parts
  serve SERVICE           start one service: data, feed, archive, reward, reward-model, inference, rollouts,
                          trainer, arena, viewer or players
  ask FEN                 ask a model for its move, and judge the answer
  score FEN RESPONSE      score one answer
  check TEXT --fen FEN    mark what is true and false in a text about a position, or in the comments of a PGN
  data ...                make positions and data sets from games
  replay ARCHIVE          train on the groups of an archive again, and compare the bytes of each version
  rescore ARCHIVE ...     score the answers of an archive again with another scheme
  sft ...                 fine-tune a model on chat examples
  reward-model ...        train a reward model on preference pairs
  dpo ...                 train a policy on preference pairs (DPO)
  merge RUN[@VERSION]     write a version of a run as a model of its own
  push RUN[@VERSION] REPO upload a version of a run to the Hugging Face Hub, with a model card
  autobatch ...           measure the largest batch that fits into memory
  arena ...               the arena's commands, on services that run already
  uci ...                 play as a UCI engine, in a GUI, a match or on Lichess

Pipelines, from games to an evaluated policy
  pipeline run FILE       run the steps of a pipeline file that are not up to date

Before a run
  plan                    predict speed, engine cores, bandwidth and cost of a run from measured points

Results
  evaluate PLAYER ...     evaluate models, runs and engines: positions, puzzles, suites, reasoning, matches
  plot RUN ...            draw the training curves of runs
  compare RUN RUN ...     compare runs: curves, and means of the last steps with intervals

`rookery COMMAND --help` lists the flags of each. A first run:

  rookery demo
  rookery score "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1" '\\boxed{e4}'
"""

SERVE_USAGE = """usage: rookery serve SERVICE [flags]

  data          serves positions over HTTP and gRPC
  feed          adds positions to the run's stream
  archive       writes every group of a run to Parquet files, on a disk or in S3
  reward        scores answers with Stockfish
  reward-model  scores answers with a trained reward model
  inference     serves the policy with vLLM
  rollouts      samples completions for positions and has them scored
  trainer       trains the policy on the scored groups
  arena         evaluates every Nth version of a run while it trains
  viewer        shows the answers of runs on a web page
  players       serves models and versions of runs for games, until its input ends

`rookery serve SERVICE --help` lists the flags.
"""

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as in shells."""

EXTRAS = {
    "chess_datasets": ("pyarrow", "data"),
    "services.data": ("pyarrow", "data"),
    "services.data.feed": ("fastapi", "data"),
    "services.data.archiver": ("pyarrow", "data"),
    "services.reward": ("fastapi", "reward"),
    "services.inference.server": ("vllm", "inference] or rookery[inference-cpu"),
    "services.inference.rollouts": ("fastapi", "rollouts"),
    "services.trainer": ("torch", "trainer"),
    "arena": ("matplotlib", "arena"),
    "services.viewer": ("duckdb", "viewer"),
}
"""For each module, a package that it requires and the extra that installs it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Ctrl-C ends it without a traceback."""
    if argv is None:
        sys.unraisablehook = _end_if_interrupted
        # asyncio.run replaces this handler, and no other one.
        signal.default_int_handler = _interrupt  # type: ignore[assignment]
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for a job in the background
            signal.signal(signal.SIGINT, _interrupt)
    command, *rest = list(sys.argv[1:] if argv is None else argv) or [""]
    if command in ("-h", "--help", "help"):
        sys.stdout.write(USAGE)
        return 0
    if command == "--version":
        sys.stdout.write(f"rookery {__version__}\n")
        return 0
    if command not in COMMANDS:
        sys.stderr.write(f"error: no command {command!r}\n\n{USAGE}" if command else USAGE)
        return 2
    try:
        return _run(command, rest)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: str, rest: list[str]) -> int:
    from rookery.errors import RookeryError, SetupError

    try:
        return COMMANDS[command](rest)
    except RookeryError as error:
        fault = error
    except OSError as error:
        if error.filename is None:
            raise
        fault = SetupError(f"{error.strerror}: {os.fsdecode(error.filename)!r}")
    from rookery.settings import fail

    return fail(fault)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles Ctrl-C. It ends the process during an import: packages would convert or print the exception."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """Ends the process if Ctrl-C came where Python would print a traceback and go on, as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(INTERRUPTED)
    sys.__unraisablehook__(unraisable)


def _serve(rest: list[str]) -> int:
    service, *flags = rest or [""]
    if service in ("-h", "--help"):
        sys.stdout.write(SERVE_USAGE)
        return 0
    if service == "players":
        from launcher.serve_players import PlayersSettings, serve_until_eof

        return serve_until_eof(PlayersSettings.parse(flags, prog="rookery serve players"))
    from launcher.services import SERVICES

    if service not in SERVICES:
        said = f"error: no service {service!r}\n\n" if service else ""
        sys.stderr.write(said + SERVE_USAGE)
        return 2
    return _become(SERVICES[service].module, *SERVICES[service].arguments, *flags)


def _become(module: str, *arguments: str) -> int:
    """Runs `python -m module arguments` in this process. It ends with `SystemExit`."""
    import runpy

    _require(module)
    sys.argv = [module, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()  # noqa: PTH109 - pathlib is a slow import
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def _require(module: str) -> None:
    from rookery.errors import SetupError

    package, extra = EXTRAS[module]
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"{module} needs {package}: pip install 'rookery[{extra}]'")


def _console(**options: Any) -> Console:
    from rookery.terminal import SafeConsole

    return SafeConsole(**options)


def _plain(**options: Any) -> Console:
    """One that neither colours numbers nor breaks lines."""
    return _console(highlight=False, soft_wrap=True, **options)


def _up(rest: list[str]) -> int:
    from launcher.settings import UpSettings
    from launcher.up import print_services, up

    return up(UpSettings.parse(rest, prog="rookery up", show=print_services), _console())


def _demo(rest: list[str]) -> int:
    from launcher.demo import demo
    from launcher.settings import DemoSettings
    from launcher.up import print_services

    return demo(DemoSettings.parse(rest, prog="rookery demo", show=print_services), _console())


def _sweep(rest: list[str]) -> int:
    from launcher.sweep import SweepSettings, print_runs, sweep

    return sweep(SweepSettings.parse(rest, prog="rookery sweep", show=print_runs), _console())


_OWN: dict[str, tuple[str, str, str, Callable[[], Console]]] = {
    "status": ("status", "StatusSettings", "status", _console),
    "dead": ("dead", "DeadSettings", "dead", _plain),
    "doctor": ("doctor", "DoctorSettings", "doctor", _plain),
    "replay": ("replay", "ReplaySettings", "replay", _plain),
    "view": ("view", "ViewSettings", "view", _plain),
    "evaluate": ("evaluate", "EvaluateSettings", "evaluate", _console),
    "ask": ("ask", "AskSettings", "ask", _plain),
    "pipeline": ("pipeline.command", "PipelineSettings", "main", partial(_plain, markup=False)),
    "plot": ("plots.command", "PlotSettings", "plot", _console),
    "compare": ("plots.command", "CompareSettings", "compare_runs", _console),
}
"""Commands of a module here: the module, its settings, its function, and the console that it writes to."""

_STARTS = {
    "replay": ("chess_datasets", "services.trainer"),
    "view": ("services.viewer",),
    "evaluate": ("arena",),
    "ask": ("services.inference.server",),
}
"""The services that must be installed for a command."""


def _own(command: str, rest: list[str]) -> int:
    module, kind, function, console = _OWN[command]
    own = importlib.import_module(f"launcher.{module}")
    settings = getattr(own, kind).parse(rest, prog=f"rookery {command}")
    for service in _STARTS.get(command, ()):
        _require(service)
    status: int = getattr(own, function)(settings, console())
    return status


def _exporter(rest: list[str]) -> int:
    from launcher.exporter import ExporterSettings, export
    from rookery.errors import SetupError

    settings = ExporterSettings.parse(rest, prog="rookery exporter")
    if importlib.util.find_spec("fastapi") is None:
        raise SetupError("rookery exporter needs fastapi: pip install 'rookery[rollouts]'")
    return export(settings)


def _data(rest: list[str]) -> int:
    return _become("chess_datasets", *rest)


def _check(rest: list[str]) -> int:
    from launcher.check import check

    return check(rest)


def _uci(rest: list[str]) -> int:
    """The arena cannot start an inference server by itself: it is told the command that does."""
    import shlex

    server = shlex.join([sys.executable, "-m", "launcher", "serve", "players"])
    return _become("arena", "uci", "--server-command", server, *rest)


def _plan(rest: list[str]) -> int:
    from launcher.capacity import CapacitySettings, plan

    return plan(CapacitySettings.parse(rest, prog="rookery plan"))


def _train(command: str, rest: list[str]) -> int:
    """A command of the trainer, which has it under the same name."""
    return _become("services.trainer", command, *rest)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "up": _up,
    "demo": _demo,
    "sweep": _sweep,
    **{name: partial(_own, name) for name in _OWN},
    "exporter": _exporter,
    "check": _check,
    "score": lambda rest: _become("services.reward", "score", *rest),
    **{name: partial(_train, name) for name in ("sft", "reward-model", "dpo", "merge", "push", "autobatch")},
    "data": _data,
    "rescore": lambda rest: _become("chess_datasets", "rescore", *rest),
    "arena": lambda rest: _become("arena", *rest),
    "uci": _uci,
    "plan": _plan,
}

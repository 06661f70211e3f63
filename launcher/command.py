"""The `rookery` command.

A command of a service replaces this process by `python -m services.X` with the same flags, so no service is
imported here. Slow imports are made inside the functions, so that `main` can handle Ctrl-C during them.
"""

import importlib
import importlib.util
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from launcher.services import MODULES, SUBCOMMANDS
from rookery import __version__

USAGE = """usage: rookery COMMAND ...

Whole runs on this machine
  demo                    train on the sample games for a few minutes, then compare before and after
  up                      start all services and train until --steps, --minutes or Ctrl-C
  status                  show the state of a run: versions, groups, streams, services
  doctor                  gather what a bug report needs about a run into one file
  dead ACTION             list, show, replay or drop the entries that a run could not handle
  view [RUN]              look at the answers of a run in a browser
  exporter                export a run's streams as Prometheus metrics

Single parts
  serve SERVICE           start one service: data, feed, archive, reward, reward-model, inference, rollouts,
                          trainer, arena, viewer or players
  score FEN RESPONSE      score one answer
  check TEXT --fen FEN    mark what is true and false in a text about a position, or in the comments of a PGN
  data ...                make positions and data sets from games
  replay ARCHIVE          train on the groups of an archive again, and compare the bytes of each version
  rescore ARCHIVE ...     score the answers of an archive again with another scheme
  sft ...                 fine-tune a model on chat examples
  reward-model ...        train a reward model on preference pairs
  dpo ...                 train a policy on preference pairs (DPO)
  autobatch ...           measure the largest batch that fits into memory
  arena ...               the arena's commands, on services that run already
  uci ...                 play as a UCI engine, in a GUI, a match or on Lichess

Roads from games to an evaluated policy
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

EXTRAS = {
    "services.data": ("pyarrow", "data"),
    "services.data.feed": ("fastapi", "data"),
    "services.data.archiver": ("pyarrow", "data"),
    "services.reward": ("fastapi", "reward"),
    "services.inference.server": ("vllm", "inference] or rookery[inference-cpu"),
    "services.inference.rollouts": ("fastapi", "rollouts"),
    "services.trainer": ("torch", "trainer"),
    "services.arena": ("matplotlib", "arena"),
    "services.viewer": ("duckdb", "viewer"),
}
"""For each module, a package that it requires and the extra that installs it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
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
        from rookery.errors import RookeryError

        return COMMANDS[command](rest)
    except KeyboardInterrupt:  # before the command has installed its own handler, e.g. during its imports
        return 130
    except RookeryError as error:
        from rookery.settings import fail

        return fail(error)


def _serve(rest: list[str]) -> int:
    service, *flags = rest or [""]
    if service in ("-h", "--help"):
        sys.stdout.write(SERVE_USAGE)
        return 0
    if service == "players":
        from launcher.serve_players import PlayersSettings, serve_until_eof

        return serve_until_eof(PlayersSettings.parse(flags, prog="rookery serve players"))
    if service not in MODULES:
        said = f"error: no service {service!r}\n\n" if service else ""
        sys.stderr.write(said + SERVE_USAGE)
        return 2
    return _become(MODULES[service], *SUBCOMMANDS.get(service, ()), *flags)


def _become(module: str, *arguments: str) -> int:
    _require(module)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is meant


def _require(module: str) -> None:
    from rookery.errors import SetupError

    package, extra = EXTRAS[module]
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"{module} needs {package}: pip install 'rookery[{extra}]'")


def _own(name: str, kind: str, *needed: str, place: str = "", **options: Any) -> Callable[[list[str]], int]:
    """The command `rookery NAME`: a function of `launcher.NAME`, or the one at `place`, MODULE:FUNCTION.

    `kind` names the class of its settings, `needed` modules of services, and `options` are the console's. A
    function `print_services` in the module prints the settings for --dry-run.
    """

    def command(rest: list[str]) -> int:
        module_name, _, function = (place or f"{name}:{name}").partition(":")
        module = importlib.import_module(f"launcher.{module_name}")
        run: Callable[[Any, Any], int] = getattr(module, function)
        show = getattr(module, "print_services", None)
        settings = getattr(module, kind).parse(rest, prog=f"rookery {name}", show=show)
        for service in needed:
            _require(service)
        from rich.console import Console

        return run(settings, Console(**options))

    return command


def _exporter(rest: list[str]) -> int:
    from launcher.exporter import ExporterSettings, export
    from rookery.errors import SetupError

    settings = ExporterSettings.parse(rest, prog="rookery exporter")
    if importlib.util.find_spec("fastapi") is None:
        raise SetupError("rookery exporter needs fastapi: pip install 'rookery[rollouts]'")
    return export(settings)


def _data(rest: list[str]) -> int:
    """Lists the data commands if none is given. The data service is started by `rookery serve data`."""
    return _become("services.data", *(["help"] if rest[:1] in ([], ["-h"], ["--help"]) else rest))


def _check(rest: list[str]) -> int:
    from launcher.check import check

    return check(rest)


def _uci(rest: list[str]) -> int:
    """The arena cannot start an inference server by itself: it is told the command that does."""
    server = shlex.join([sys.executable, "-m", "launcher", "serve", "players"])
    return _become("services.arena", "uci", "--server-command", server, *rest)


def _plan(rest: list[str]) -> int:
    from launcher.capacity import CapacitySettings, plan

    return plan(CapacitySettings.parse(rest, prog="rookery plan"))


def _fit(command: str) -> Callable[[list[str]], int]:
    """A command of the trainer, which has it under the same name."""
    return lambda rest: _become("services.trainer", command, *rest)


_PLAIN: dict[str, Any] = {"highlight": False, "soft_wrap": True}

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "up": _own("up", "UpSettings"),
    "demo": _own("demo", "DemoSettings", place="up:demo"),
    "status": _own("status", "StatusSettings"),
    "dead": _own("dead", "DeadSettings", **_PLAIN),
    "doctor": _own("doctor", "DoctorSettings", **_PLAIN),
    "replay": _own("replay", "ReplaySettings", "services.data", "services.trainer", **_PLAIN),
    "view": _own("view", "ViewSettings", "services.viewer", **_PLAIN),
    "exporter": _exporter,
    "check": _check,
    "score": lambda rest: _become("services.reward", "score", *rest),
    **{name: _fit(name) for name in ("sft", "reward-model", "dpo", "autobatch")},
    "data": _data,
    "rescore": lambda rest: _become("services.data", "rescore", *rest),
    "arena": lambda rest: _become("services.arena", *rest),
    "uci": _uci,
    "evaluate": _own("evaluate", "EvaluateSettings", "services.arena"),
    "pipeline": _own("pipeline", "PipelineSettings", place="pipeline.command:main", markup=False, **_PLAIN),
    "plan": _plan,
    "plot": _own("plot", "PlotSettings", place="plots.command:plot"),
    "compare": _own("compare", "CompareSettings", place="plots.command:compare_runs"),
}

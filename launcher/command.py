"""The `rookery` command: finds the right door and steps aside.

A command that a service answers itself replaces this process by `python -m services.X`, flags
untouched; nothing of a service is imported here, and nothing heavy before `main` can answer Ctrl-C.
"""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence

from rookery import __version__

USAGE = """usage: rookery COMMAND ...

A whole run on this machine
  demo                    train on the sample games for a few minutes, then compare before with after
  up                      start every part and train until --steps, --minutes or Ctrl-C
  status                  what a run is doing: versions, groups, streams, services
  exporter                a run's streams as Prometheus metrics

Parts
  serve SERVICE           one service: data, feed, archive, reward, reward-model, inference, rollouts, trainer
  score FEN RESPONSE      judge one answer
  data ...                make positions and data sets from games
  rescore ARCHIVE ...     judge the answers of an archive again, under another scheme
  sft ...                 fine-tune a model on chat examples
  reward-model ...        learn from preference pairs how good an answer is
  dpo ...                 learn from preference pairs what to answer
  autobatch ...           measure which batch fits into memory
  arena ...               compare policies on held-out positions

Looking back
  plot RUN ...            the curves of a run's training as a picture
  compare RUN RUN ...     several runs over each other, their last steps with intervals

`rookery COMMAND --help` lists the flags of each. A first run:

  rookery demo
  rookery score "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1" '\\boxed{e4}'
"""

SERVE_USAGE = """usage: rookery serve SERVICE [flags]

  data          positions over HTTP and gRPC
  feed          keeps the stream of positions topped up
  archive       keeps every group of a run in Parquet, on a disk or in S3
  reward        answers -> verdicts, by Stockfish
  reward-model  answers -> rewards, by a learned model
  inference     the policy, served by vLLM
  rollouts      positions -> scored groups of completions
  trainer       groups -> gradient -> adapter

`rookery serve SERVICE --help` lists the flags.
"""

SERVICES = {
    "data": "services.data",
    "feed": "services.data.feed",
    "archive": "services.data.archiver",
    "reward": "services.reward",
    "reward-model": "services.trainer",
    "inference": "services.inference.server",
    "rollouts": "services.inference.rollouts",
    "trainer": "services.trainer",
}

EXTRAS = {
    "services.data": ("pyarrow", "data"),
    "services.data.feed": ("fastapi", "data"),
    "services.data.archiver": ("pyarrow", "data"),
    "services.reward": ("fastapi", "reward"),
    "services.inference.server": ("vllm", "inference] or rookery[inference-cpu"),
    "services.inference.rollouts": ("fastapi", "rollouts"),
    "services.trainer": ("torch", "trainer"),
    "services.arena": ("matplotlib", "arena"),
}
"""A package that each module cannot do without, and the extra that brings it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit status."""
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
    except KeyboardInterrupt:  # before the command itself takes care of it, in its imports for example
        return 130
    except RookeryError as error:
        from rookery.settings import fail

        return fail(error)


def _serve(rest: list[str]) -> int:
    service, *flags = rest or [""]
    if service in ("-h", "--help"):
        sys.stdout.write(SERVE_USAGE)
        return 0
    if service not in SERVICES:
        said = f"error: no service {service!r}\n\n" if service else ""
        sys.stderr.write(said + SERVE_USAGE)
        return 2
    words = ("serve-reward-model",) if service == "reward-model" else ()
    return _become(SERVICES[service], *words, *flags)


def _become(module: str, *arguments: str) -> int:
    from rookery.errors import SetupError

    package, extra = EXTRAS[module]
    if importlib.util.find_spec(package) is None:
        raise SetupError(f"{module} needs {package}: pip install 'rookery[{extra}]'")
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - no shell is meant


def _up(rest: list[str]) -> int:
    from launcher.dry_run import print_services
    from launcher.settings import UpSettings

    settings = UpSettings.parse(rest, prog="rookery up", show=print_services)
    from rich.console import Console

    from launcher.up import up

    return up(settings, Console())


def _demo(rest: list[str]) -> int:
    from launcher.dry_run import print_services
    from launcher.settings import DemoSettings

    settings = DemoSettings.parse(rest, prog="rookery demo", show=print_services)
    from rich.console import Console

    from launcher.demo import demo

    return demo(settings, Console())


def _status(rest: list[str]) -> int:
    from launcher.status import StatusSettings, status

    return status(StatusSettings.parse(rest, prog="rookery status"))


def _exporter(rest: list[str]) -> int:
    from launcher.exporter import ExporterSettings, export
    from rookery.errors import SetupError

    settings = ExporterSettings.parse(rest, prog="rookery exporter")
    if importlib.util.find_spec("fastapi") is None:
        raise SetupError("rookery exporter needs fastapi: pip install 'rookery[rollouts]'")
    return export(settings)


def _plot(rest: list[str]) -> int:
    from launcher.plots.settings import PlotSettings

    settings = PlotSettings.parse(rest, prog="rookery plot")
    from rich.console import Console

    from launcher.plots.command import plot

    return plot(settings, Console())


def _compare(rest: list[str]) -> int:
    from launcher.plots.settings import CompareSettings

    settings = CompareSettings.parse(rest, prog="rookery compare")
    from rich.console import Console

    from launcher.plots.command import compare_runs

    return compare_runs(settings, Console())


def _data(rest: list[str]) -> int:
    """Without a command its list; `rookery serve data` is what serves."""
    return _become("services.data", *(["help"] if rest[:1] in ([], ["-h"], ["--help"]) else rest))


def _fit(command: str) -> Callable[[list[str]], int]:
    """Training on a file, which the trainer does under the same name."""
    return lambda rest: _become("services.trainer", command, *rest)


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "serve": _serve,
    "up": _up,
    "demo": _demo,
    "status": _status,
    "exporter": _exporter,
    "score": lambda rest: _become("services.reward", "score", *rest),
    **{name: _fit(name) for name in ("sft", "reward-model", "dpo")},
    "autobatch": lambda rest: _become("services.trainer", "autobatch", *rest),
    "data": _data,
    "rescore": lambda rest: _become("services.data", "rescore", *rest),
    "arena": lambda rest: _become("services.arena", *rest),
    "plot": _plot,
    "compare": _compare,
}

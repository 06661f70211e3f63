"""`python -m services.arena evaluate | curve | uci`. Flags are parsed before large packages are imported."""

import asyncio
import sys

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import fail
from services.arena.settings import CurveSettings, EvaluateSettings

_USAGE = """usage: python -m services.arena {evaluate,curve,uci} ...

evaluate   evaluate players on positions, puzzles and test suites
curve      draw the learning curve of a run folder
uci        play as a UCI engine

`python -m services.arena COMMAND --help` lists the flags of each.
"""


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command not in _COMMANDS:
        asked = command in ("-h", "--help")
        (sys.stdout if asked else sys.stderr).write(_USAGE)
        return 0 if asked else 2
    configure("arena", level="WARNING")
    try:
        _COMMANDS[command](rest)
    except SetupError as error:
        return fail(error)
    except RookeryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _evaluate(arguments: list[str]) -> None:
    settings = EvaluateSettings.parse(arguments, prog="python -m services.arena evaluate")
    from services.arena.session import run

    asyncio.run(run(settings))


def _curve(arguments: list[str]) -> None:
    settings = CurveSettings.parse(arguments, prog="python -m services.arena curve")
    from rookery.plots.picture import overview
    from rookery.plots.steps import METRICS_FILE, read_metrics
    from services.arena.report import CURVE_FILE, replace_file

    replace_file(settings.run_dir / CURVE_FILE, overview(read_metrics(settings.run_dir / METRICS_FILE)))


def _uci(arguments: list[str]) -> None:
    from services.arena.uci.settings import UciSettings

    settings = UciSettings.parse(arguments, prog="rookery uci")
    from services.arena.uci.session import run

    asyncio.run(run(settings))


_COMMANDS = {"evaluate": _evaluate, "curve": _curve, "uci": _uci}

if __name__ == "__main__":
    sys.exit(main())

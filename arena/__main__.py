"""`python -m arena COMMAND`. Flags are parsed before the large packages are imported."""

import asyncio
import importlib
import inspect
import sys

from rookery.config import arena as settings
from rookery.errors import RookeryError
from rookery.logs import configure
from rookery.settings import Settings, fail

_USAGE = """usage: python -m arena {evaluate,watch,curve,match,tournament,elo,uci} ...

evaluate     evaluate players on positions, puzzles and test suites
watch        evaluate every Nth version of a run while it trains
curve        draw the learning curve of a run folder
match        play games between two players; --sprt stops as soon as it is clear who is stronger
tournament   play games between many players and fit their ratings together
elo          fit the ratings of all players of a games.jsonl
uci          play as a UCI engine

`python -m arena COMMAND --help` lists the flags of each.
"""

_COMMANDS: dict[str, tuple[type[Settings], str, str]] = {
    "evaluate": (settings.EvaluateSettings, "session", "run"),
    "watch": (settings.WatchSettings, "watch", "serve_watcher"),
    "curve": (settings.CurveSettings, "report", "write_curve"),
    "match": (settings.MatchSettings, "matches.session", "run_match"),
    "tournament": (settings.TournamentSettings, "matches.session", "run_tournament"),
    "elo": (settings.EloSettings, "matches.session", "run_elo"),
    "uci": (settings.UciSettings, "uci.session", "run"),
}
"""The settings of each command, and its function, whose module is imported once they are parsed."""


def main(argv: list[str] | None = None) -> int:
    command, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if command not in _COMMANDS:
        wants_help = command in ("-h", "--help")
        (sys.stdout if wants_help else sys.stderr).write(_USAGE)
        return 0 if wants_help else 2
    configure("arena", level="WARNING")
    kind, module, function = _COMMANDS[command]
    try:
        parsed = kind.parse(rest, prog="rookery uci" if command == "uci" else f"python -m arena {command}")
        running = getattr(importlib.import_module(f"arena.{module}"), function)(parsed)
        if inspect.iscoroutine(running):
            asyncio.run(running)
    except RookeryError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m services.arena COMMAND`. Flags are parsed before the large packages are imported."""

import asyncio
import sys

from rookery.errors import RookeryError, SetupError
from rookery.logs import configure
from rookery.settings import fail
from services.arena.matches.settings import EloSettings, MatchSettings, PlanSettings, TournamentSettings
from services.arena.settings import CurveSettings, EvaluateSettings, WatchSettings

_USAGE = """usage: python -m services.arena {evaluate,watch,curve,match,tournament,elo,plan,uci} ...

evaluate     evaluate players on positions, puzzles and test suites
watch        evaluate every Nth version of a run while it trains
curve        draw the learning curve of a run folder
match        play games between two players; --sprt stops as soon as it is clear who is stronger
tournament   play games between many players and fit their ratings together
elo          fit the ratings of all players of a games.jsonl
plan         compute how many games are needed to answer a question
uci          play as a UCI engine

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
    from services.arena.report import CURVE_FILE, learning_curve, replace_file

    replace_file(settings.run_dir / CURVE_FILE, learning_curve(settings.run_dir))


def _watch(arguments: list[str]) -> None:
    settings = WatchSettings.parse(arguments, prog="python -m services.arena watch")
    configure("arena")
    from services.arena.watch import serve_watcher

    asyncio.run(serve_watcher(settings))


def _match(arguments: list[str]) -> None:
    settings = MatchSettings.parse(arguments, prog="python -m services.arena match")
    from services.arena.matches.session import run_match

    asyncio.run(run_match(settings))


def _tournament(arguments: list[str]) -> None:
    settings = TournamentSettings.parse(arguments, prog="python -m services.arena tournament")
    from services.arena.matches.session import run_tournament

    asyncio.run(run_tournament(settings))


def _elo(arguments: list[str]) -> None:
    settings = EloSettings.parse(arguments, prog="python -m services.arena elo")
    from services.arena.matches.session import run_elo

    run_elo(settings)


def _plan(arguments: list[str]) -> None:
    settings = PlanSettings.parse(arguments, prog="python -m services.arena plan")
    from services.arena.strength.plan import plan

    sys.stdout.write(plan(settings.elo, settings.margin, settings.draws, settings.alpha, settings.beta))


def _uci(arguments: list[str]) -> None:
    from services.arena.uci.settings import UciSettings

    settings = UciSettings.parse(arguments, prog="rookery uci")
    from services.arena.uci.session import run

    asyncio.run(run(settings))


_COMMANDS = {
    "evaluate": _evaluate,
    "watch": _watch,
    "curve": _curve,
    "match": _match,
    "tournament": _tournament,
    "elo": _elo,
    "plan": _plan,
    "uci": _uci,
}

if __name__ == "__main__":
    sys.exit(main())

"""The commands of `rookery data`.

Each is `main` in the module of its name, or a function of its name in `games`. It takes the arguments and
returns the exit status. The module is imported only when its command runs.
"""

import importlib
import sys

COMMANDS = {
    "index": "write an index beside a file of games, for direct access to any game",
    "sample": "print positions from games, or write them to Parquet",
    "games": "write whole games, as PGN or as a JSON list of strings",
    "moves": "write a supervised data set: the move played, the legal moves, or whole games",
    "tasks": "write questions with answers: RookWorld's lines, legal moves, next positions, puzzles",
    "annotate": "write analyses in prose whose claims are checked on the board",
    "pairs": "write preference pairs: the engine's move and a weaker one",
    "stats": "count games or positions by phase, rating, result, time control; count duplicates",
    "republish": "add the groups of an archive to a run's stream again",
    "rescore": "compare the rewards of an archive with those of another scheme",
}
"""One-line summaries by name."""


_HEAD = "usage: rookery data COMMAND ...\n\nPositions and data sets from games\n"
_TAIL = """
Services
  rookery serve data      positions over HTTP and gRPC
  rookery serve feed      keeps the stream of positions filled
  rookery serve archive   keeps every group of a run in Parquet

`rookery data COMMAND --help` shows flags and examples. To begin with:

  rookery data sample --count 3
  rookery data stats samples/lichess.pgn.zst
"""


def usage() -> str:
    """The help text: one line per command."""
    return _HEAD + "".join(f"  {name:<10}  {summary}\n" for name, summary in COMMANDS.items()) + _TAIL


def run(name: str, argv: list[str]) -> int:
    """Runs one command and returns its exit status."""
    if name in ("help", "-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"error: no command {name[:100]!r}\n\n{usage()}")
        return 2
    together = name in ("index", "games", "moves")
    module = importlib.import_module(f"{__name__}.{'games' if together else name}")
    status: int = getattr(module, name if together else "main")(argv)
    return status

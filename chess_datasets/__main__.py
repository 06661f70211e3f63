"""`python -m chess_datasets COMMAND`, which `rookery data COMMAND` runs."""

import sys
from importlib import import_module

from chess_datasets.commands import COMMANDS
from rookery.errors import RookeryError
from rookery.logs import configure
from rookery.settings import Settings, fail

_SERVICES = """
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
    lines = (f"  {name:<10}  {summary}\n" for name, (summary, *_) in COMMANDS.items())
    return (
        f"usage: rookery data COMMAND ...\n\nPositions and data sets from games\n{''.join(lines)}{_SERVICES}"
    )


def main(argv: list[str] | None = None) -> int:
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["help"]
    if name in ("help", "-h", "--help"):
        sys.stdout.write(usage())
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"error: no command {name[:100]!r}\n\n{usage()}")
        return 2
    _, module, settings_class, function = COMMANDS[name]
    place, _, class_name = settings_class.rpartition(".")
    kind: type[Settings] = getattr(import_module(place), class_name)
    configure("data", level="WARNING")
    try:
        settings = kind.parse(rest, prog=f"rookery {'data ' * (name != 'rescore')}{name}")
        status: int = getattr(import_module(module), function)(settings)
        return status
    except RookeryError as error:
        return fail(error)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

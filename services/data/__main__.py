"""The data service's commands."""

import argparse
import sys
from pathlib import Path

from rookery.errors import SetupError
from rookery.settings import fail


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m services.data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    _add_moves(commands.add_parser("moves", help="write a supervised data set from games"))
    arguments = parser.parse_args(argv)
    try:
        return _moves(arguments)
    except SetupError as error:
        return fail(error)


def _add_moves(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=Path, nargs="+", required=True, help=".pgn, .zst, .gz or .bz2")
    parser.add_argument("--out", type=Path, required=True, help="folder for moves.jsonl and manifest.json")
    parser.add_argument("--count", type=int, required=True, help="positions, one line each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--style", default="mover-squares", help="prompt style")
    parser.add_argument("--candidates", type=int, default=3, help="moves named before the choice")
    parser.add_argument("--legal-share", type=float, default=0.4, help="part of lines that list legal moves")
    parser.add_argument("--split", choices=["train", "heldout", "all"], default="train")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--compress", action="store_true", help="write moves.jsonl.zst")


def _moves(arguments: argparse.Namespace) -> int:
    from services.data.moves import Recipe, write_moves

    recipe = Recipe(
        count=arguments.count,
        seed=arguments.seed,
        style=arguments.style,
        candidates=arguments.candidates,
        legal_share=arguments.legal_share,
        split=arguments.split,
    )
    manifest = write_moves(
        arguments.source, arguments.out, recipe, jobs=arguments.jobs, compress=arguments.compress
    )
    skipped = manifest["skipped"]
    sys.stderr.write(
        f"{manifest['lines']} lines from {manifest['games']} games, {skipped['games']} games skipped "
        f"{skipped['by_defect'] or ''}\n"
    )
    for line in skipped["first"]:
        sys.stderr.write(f"  skipped {line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`rookery data games`: writes whole games and their manifest."""

import argparse
import sys
from typing import Any

from services.data.commands.flags import add_games, command_parser, positive, share, split_of
from services.data.commands.sample import add_filters, filters_of
from services.data.positions.games import GamesRecipe, write_games

EXAMPLES = """  rookery data games --elo-min 1800 --count 1000 --out runs/games
  rookery data games --form json --compress --out runs/list
  rookery data games --speed rapid classical --count 100000 --jobs 8 --out runs/slow
  rookery data moves --source runs/slow --style game-san --split all --count 100000 --out runs/sequences
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    options = _parser().parse_args(argv)
    chosen = {"count": options.count} if options.count else {}
    recipe = GamesRecipe(
        **chosen,
        seed=options.seed,
        form=options.form,
        split=split_of(options),
        filters=filters_of(options),
        games=options.games,
    )
    manifest = write_games(options.source, options.out, recipe, jobs=options.jobs, compress=options.compress)
    report(manifest)
    return 0


def report(manifest: dict[str, Any]) -> None:
    """Says on stderr how many games were written, and which were not."""
    skipped, left = manifest["skipped"], {k: n for k, n in manifest["rejected"].items() if k != "split"}
    sys.stderr.write(
        f"{manifest['games']} games of {manifest['sound']}, {skipped['games']} skipped"
        + f", left out by filters: {left}" * bool(left)
        + "\n"
    )
    sys.stderr.writelines(f"  skipped {line}\n" for line in skipped["first"])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "games",
        "Writes whole games, each once, in an order that the seed determines: as PGN, or as a JSON list of\n"
        "PGN strings. Both are sources of games, too. The same seed gives the same bytes. Training data of\n"
        "whole games are written by `rookery data moves --style game-san`.",
        examples=EXAMPLES,
    )
    add_games(parser)
    parser.add_argument("--count", type=positive, help="number of games (all)")
    parser.add_argument("--out", required=True, help="folder or URL for the games and manifest.json")
    parser.add_argument(
        "--form",
        choices=("pgn", "json"),
        default="pgn",
        help="games.pgn, or games.json, a list of strings (pgn)",
    )
    parser.add_argument("--compress", action="store_true", help="compress the games with zstd")
    parser.add_argument("--games", type=share, default=1.0, help="share of the games that is read (1)")
    parser.add_argument("--jobs", type=positive, default=1, help="number of processes (1)")
    add_filters(parser)
    return parser

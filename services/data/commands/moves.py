"""`rookery data moves`: writes a supervised data set and its manifest."""

import argparse
import sys
from typing import Any

from rookery.prompt import GAME_STYLES
from services.data.commands.flags import (
    add_exams,
    add_games,
    add_style,
    command_parser,
    positive,
    share,
    split_of,
)
from services.data.pgn.sources import find_sources

EXAMPLES = """  rookery data moves --count 5000 --out runs/moves
  rookery data moves --source games/*.pgn.zst --count 1000000 --jobs 8 --compress --out runs/moves
  rookery data moves --count 100000 --style fen --legal-share 0 --out runs/fen
  rookery data moves --count 100000 --style game-san --out runs/games
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    from services.data.tasks.moves import MovesRecipe, write_moves

    parser = _parser()
    options = parser.parse_args(argv)
    if options.style in GAME_STYLES:
        if options.exam:
            parser.error(f"--exam leaves out positions: with --style {options.style} a line is a whole game")
        if any(getattr(options, name) != parser.get_default(name) for name in ("candidates", "legal_share")):
            parser.error(f"--candidates and --legal-share have no effect with --style {options.style}")
        return _write_games(options)
    recipe = MovesRecipe(
        count=options.count,
        seed=options.seed,
        style=options.style,
        candidates=options.candidates,
        legal_share=options.legal_share,
        split=split_of(options),
    )
    sources = find_sources(options.source)
    manifest = write_moves(
        sources, options.out, recipe, exams=options.exam, jobs=options.jobs, compress=options.compress
    )
    _report(manifest, wanted=options.count)
    return 0


def _write_games(options: argparse.Namespace) -> int:
    from services.data.commands import games
    from services.data.positions.games import GamesRecipe, write_games

    recipe = GamesRecipe(
        count=options.count, seed=options.seed, form="moves", style=options.style, split=split_of(options)
    )
    games.report(
        write_games(options.source, options.out, recipe, jobs=options.jobs, compress=options.compress)
    )
    return 0


def _report(manifest: dict[str, Any], *, wanted: int) -> None:
    lines, skipped = manifest["lines"], manifest["skipped"]
    sys.stderr.write(f"{lines} lines from {manifest['games']} games, {skipped['games']} games skipped\n")
    if lines < wanted:
        left = f", {manifest['in_exams']} more are in --exam files" * bool(manifest["in_exams"])
        sys.stderr.write(f"{wanted} were asked for; there are {manifest['by_phase']}{left}\n")
    sys.stderr.writelines(f"  skipped {line}\n" for line in skipped["first"])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "moves",
        "Writes a supervised data set from games. The answer to a position is a few candidate moves and the\n"
        "move that was played, or the list of legal moves. With --style game-san or game-uci, a line is a\n"
        "whole game, and the answer is all of its moves. The same seed gives the same bytes.",
        examples=EXAMPLES,
    )
    add_games(parser)
    parser.add_argument("--count", type=positive, required=True, help="number of lines")
    parser.add_argument("--out", required=True, help="folder or URL for moves.jsonl and manifest.json")
    add_exams(parser)
    add_style(parser, default="mover-squares")
    parser.add_argument("--candidates", type=positive, default=3, help="candidate moves in an answer (3)")
    parser.add_argument(
        "--legal-share",
        type=share,
        default=0.4,
        help="share of the lines whose answer lists the legal moves (0.4)",
    )
    parser.add_argument("--jobs", type=positive, default=1, help="number of processes (1)")
    parser.add_argument("--compress", action="store_true", help="write moves.jsonl.zst")
    return parser

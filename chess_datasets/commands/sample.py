"""`rookery data sample`: prints positions from games, or writes them as a data set with a manifest."""

import argparse
import json
import os
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from chess_datasets.commands.flags import (
    add_exams,
    add_games,
    add_jobs,
    add_number,
    command_parser,
    natural,
    positive,
    recipe_of,
    report_exams,
    share,
)
from chess_datasets.pgn.games import Game
from chess_datasets.pgn.sources import find_sources
from chess_datasets.pgn.tags import CHESS960, STANDARD, Filters, Speed
from chess_datasets.positions.dataset import FORMS, position_value, write_positions
from chess_datasets.positions.recipe import PositionRecipe, Shares
from rookery.errors import InvalidInput
from rookery.masking import printable
from rookery.prompt import STYLES, render, task_of
from rookery.trace import Phase, Position

EXAMPLES = """  rookery data sample --count 3
  rookery data sample --game 8999067f:102 --count 1 --ply-min 50 --ply-max 50
  rookery data sample --split heldout --distinct --count 500 > heldout.jsonl
  rookery data sample --source lichess_db_standard_rated_2024-08.pgn.zst --count 1000000 --games 0.05 \\
      --elo-min 1800 --speed blitz rapid --no-bots --exam puzzles.csv --jobs 8 --out runs/positions
"""


def main(argv: list[str]) -> int:
    """Runs the command and returns the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    recipe = _recipe(options)
    default = _recipe(parser.parse_args(["--count", "1"]))
    printable = replace(
        default, count=recipe.count, seed=recipe.seed, split=recipe.split, shares=recipe.shares
    )
    if options.game:
        printable = replace(printable, ply_min=recipe.ply_min, ply_max=recipe.ply_max)
    has_writing_flags = bool(options.exam or options.jobs != 1 or options.form != "parquet")
    if not options.out and (recipe != printable or has_writing_flags):
        parser.error(
            "filters of games and plies, --exam, --form and --jobs only work for data sets: "
            "add --out, or leave these flags out"
        )
    if options.out and (options.offset or options.distinct or options.game or options.style):
        parser.error(
            "--offset, --distinct, --game and --style only work without --out: "
            "a data set never repeats a position"
        )
    if options.game and (recipe.split, recipe.shares) != (default.split, default.shares):
        parser.error("--game names one game: leave out --split and --shares")
    if options.out:
        manifest = write_positions(
            options.source, options.out, recipe, exams=options.exam, form=options.form, jobs=options.jobs
        )
        _report(manifest, wanted=options.count)
        return 0
    try:
        _print_positions(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again at exit
    return 0


def _recipe(options: argparse.Namespace) -> PositionRecipe:
    return recipe_of(PositionRecipe, options, shares=Shares(*options.shares), filters=filters_of(options))


def _report(manifest: dict[str, Any], *, wanted: int) -> None:
    games, skipped = manifest["games"], manifest["skipped"]
    read = f"{games['read']} of {games['seen']} games, {skipped['games']} skipped"
    if left_out := {name: count for name, count in games["rejected"].items() if name != "split"}:
        read += f", left out by filters: {left_out}"
    sys.stderr.write(f"{manifest['positions']} positions {manifest['by_phase']} from {read}\n")
    if manifest["terms"]["exams"]:
        report_exams(manifest["in_exams"])
    if manifest["positions"] < wanted:
        sys.stderr.write(f"{wanted} were asked for; there are no more\n")
    sys.stderr.writelines(printable(f"  skipped {line}\n") for line in skipped["first"])


def _print_positions(options: argparse.Namespace) -> None:
    from chess_datasets.pgn.collection import GameCollection
    from chess_datasets.positions.numbered import PositionOrder

    with closing(GameCollection(find_sources(options.source))) as games:
        order = PositionOrder(games, shares=Shares(*options.shares), split=options.split)
        if options.game:
            drawn: Iterable[Position] = _positions_of_game(games.find(options.game)[0], options)
        elif options.distinct:
            drawn = order.distinct(seed=options.seed)
        else:
            drawn = (order.position(n, seed=options.seed) for n in range(options.offset, sys.maxsize))
        written = _print(islice(drawn, options.count), style=options.style)
    if written < options.count:
        raise InvalidInput(
            f"{options.count} positions were asked for, but there are only {written}"
            + (f" in game {options.game!r}" if options.game else " distinct ones")
        )


def _positions_of_game(game: Game, options: argparse.Namespace) -> Iterator[Position]:
    """The positions of one game between --ply-min and --ply-max, in an order that the seed determines."""
    plies = [ply for phase in Phase for ply in game.plies(phase)]
    end = len(game.moves) if options.ply_max is None else options.ply_max
    chosen = sorted(ply for ply in plies if options.ply_min <= ply <= end)
    random.Random(f"{options.seed}:{game.id}").shuffle(chosen)
    return map(game.position, chosen)


def _print(positions: Iterable[Position], *, style: str) -> int:
    written = 0
    for position in positions:
        question = question_value(position, style=style) if style else {}
        sys.stdout.write(json.dumps(position_value(position) | question) + "\n")
        written += 1
    return written


def question_value(position: Position, *, style: str) -> dict[str, Any]:
    """The question about a position: its prompt, and the FEN and task to judge the answer by."""
    prompt = render(position, style=style)
    messages = [asdict(message) for message in prompt.messages]
    return {"prompt": messages, "fen": prompt.fen, "task": task_of(position, style=style)}


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "sample",
        "Draws positions from games: 20% opening, 60% middlegame, 20% endgame, and never a finished game.\n"
        "Without --out, prints one JSON object per line, in an endless order that the seed determines. With\n"
        "--out, reads files of any size once and writes a data set without repeated positions. Its manifest\n"
        "has all that is needed to make the same bytes again.",
        examples=EXAMPLES,
    )
    add_games(parser)
    parser.add_argument("--count", type=positive, required=True, help="number of positions")
    parser.add_argument(
        "--shares",
        type=float,
        nargs=3,
        default=(0.2, 0.6, 0.2),
        metavar=("OPENING", "MIDDLEGAME", "ENDGAME"),
        help="weights of the phases (0.2 0.6 0.2)",
    )
    _add_printing(parser)
    _add_writing(parser)
    add_filters(parser)
    return parser


def _add_printing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("to print")
    group.add_argument(
        "--style",
        choices=sorted(STYLES),
        default="",
        metavar="STYLE",
        help="add the prompt in this style; fen is then the board that the answer refers to",
    )
    start = group.add_mutually_exclusive_group()
    add_number(start, "--offset", natural, 0, "number of positions to skip first")
    start.add_argument(
        "--game",
        metavar="ID",
        help="only positions of this game, each once; --ply-min and --ply-max choose among them. "
        "ID is a game_id, or the first two parts of a position's id",
    )
    start.add_argument(
        "--distinct", action="store_true", help="leave out repeated positions, mirrored ones included"
    )


def _add_writing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("to write")
    group.add_argument(
        "--out", metavar="FOLDER", help="folder or URL for positions.parquet and manifest.json"
    )
    group.add_argument("--form", choices=FORMS, default="parquet", help="file format (parquet)")
    add_jobs(group)
    add_number(group, "--games", share, 1.0, "share of the games that is read")
    add_number(group, "--per-game", positive, 1, "the most positions of one phase from one game")
    add_number(group, "--ply-min", natural, 0, "the least number of half-moves before a position")
    group.add_argument("--ply-max", type=natural, help="the most half-moves before a position")
    add_number(group, "--choices-min", positive, 1, "the least number of legal moves")
    add_exams(group)


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose games by their tags: the fields of `Filters`."""
    group = parser.add_argument_group(
        "filters of games", "a game whose tags lack a value does not pass a filter on it"
    )
    group.add_argument("--elo-min", type=natural, help="the least rating of both players")
    group.add_argument("--elo-max", type=natural)
    group.add_argument("--elo-gap-max", type=natural, help="the largest difference between the ratings")
    group.add_argument(
        "--base-s-min", type=natural, help="the least time of a player at the start, in seconds"
    )
    group.add_argument("--base-s-max", type=natural)
    speeds = [speed.value for speed in Speed]
    group.add_argument("--speed", dest="speeds", nargs="+", choices=speeds, default=())
    results = ("1-0", "0-1", "1/2-1/2", "*")
    group.add_argument("--result", dest="results", nargs="+", choices=results, default=())
    group.add_argument(
        "--termination",
        dest="terminations",
        metavar="TERMINATION",
        type=str.lower,
        nargs="+",
        default=(),
        help="as in the tag, such as normal or 'time forfeit'",
    )
    variants = (STANDARD, CHESS960)
    group.add_argument("--variant", dest="variants", nargs="+", choices=variants, default=(STANDARD,))
    group.add_argument(
        "--event", dest="events", metavar="EVENT", default="", help="text in the Event tag, such as rated"
    )
    group.add_argument(
        "--no-bots", dest="bots", action="store_false", help="leave out games with a player titled BOT"
    )
    group.add_argument("--evals", action="store_true", help="only games with [%%eval ...]")


def filters_of(options: argparse.Namespace) -> Filters:
    """The filters that the flags of `add_filters` set."""
    return recipe_of(Filters, options, speeds=tuple(map(Speed, options.speeds)))

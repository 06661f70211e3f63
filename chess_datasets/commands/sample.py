"""`rookery data sample`: prints positions from games, or writes them as a data set with a manifest."""

import json
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import Any

from chess_datasets.commands.positions import report_exams
from chess_datasets.commands.settings.games import FilterSettings, SampleSettings
from chess_datasets.pgn.games import Game
from chess_datasets.pgn.sources import find_sources
from chess_datasets.pgn.tags import Filters, Speed
from chess_datasets.positions.dataset import position_value, write_positions
from chess_datasets.positions.recipe import PositionRecipe, Shares
from rookery.errors import InvalidInput
from rookery.masking import printable
from rookery.prompt import render, task_of
from rookery.trace import Phase, Position


def sample(settings: SampleSettings) -> int:
    """Runs the command and returns the exit status."""
    if settings.out:
        shares, filters = Shares(*settings.shares), filters_of(settings)
        recipe = settings.recipe(PositionRecipe, shares=shares, filters=filters)
        manifest = write_positions(
            *(settings.source, settings.out, recipe),
            exams=settings.exam,
            form=settings.form,
            jobs=settings.jobs,
        )
        _report(manifest, wanted=settings.count)
        return 0
    _print_positions(settings)
    return 0


def filters_of(settings: FilterSettings) -> Filters:
    """The filters of games."""
    return settings.recipe(
        Filters,
        speeds=tuple(map(Speed, settings.speed)),
        results=settings.result,
        terminations=settings.termination,
        variants=settings.variant,
        events=settings.event,
    )


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


def _print_positions(settings: SampleSettings) -> None:
    from chess_datasets.pgn.collection import GameCollection
    from chess_datasets.positions.numbered import PositionOrder

    with closing(GameCollection(find_sources(settings.source))) as games:
        order = PositionOrder(games, shares=Shares(*settings.shares), split=settings.split)
        if settings.game:
            drawn: Iterable[Position] = _positions_of_game(games.find(settings.game)[0], settings)
        elif settings.distinct:
            drawn = order.distinct(seed=settings.seed)
        else:
            drawn = (order.position(n, seed=settings.seed) for n in range(settings.offset, sys.maxsize))
        written = _print(islice(drawn, settings.count), style=settings.style)
    if written < settings.count:
        raise InvalidInput(
            f"{settings.count} positions were asked for, but there are only {written}"
            + (f" in game {settings.game!r}" if settings.game else " distinct ones")
        )


def _positions_of_game(game: Game, settings: SampleSettings) -> Iterator[Position]:
    """The positions of one game between --ply-min and --ply-max, in an order that the seed determines."""
    plies = [ply for phase in Phase for ply in game.plies(phase)]
    end = len(game.moves) if settings.ply_max is None else settings.ply_max
    chosen = sorted(ply for ply in plies if settings.ply_min <= ply <= end)
    random.Random(f"{settings.seed}:{game.id}").shuffle(chosen)
    return map(game.position, chosen)


def _print(positions: Iterable[Position], *, style: str | None) -> int:
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

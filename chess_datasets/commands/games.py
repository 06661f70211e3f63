"""`rookery data index`, `games` and `moves`: what is written from files of games as a whole."""

import sys
from typing import Any

from chess_datasets.commands.positions import report_exams
from chess_datasets.commands.sample import filters_of
from chess_datasets.commands.settings.games import GamesSettings, IndexSettings, MovesSettings
from chess_datasets.pgn.index import index_location
from chess_datasets.pgn.indexing import write_index
from chess_datasets.pgn.sources import find_sources
from chess_datasets.positions.dataset import write_games
from chess_datasets.positions.recipe import GamesRecipe
from chess_datasets.store.files import STANDARD_INPUT
from chess_datasets.tasks.moves import MovesRecipe, write_moves
from rookery.errors import InvalidInput
from rookery.masking import mask_setting, printable
from rookery.prompt import GAME_STYLES, notation_of


def index(settings: IndexSettings) -> int:
    """Writes an index beside each file, so that services can read any game directly."""
    for location in find_sources(settings.files):
        if location == STANDARD_INPUT:
            raise InvalidInput("an index is written beside its file, but '-' is standard input: name a file")
        header = write_index(location, jobs=settings.jobs)
        broken = header.games - sum(header.train) - sum(header.heldout)
        name = printable(mask_setting(index_location(location)))
        sys.stderr.write(f"{name}: {header.games} games, {broken} of them broken\n")
    return 0


def games(settings: GamesSettings) -> int:
    """Writes whole games and their manifest."""
    return _write_games(settings, settings.recipe(GamesRecipe, filters=filters_of(settings)))


def moves(settings: MovesSettings) -> int:
    """Writes a supervised data set and its manifest."""
    if settings.style in GAME_STYLES:
        return _write_games(settings, settings.recipe(GamesRecipe, form="moves"))
    manifest = write_moves(
        find_sources(settings.source),
        settings.out,
        settings.recipe(MovesRecipe, box=settings.box or notation_of(settings.style)),
        exams=settings.exam,
        jobs=settings.jobs,
        compress=settings.compress,
    )
    _report_moves(manifest, wanted=settings.count)
    return 0


def _write_games(settings: GamesSettings | MovesSettings, recipe: GamesRecipe) -> int:
    manifest = write_games(
        settings.source, settings.out, recipe, jobs=settings.jobs, compress=settings.compress
    )
    skipped, left_out = manifest["skipped"], {k: n for k, n in manifest["rejected"].items() if k != "split"}
    sys.stderr.write(
        f"{manifest['games']} games of {manifest['sound']}, {skipped['games']} skipped"
        + f", left out by filters: {left_out}" * bool(left_out)
        + "\n"
    )
    sys.stderr.writelines(printable(f"  skipped {line}\n") for line in skipped["first"])
    return 0


def _report_moves(manifest: dict[str, Any], *, wanted: int) -> None:
    lines, skipped = manifest["lines"], manifest["skipped"]
    sys.stderr.write(f"{lines} lines from {manifest['games']} games, {skipped['games']} games skipped\n")
    if manifest["terms"]["exams"]:
        report_exams(manifest["in_exams"])
    if lines < wanted:
        sys.stderr.write(f"{wanted} were asked for; there are {manifest['by_phase']}\n")
    sys.stderr.writelines(printable(f"  skipped {line}\n") for line in skipped["first"])

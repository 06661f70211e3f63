"""Writes a set of positions, or of whole games, and its manifest to disk or a bucket.

Games are written as PGN, as a list of strings, or as examples for `rookery sft`. A game that is in the files
several times is drawn at most once. The same files, recipe, exams and versions give the same bytes. The
number of processes, the order of the games and their compression do not matter.
"""

import json
import marshal
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import chess
from pydantic import ValidationError

from chess_datasets.pgn import native
from chess_datasets.pgn.games import Game, SoundGame
from chess_datasets.pgn.pieces import with_tags
from chess_datasets.pgn.sources import find_sources, nothing_to_sample, skipped_facts, sources_terms
from chess_datasets.positions.candidates import CandidateFinder, CandidateFindings, SamplingCandidate
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.positions.recipe import Form, GamesRecipe, PositionRecipe, splitmix64
from chess_datasets.positions.sampling import PositionSampler, Reservoir, find_candidates
from chess_datasets.store.columns import adapter
from chess_datasets.store.datasets import write_manifest
from chess_datasets.store.files import Source
from chess_datasets.store.folders import Folder, open_folder
from chess_datasets.store.jsonl import jsonl_writer, read_jsonl, write_jsonl
from chess_datasets.store.parquet import Kind, is_parquet, read_values, write_records
from rookery.encoding import decode
from rookery.errors import InvalidInput, validation_message
from rookery.fen import FenReport, read_fen
from rookery.pgn.rawgame import RawGame
from rookery.prompt import game_text
from rookery.trace import Phase, Position

POSITIONS = Kind("positions", Position)

FORMS = ("parquet", "jsonl", "jsonl.zst")
"""The file formats of positions, by extension."""

NAMES: dict[Form, str] = {"pgn": "games.pgn", "json": "games.json", "moves": "moves.jsonl"}
"""The file of each form of games."""


def position_value(position: Position) -> dict[str, Any]:
    """A position as data sets and the service show it, without the task that a run assigns to it."""
    value = asdict(position)
    del value["task"], value["move"], value["target"], value["episode"]
    return value


def read_positions(
    folder: Folder, name: str, report: FenReport, *, chess960: bool = False
) -> Iterator[Position]:
    """The positions of a file that `write_positions` or another program wrote: Parquet, or JSON lines.

    Rows that are no possible position are left out and listed in `report`. Raises `InvalidInput` if the file
    is neither, or has another kind of record.
    """
    from_parquet = is_parquet(folder, name)
    rows = read_values(folder, name, POSITIONS) if from_parquet else read_jsonl(folder, name)
    for number, row in enumerate(rows, start=1):
        try:
            if isinstance(row, dict) and "fen" in row:
                row["fen"] = read_fen(row["fen"], dropped=report.dropped, chess960=chess960).fen()
            position = adapter(Position).validate_python(row)
        except InvalidInput as error:
            report.skip(f"{name}, row {number}", error)
        except ValidationError as error:
            why = validation_message(error.errors(include_url=False)[:1], root="row")
            report.skip(f"{name}, row {number}", f"not a position: {str(row)[:120]}: {why}")
        else:
            yield position


def write_positions(
    sources: Sequence[str | Path],
    out: str | Path,
    recipe: PositionRecipe,
    *,
    exams: Sequence[str] = (),
    form: str = "parquet",
    jobs: int = 1,
) -> dict[str, Any]:
    """Writes `positions.parquet` (or `.jsonl`, `.jsonl.zst`) and `manifest.json`. Returns the manifest.

    `sources` may be files, folders, patterns, URLs and `-`. Positions that occur in a file of `exams` are
    left out. Raises `SetupError` if a file cannot be read, or the games have no suitable position;
    `InvalidInput` if an exam has no positions, or the form is unknown.
    """
    if form not in FORMS:
        raise InvalidInput(f"form {form!r}: choose from {', '.join(FORMS)}")
    locations = find_sources(sources)
    excluded, exam_files = read_evaluation_files(exams)
    with PositionSampler(locations, recipe, excluded) as sampler:
        sampler.run(jobs=jobs)
        folder = open_folder(out)
        name, positions = f"positions.{form}", sampler.positions()
        if form == "parquet":
            written = write_records(folder, name, POSITIONS, positions)
        else:
            written = write_jsonl(folder, name, map(position_value, positions))
    terms = {
        "sources": sources_terms(sampler.sources),
        "exams": [exam.summary for exam in exam_files],
        "recipe": json.loads(json.dumps(asdict(recipe))),
        "parser": native.name(),
    }
    return write_manifest(folder, POSITIONS.name, [written], terms=terms, facts=_facts(sampler))


def _facts(sampler: PositionSampler) -> dict[str, Any]:
    findings, counts = sampler.findings, sampler.counts
    looked_at = findings.sound + findings.rejected.total() + findings.skipped.total()
    return {
        "games": {
            "seen": findings.games,
            "not_looked_at": findings.games - looked_at,
            "rejected": dict(sorted(findings.rejected.items())),
            "read": findings.sound,
        },
        "skipped": skipped_facts(findings.skipped, findings.first_skipped),
        "candidates": counts["candidates"],
        "in_exams": counts["in_exams"],
        "positions": sum(counts[phase] for phase in Phase),
        "by_phase": {phase.value: counts[phase] for phase in Phase},
    }


class GameFinder(CandidateFinder[bytes]):
    """Finds the games of a recipe, each as the bytes that `_example` reads, or as PGN."""

    def __init__(self, recipe: GamesRecipe, location: str) -> None:
        super().__init__(recipe, location)
        self._form = recipe.form

    def candidates(self, played: SoundGame, raw: RawGame) -> Iterator[SamplingCandidate[bytes]]:
        game = played.game
        moves = (game.start_fen, game.chess960, game.moves.tobytes())
        text = marshal.dumps(moves) if self._form == "moves" else _tidy_pgn(raw).encode()
        yield SamplingCandidate(int(game.id, 16), game.number, text)


def write_games(
    sources: Sequence[str | Path],
    out: str | Path,
    recipe: GamesRecipe,
    *,
    jobs: int = 1,
    compress: bool = False,
) -> dict[str, Any]:
    """Writes the file that `NAMES` has for the form, and `manifest.json`. Returns the manifest.

    With `compress`, the name ends in `.zst`. Raises `SetupError` if a file cannot be read, or no game can be
    taken.
    """
    findings = CandidateFindings[bytes]()
    identified: list[Source] = []
    finders = [GameFinder(recipe, location) for location in find_sources(sources)]
    with closing(Reservoir(recipe.count)) as reservoir:
        for _, part in find_candidates(finders, identified, jobs=jobs):
            for game in part.candidates:
                reservoir.add(splitmix64(recipe.seed, game.key), game.value)
            part.candidates = []
            findings.merge(part)
        written = len(reservoir.finish())
        if not written:
            raise nothing_to_sample(
                identified, recipe.split, findings.first_skipped, rejected=findings.rejected
            )
        folder = open_folder(out)
        with jsonl_writer(folder, NAMES[recipe.form] + ".zst" * compress) as file:
            for line in _lines(map(reservoir.text, range(written)), recipe):
                file.add_line(line)
    terms = {"sources": sources_terms(identified), "recipe": json.loads(json.dumps(asdict(recipe)))}
    facts = {
        "games": written,
        "sound": findings.sound,
        "rejected": dict(sorted(findings.rejected.items())),
        "skipped": skipped_facts(findings.skipped, findings.first_skipped),
    }
    return write_manifest(folder, "games", [file.written], terms=terms, facts=facts)


def _lines(games: Iterator[bytes], recipe: GamesRecipe) -> Iterator[bytes]:
    """The text of the file, in portions of whole lines."""
    if recipe.form == "pgn":
        yield from (game + b"\n\n" for game in games)
    elif recipe.form == "moves":
        yield from (json.dumps(_example(game, recipe.style)).encode() + b"\n" for game in games)
    else:
        yield from (
            (b",\n" if number else b"[\n") + json.dumps(game.decode()).encode()
            for number, game in enumerate(games)
        )
        yield b"\n]\n"


def _example(record: bytes, style: str) -> dict[str, str]:
    """Prompt and completion, the columns that TRL's `SFTTrainer` reads: the heading, then all moves."""
    fen, chess960, moves = marshal.loads(record)  # noqa: S302 - written by `GameFinder`
    game = Game(
        source="", number=0, id="", start_fen=fen, moves=array("H", moves), phases=b"", chess960=chess960
    )
    start = chess.Board(fen, chess960=chess960)
    prompt = game_text(start, (), style=style)
    text = game_text(start, [move for _, _, move in game.replay()], style=style)
    return {"prompt": prompt, "completion": text.removeprefix(prompt)}


def _tidy_pgn(raw: RawGame) -> str:
    """The game as in its file, with one blank line between tags and moves."""
    tags, moves = (decode(part).replace("\r\n", "\n").strip() for part in raw.sections())
    return with_tags(f"{tags}\n\n{moves}".strip())

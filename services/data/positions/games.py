"""Draws whole games, and writes them as PGN, as a list of strings, or as examples for `rookery sft`.

The same files, recipe and versions give the same bytes. The number of processes, the order of the games and
their compression do not matter. A game that is in the files several times is drawn at most once.
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

from rookery.prompt import game_text
from services.data.pgn.games import Game, Played
from services.data.pgn.pieces import with_tags
from services.data.pgn.rawgame import RawGame, decode
from services.data.pgn.sources import find_sources, nothing_to_sample, skipped_facts, sources_terms
from services.data.positions.candidates import Candidate, CandidateFinder, CandidateFindings
from services.data.positions.recipe import Form, GamesRecipe, splitmix64
from services.data.positions.sampling import Reservoir, find_candidates
from services.data.store.datasets import write_manifest
from services.data.store.files import Source
from services.data.store.folders import open_folder
from services.data.store.jsonl import jsonl_writer

NAMES: dict[Form, str] = {"pgn": "games.pgn", "json": "games.json", "moves": "moves.jsonl"}
"""The file of each form."""


class GameFinder(CandidateFinder[bytes]):
    """Finds the games of a recipe, each as the bytes that `_example` reads, or as PGN."""

    def __init__(self, recipe: GamesRecipe, location: str) -> None:
        super().__init__(recipe, location)
        self._form = recipe.form

    def candidates(self, played: Played, raw: RawGame) -> Iterator[Candidate[bytes]]:
        game = played.game
        moves = (game.start_fen, game.chess960, game.moves.tobytes())
        text = marshal.dumps(moves) if self._form == "moves" else _pgn(raw).encode()
        yield Candidate(int(game.id, 16), game.number, text)


def write_games(
    sources: Sequence[str | Path],
    out: str | Path,
    recipe: GamesRecipe,
    *,
    jobs: int = 1,
    compress: bool = False,
) -> dict[str, Any]:
    """Writes the file that `NAMES` has for the form, and `manifest.json`. Returns the manifest.

    With `compress`, the name ends in `.zst`.

    Raises:
        SetupError: a file cannot be read, or no game can be taken.
    """
    found = CandidateFindings[bytes]()
    identified: list[Source] = []
    finders = [GameFinder(recipe, location) for location in find_sources(sources)]
    with closing(Reservoir(recipe.count)) as kept:
        for _, part in find_candidates(finders, identified, jobs=jobs):
            for game in part.candidates:
                kept.add(splitmix64(recipe.seed, game.key), game.value)
            part.candidates = []
            found.merge(part)
        written = len(kept.finish())
        if not written:
            raise nothing_to_sample(identified, recipe.split, found.named, rejected=found.rejected)
        folder = open_folder(out)
        with jsonl_writer(folder, NAMES[recipe.form] + ".zst" * compress) as file:
            for line in _lines(map(kept.text, range(written)), recipe):
                file.add_line(line)
    terms = {
        "sources": sources_terms(identified),
        "recipe": json.loads(json.dumps(asdict(recipe))),
    }
    facts = {
        "games": written,
        "sound": found.sound,
        "rejected": dict(sorted(found.rejected.items())),
        "skipped": skipped_facts(found.skipped, found.named),
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
    game = Game("", 0, "", fen, array("H", moves), b"", chess960=chess960)
    start = chess.Board(fen, chess960=chess960)
    prompt = game_text(start, (), style=style)
    text = game_text(start, [move for _, _, move in game.replay()], style=style)
    return {"prompt": prompt, "completion": text.removeprefix(prompt)}


def _pgn(raw: RawGame) -> str:
    """The game as in its file, with one blank line between tags and moves."""
    tags, moves = (decode(part).replace("\r\n", "\n").strip() for part in raw.sections())
    return with_tags(f"{tags}\n\n{moves}".strip())

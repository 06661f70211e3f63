"""Writes a supervised data set from games: moves that were played, and lists of legal moves.

Each position drawn gives one line, `{"messages": [..., user, assistant]}`:

* `move`: the prompt comes from `rookery.prompt`, and the answer is `<think>M1 M2 M3</think>\\boxed{M}`. M is
  the move played. M1 to M3 are this move and random legal moves, shuffled.
* `legal`: the same prompt followed by ` ?`. The answer is every legal move, sorted.

Moves are in UCI or SAN on the board that the prompt shows, so they are mirrored if the board is. Lines are
shuffled.
The same files, settings, seed and library versions give the same bytes; `manifest.json` names them all.

Games take about three bytes of memory per move, so files of up to a million games fit.
"""

import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import chess

from chess_datasets.jobs import Progress, batched
from chess_datasets.pgn.games import Game, SkippedGame, in_split
from chess_datasets.pgn.native import read_games
from chess_datasets.pgn.reader import read_raw_games
from chess_datasets.pgn.sources import nothing_to_sample, skipped_facts, sources_terms
from chess_datasets.positions.distinct import PositionKeys, position_key
from chess_datasets.positions.exams import read_evaluation_files
from chess_datasets.positions.recipe import Shares
from chess_datasets.store.datasets import write_manifest
from chess_datasets.store.files import STANDARD_INPUT, Source, identify
from chess_datasets.store.folders import open_folder
from chess_datasets.store.jsonl import JsonlWriter, jsonl_writer
from rookery.errors import InvalidInput
from rookery.pgn.rawgame import RawGame
from rookery.processes.workers import Workers
from rookery.prompt import Notation, mirrored_move, render, written
from rookery.trace import Phase, Position, Prompt, Split

GAMES_A_BATCH = 200


@dataclass(frozen=True, slots=True)
class MovesRecipe:
    """The settings that determine the bytes of a data set, besides its sources."""

    count: int
    seed: int = 0
    style: str = "mover-squares"
    box: Notation = "uci"
    candidates: int = 3
    legal_share: float = 0.4
    split: Split = "train"
    shares: Shares = field(default_factory=Shares)


@dataclass(frozen=True, slots=True)
class MovesLine:
    """One example and its kind: `move` or `legal`. `key` is the `position_key` of its position."""

    kind: str
    phase: Phase
    key: int
    text: bytes


def write_moves(
    sources: Sequence[str | Path],
    out: str | Path,
    recipe: MovesRecipe,
    *,
    exams: Sequence[str] = (),
    jobs: int = 1,
    compress: bool = False,
) -> dict[str, Any]:
    """Writes the data set to the folder or URL `out`, and returns its manifest.

    Positions that occur in a file of `exams` are left out. Raises `SetupError` if a source cannot be read, or
    no source has a sound game of the split; `InvalidInput` if an exam has no positions, or a source is
    standard input, which cannot be read twice.
    """
    if STANDARD_INPUT in sources:
        raise InvalidInput("moves reads its games twice, and '-' can be read once: name a file")
    identified = [identify(path) for path in sources]
    excluded, exam_files = read_evaluation_files(exams)
    folder = open_folder(out)
    with Progress() as progress, Workers(jobs) as workers:
        games, skipped = _read(identified, recipe.split, workers, progress)
        if not games:
            raise nothing_to_sample(identified, recipe.split, skipped)
        picked = pick_plies(games, count=recipe.count, seed=recipe.seed, shares=recipe.shares)
        with jsonl_writer(folder, "moves.jsonl.zst" if compress else "moves.jsonl") as lines:
            counts = _write(
                lines, games, picked, recipe=recipe, excluded=excluded, workers=workers, progress=progress
            )
    terms = {
        "sources": sources_terms(identified),
        "exams": [exam.summary for exam in exam_files],
        "recipe": asdict(recipe),
    }
    facts = {
        "games": len(games),
        "skipped": skipped_facts(Counter(game.defect.value for game in skipped), skipped[:20]),
        "in_exams": counts["in_exams"],
        "lines": counts["move"] + counts["legal"],
        "by_kind": {kind: counts[kind] for kind in ("move", "legal")},
        "by_phase": {phase.value: counts[phase.value] for phase in Phase},
    }
    return write_manifest(folder, "moves", [lines.written], terms=terms, facts=facts)


def pick_plies(games: Sequence[Game], *, count: int, seed: int, shares: Shares) -> list[list[int]]:
    """For each game, the plies drawn from it, in order. Fewer than `count` in all if a phase runs out. Every
    ply of a phase is equally likely, whatever game it is in."""
    picked: list[list[int]] = [[] for _ in games]
    for phase, phase_count in shares.split(count).items():
        plies = [game.plies(phase) for game in games]
        total = sum(map(len, plies))
        chosen = sorted(random.Random(f"{seed}:{phase}").sample(range(total), min(total, phase_count)))
        _deal(chosen, plies, picked)
    return [sorted(plies) for plies in picked]


def _deal(chosen: Sequence[int], plies: Sequence[Sequence[int]], picked: Sequence[list[int]]) -> None:
    """Maps numbers that count the plies of all games to their game and ply, and adds these to `picked`."""
    game = first = 0
    for number in chosen:
        while number >= first + len(plies[game]):
            first += len(plies[game])
            game += 1
        picked[game].append(plies[game][number - first])


def _read(
    sources: Sequence[Source], split: Split, workers: Workers, progress: Progress
) -> tuple[list[Game], list[SkippedGame]]:
    games: list[Game] = []
    skipped: list[SkippedGame] = []
    for source in sources:
        progress.begin(f"read {Path(source.path).name}", unit="games")
        checked = (raw.checked() for raw in read_raw_games(source.path))
        raws = (raw for raw in checked if raw.defect or in_split(raw.id, split))
        for parsed in workers.map(partial(_parse, source), batched(raws, GAMES_A_BATCH)):
            for game in parsed:
                skipped.append(game) if isinstance(game, SkippedGame) else games.append(game)
            progress.advance(len(parsed))
    return games, skipped


def _parse(source: Source, batch: list[RawGame]) -> list[Game | SkippedGame]:
    return [
        played if isinstance(played, SkippedGame) else played.game for played in read_games(batch, source)
    ]


def _write(
    out: JsonlWriter,
    games: Sequence[Game],
    picked: Sequence[Sequence[int]],
    *,
    recipe: MovesRecipe,
    excluded: PositionKeys,
    workers: Workers,
    progress: Progress,
) -> Counter[str]:
    """Writes lines to a temporary file in game order, then copies them shuffled, to use little memory."""
    counts: Counter[str] = Counter()
    places: list[tuple[int, int]] = []
    chosen = ((game, plies) for game, plies in zip(games, picked, strict=True) if plies)
    progress.begin("write", unit="positions", total=sum(map(len, picked)))
    with tempfile.TemporaryFile() as spool:
        offset = 0
        for lines in workers.map(partial(_lines_of_batch, recipe), batched(chosen, GAMES_A_BATCH)):
            for line in lines:
                if line.key in excluded:
                    counts["in_exams"] += 1
                    continue
                counts.update((line.kind, line.phase.value))
                places.append((offset, len(line.text)))
                offset += spool.write(line.text)
            progress.advance(len(lines))
        random.Random(f"{recipe.seed}:order").shuffle(places)
        for offset, size in places:
            spool.seek(offset)
            out.add_line(spool.read(size))
    return counts


def _lines_of_batch(recipe: MovesRecipe, batch: list[tuple[Game, Sequence[int]]]) -> list[MovesLine]:
    return [line for game, plies in batch for line in game_lines(game, plies, recipe)]


def game_lines(game: Game, plies: Sequence[int], recipe: MovesRecipe) -> Iterator[MovesLine]:
    """One line per ply. Random choices depend only on the seed and the game."""
    rng = random.Random(f"{recipe.seed}:{game.source}:{game.number}")
    chosen = set(plies)
    for ply, board, move in islice(game.replay(), max(chosen) + 1):
        if ply in chosen:
            yield _line(game.position(ply, fen=board.fen()), board, move, recipe, rng)


def _line(
    position: Position, board: chess.Board, move: chess.Move, recipe: MovesRecipe, rng: random.Random
) -> MovesLine:
    prompt, key = render(position, style=recipe.style), position_key(position.fen)
    mirrored = prompt.fen.split(" ", 2)[1] != position.fen.split(" ", 2)[1]
    shown = chess.Board(prompt.fen) if mirrored else board
    legal = sorted(written(shown, m, recipe.box) for m in shown.legal_moves)
    if rng.random() < recipe.legal_share:
        return MovesLine("legal", position.phase, key, _encode(prompt, " ?", " ".join(legal)))
    if mirrored:
        move = chess.Move.from_uci(mirrored_move(move.uci()))
    played = written(shown, move, recipe.box)
    legal.remove(played)
    candidates = [played, *rng.sample(legal, min(recipe.candidates - 1, len(legal)))]
    rng.shuffle(candidates)
    answer = f"<think>{' '.join(candidates)}</think>\\boxed{{{played}}}"
    return MovesLine("move", position.phase, key, _encode(prompt, "", answer))


def _encode(prompt: Prompt, suffix: str, answer: str) -> bytes:
    messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
    messages[-1]["content"] += suffix
    messages.append({"role": "assistant", "content": answer})
    return json.dumps({"messages": messages}).encode() + b"\n"

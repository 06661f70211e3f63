import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import pytest
from backports import zstd

from chess_datasets.pgn.games import Game
from chess_datasets.tasks.moves import MovesRecipe, game_lines, write_moves
from rookery.errors import SetupError
from rookery.prompt import render
from tests.unit.data.texts import ENDING, ENDING_FEN, MATE, RUY, game, read, sound

RECIPE = MovesRecipe(count=300, seed=3, split="all")
ANSWER = re.compile(r"<think>([a-h1-8nbrq ]+)</think>\\boxed\{([a-h1-8nbrq]{4,5})\}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("games") / "games.pgn"
    long = " ".join(
        ["e4 e5 Nf3 Nc6 Bb5 a6 Ba4 Nf6 O-O Be7 Re1 b5 Bb3 d6 c3 O-O h3 Nb8 d4 Nbd7 Nbd2 Bb7 Bc2 Re8"]
    )
    path.write_text(
        game(RUY)
        + game("1. e5 *")
        + game(f"{long} Nf1 Bf8 Ng3 g6 a4 c5 d5 c4 *")
        + game(ENDING, FEN=ENDING_FEN)
    )
    return path


def lines(path: Path) -> list[list[dict[str, str]]]:
    return [json.loads(line)["messages"] for line in path.read_text().splitlines()]


def examples(game: Game, recipe: MovesRecipe) -> Iterator[tuple[chess.Board, str, str, str]]:
    """Each line of a game: the board its answer is read on, the move played there, question, answer."""
    for (ply, _, move), line in zip(
        game.replay(), game_lines(game, range(len(game.moves)), recipe), strict=True
    ):
        prompt = render(game.position(ply), style=recipe.style)
        board = chess.Board(prompt.fen)
        mirrored = chess.Board(game.position(ply).fen).turn != board.turn
        played = move.uci()
        if mirrored:
            squares = [chess.square_mirror(move.from_square), chess.square_mirror(move.to_square)]
            played = chess.Move(*squares, move.promotion).uci()
        *_, user, assistant = json.loads(line.text)["messages"]
        assert user["content"].startswith(prompt.messages[-1].content)
        yield board, played, user["content"].removeprefix(prompt.messages[-1].content), assistant["content"]


@pytest.mark.parametrize("style", ["mover-squares", "mover-pieces", "fen", "board"])
def test_a_move_line_ends_in_the_move_played(style: str) -> None:
    for board, played, suffix, answer in examples(
        sound(game(RUY)), replace(RECIPE, style=style, legal_share=0)
    ):
        match = ANSWER.fullmatch(answer)
        assert match is not None
        named = match[1].split()
        assert suffix == ""
        assert match[2] == played
        assert played in named
        assert len(set(named)) == 3
        assert all(chess.Move.from_uci(uci) in board.legal_moves for uci in named)


def test_a_legal_line_lists_every_legal_move() -> None:
    promotion = game("1. a8=N Kf7 2. h3 *", FEN="4k3/P7/8/8/8/8/7P/4K3 w - - 0 1")
    for text in (game(RUY), game(MATE), promotion):
        for board, _, suffix, answer in examples(sound(text), replace(RECIPE, legal_share=1)):
            assert suffix == " ?"
            assert answer == " ".join(sorted(move.uci() for move in board.legal_moves))


def test_a_forced_move_is_named_alone() -> None:
    forced = sound(game("1. Kxg2 *", FEN="7k/8/8/8/8/8/5nq1/7K w - - 0 1"))
    [(_, _, _, answer)] = examples(forced, replace(RECIPE, legal_share=0))
    assert answer == r"<think>h1g2</think>\boxed{h1g2}"


@pytest.mark.parametrize("candidates", [1, 2, 5])
def test_candidates(candidates: int) -> None:
    recipe = replace(RECIPE, candidates=candidates, legal_share=0)
    places = set()
    for _, played, _, answer in examples(sound(game(RUY)), recipe):
        named = answer.split("</think>")[0].removeprefix("<think>").split()
        assert len(named) == candidates
        places.add(named.index(played))
    assert candidates == 1 or len(places) > 1


def test_the_data_set_and_its_manifest(source: Path, tmp_path: Path) -> None:
    manifest = write_moves([source], tmp_path / "out", replace(RECIPE, count=20), jobs=1)
    data = (tmp_path / "out" / "moves.jsonl").read_bytes()
    assert manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["terms"]["sources"] == [
        {
            "path": "games.pgn",
            "size": source.stat().st_size,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        }
    ]
    assert manifest["outputs"] == [
        {"path": "moves.jsonl", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert manifest["games"] == 3
    assert manifest["skipped"]["by_defect"] == {"bad_move": 1}
    assert manifest["skipped"]["first"][0].startswith("games.pgn game 2 at byte 77: bad_move: illegal")
    assert manifest["lines"] == data.count(b"\n") == sum(manifest["by_kind"].values())
    assert manifest["terms"]["recipe"]["seed"] == 3
    assert str(tmp_path) not in json.dumps(manifest)


def test_a_phase_that_runs_out_is_reported(source: Path, tmp_path: Path) -> None:
    manifest = write_moves([source], tmp_path, RECIPE)
    assert manifest["by_phase"] == {"opening": 34, "middlegame": 8, "endgame": 6}
    assert len(lines(tmp_path / "moves.jsonl")) == manifest["lines"] == 48


def outputs(source: Path, out: Path, recipe: MovesRecipe, **options: Any) -> bytes:
    write_moves([source], out, recipe, **options)
    return (out / "moves.jsonl").read_bytes()


def test_the_seed_decides_every_byte(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = outputs(source, tmp_path / "a", RECIPE)
    assert outputs(source, tmp_path / "c", replace(RECIPE, seed=4)) != once
    monkeypatch.setattr("chess_datasets.tasks.moves.GAMES_A_BATCH", 1)
    assert outputs(source, tmp_path / "d", RECIPE) == once
    monkeypatch.setattr("chess_datasets.pgn.native.AVAILABLE", False)
    assert outputs(source, tmp_path / "e", RECIPE) == once


def test_compressed_lines_are_the_same_lines(source: Path, tmp_path: Path) -> None:
    plain = outputs(source, tmp_path, RECIPE)
    manifest = write_moves([source], tmp_path, RECIPE, compress=True)
    assert manifest["outputs"][0]["path"] == "moves.jsonl.zst"
    stored = (tmp_path / "moves.jsonl.zst").read_bytes()
    assert zstd.decompress(stored) == plain


def test_the_legal_share(sample_path: Path, tmp_path: Path) -> None:
    manifest = write_moves(
        [sample_path], tmp_path, replace(RECIPE, count=1000, split="heldout", legal_share=0.25)
    )
    assert manifest["by_phase"] == {"opening": 200, "middlegame": 600, "endgame": 200}
    assert 200 < manifest["by_kind"]["legal"] < 300


def test_splits_never_share_a_game(source: Path, tmp_path: Path, sample_path: Path) -> None:
    held = {game.id for game in read(source) if isinstance(game, Game)}
    total = 0
    for split in ("train", "heldout"):
        try:
            total += write_moves([source], tmp_path / split, replace(RECIPE, split=split))["games"]
        except SetupError as error:
            assert f"split {split!r}" in str(error)
    assert total == len(held) == 3


def test_nothing_to_sample(tmp_path: Path) -> None:
    path = tmp_path / "bad.pgn"
    path.write_text(game("1. e5 *"))
    with pytest.raises(SetupError, match=r"nothing to sample in '.*bad\.pgn'.*1 games skipped.*bad_move"):
        write_moves([path], tmp_path / "out", RECIPE)
    assert not (tmp_path / "out").exists()

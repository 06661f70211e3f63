"""Whole games: as PGN, as a list of strings, as move sequences. All forms hold the same games."""

import json
from dataclasses import replace
from pathlib import Path

import chess
import pytest
from backports import zstd

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.pgn.tags import Filters
from chess_datasets.positions.dataset import NAMES, write_games
from chess_datasets.positions.recipe import Form, GamesRecipe
from rookery.errors import InvalidInput, SetupError
from rookery.prompt import render
from tests.unit.data.texts import ENDING, ENDING_FEN, MATE, RUY, game

RECIPE = GamesRecipe(split="all")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("games") / "games.pgn"
    strong = game(RUY, WhiteElo="2100", BlackElo="2200")
    path.write_text(strong + game("1. e5 *") + game(MATE) + strong + game(ENDING, FEN=ENDING_FEN))
    return path


def written(source: Path, out: Path, form: Form = "pgn", **how: object) -> Path:
    write_games([source], out, replace(RECIPE, form=form, **how))  # type: ignore[arg-type]
    return out / NAMES[form]


def games_of(path: Path) -> dict[str, list[str]]:
    games = GameCollection([path])
    found = [games.game(number) for number in range(len(games))]
    assert not games.skipped
    games.close()
    return {one.id: one.uci_moves() for one in found if one}


@pytest.mark.parametrize("compressed", [False, True])
def test_a_list_of_strings_is_a_source_like_any_other(source: Path, tmp_path: Path, compressed: bool) -> None:
    plain = written(source, tmp_path / "pgn")
    assert len(games_of(plain)) == 3  # one is broken, one is there twice
    listed = written(source, tmp_path / "json", "json")
    assert [text.startswith("[Event") for text in json.loads(listed.read_text())] == [True] * 3
    if compressed:
        packed = tmp_path / "games.zst"
        packed.write_bytes(zstd.compress(listed.read_bytes()))
        listed = packed
    assert games_of(listed) == games_of(plain)
    again = written(listed, tmp_path / "again")
    assert again.read_bytes() == plain.read_bytes()


def test_strings_without_tags_or_results_are_games_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "games.json"
    path.write_text(json.dumps(["1. e4 e5", "e4 c5 Nf3", "", "1. d4 d5 *"]))
    assert sorted(games_of_all(path)) == [["d2d4", "d7d5"], ["e2e4", "c7c5", "g1f3"], ["e2e4", "e7e5"]]


def games_of_all(path: Path) -> list[list[str]]:
    games = GameCollection([path])
    found = [one.uci_moves() for number in range(len(games)) if (one := games.game(number))]
    games.close()
    return found


@pytest.mark.parametrize("text", ['["1. e4 e5 *", 7]', '["1. e4 e5 *"'])
def test_a_broken_list_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "games.json"
    path.write_text(text)
    with pytest.raises(SetupError, match="not a JSON list of strings"):
        write_games([path], tmp_path / "out", RECIPE)


@pytest.mark.parametrize("style", ["game-san", "game-uci"])
def test_a_sequence_begins_with_every_prompt_of_its_game(source: Path, tmp_path: Path, style: str) -> None:
    path = written(source, tmp_path / "moves", "moves", style=style)
    texts = {"".join(json.loads(line).values()) for line in path.read_text().splitlines()}
    assert len(texts) == 3
    games = GameCollection([source])
    for number in (0, 2):
        one = games.game(number)
        assert one is not None
        for ply in range(len(one.moves)):
            prompt = render(one.position(ply), style=style).messages[0].content
            following = [text for text in texts if text.startswith(prompt)]
            move = one.board(ply).san(chess.Move.from_uci(one.uci_moves()[ply]))
            said = one.uci_moves()[ply] if style == "game-uci" else move
            assert any(text.removeprefix(prompt).startswith(f"{said}\n") for text in following)
    setup = next(text for text in texts if text.startswith("Position (FEN): "))
    assert setup.startswith(f"Position (FEN): {ENDING_FEN}\n")
    games.close()


def test_games_are_chosen_by_tags_count_and_seed(source: Path, tmp_path: Path) -> None:
    strong = games_of(written(source, tmp_path / "strong", filters=Filters(elo_min=2000)))
    assert len(strong) == 1
    ones = {next(iter(games_of(written(source, tmp_path / str(i), count=1, seed=i)))) for i in range(8)}
    assert len(ones) > 1
    with pytest.raises(SetupError, match="5 by elo"):
        written(source, tmp_path / "none", filters=Filters(elo_min=3000))


def test_other_styles_show_no_games() -> None:
    with pytest.raises(InvalidInput, match="'fen' shows no whole games: game-san, game-uci do"):
        GamesRecipe(style="fen")

"""Positions from outside as prompts, and games by their names."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import chess
import pytest

from chess_datasets.pgn.collection import GameCollection
from chess_datasets.positions.numbered import PositionOrder
from rookery.errors import InvalidInput, NotFound
from rookery.prompt import STYLES, render
from services.data.rendering import MAX_MOVES, render_fen
from tests.unit.data.texts import RUY, game

BLACK = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"


@pytest.mark.parametrize("style", sorted(STYLES))
def test_it_is_what_rollouts_would_send(style: str, order: PositionOrder) -> None:
    position = order.position(7, seed=3)
    assert render_fen(position.fen, style=style, last_moves=position.last_moves) == render(
        position, style=style
    )


def test_the_answer_is_read_on_the_board_that_is_shown() -> None:
    assert render_fen(BLACK, style="mover-squares").fen.split()[1] == "w"
    assert render_fen(BLACK, style="fen").fen == BLACK


@pytest.mark.parametrize(
    ("fen", "said"),
    [
        ("", "not a FEN: ''"),
        ("e4", "not a FEN: 'e4'"),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "impossible position '8/8/8/8/8/8/8/8 w - - 0 1'"),
        ("k7/8/8/8/8/8/8/KQ6 w - - 0 x", "not a FEN"),
    ],
)
def test_no_position_is_refused(fen: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        render_fen(fen, style="fen")


def test_a_wrong_style_or_move_is_quoted() -> None:
    with pytest.raises(InvalidInput, match="no prompt style 'poem'"):
        render_fen(BLACK, style="poem")
    with pytest.raises(InvalidInput, match="last move 'e4' is not in UCI"):
        render_fen(BLACK, style="uci", last_moves=["e4"])
    with pytest.raises(InvalidInput, match="1025 last moves"):
        render_fen(BLACK, style="uci", last_moves=["e2e4"] * (MAX_MOVES + 1))


# games


@pytest.fixture
def two_files(tmp_path: Path) -> Iterator[GameCollection]:
    first, second = tmp_path / "a.pgn", tmp_path / "b.pgn"
    first.write_text(game(RUY, White="A") + game("1. e5 *") + game("1. d4 d5 *"))
    second.write_text(game(RUY, White="B") + game("1. c4 *"))
    with closing(GameCollection([first, second])) as collection:
        yield collection


def test_a_game_is_found_by_its_moves(two_files: GameCollection) -> None:
    for number in (0, 2, 4):
        expected = two_files.game(number)
        assert expected
        found, text = two_files.find(expected.id)
        assert (found.id, found.uci_moves()) == (expected.id, expected.uci_moves())
        assert found.uci_moves()[0] in ("e2e4", "d2d4", "c2c4")
        assert text.rstrip().endswith(("1/2-1/2", "*"))


def test_of_two_copies_the_first_is_given(two_files: GameCollection) -> None:
    first = two_files.game(0)
    assert first
    assert '[White "A"]' in two_files.find(first.id)[1]


def test_a_game_is_found_by_source_and_number(two_files: GameCollection) -> None:
    source = two_files.sources[1].sha256[:8]
    found, text = two_files.find(f"{source}:1")
    assert (found.source, found.number) == (source, 1)
    assert '[White "B"]' in text
    assert two_files.find(f"{source}:2")[0].uci_moves() == ["c2c4"]


def test_every_position_leads_to_its_game(collection: GameCollection, order: PositionOrder) -> None:
    for number in range(10):
        position = order.position(number, seed=5)
        source, within, ply = position.id.split(":")
        found, _ = collection.find(f"{source}:{within}")
        assert found.id == collection.find(position.game_id)[0].id == position.game_id
        board = chess.Board(found.start_fen)
        for move in found.uci_moves()[: int(ply)]:
            board.push_uci(move)
        assert board.fen() == position.fen


@pytest.mark.parametrize(
    "name", ["", "0" * 16, "F" * 16, "nonsense", "8999067f", "00000000:1", ":1", "a:b", "a:1:2", "e4" * 999]
)
def test_what_is_not_there_is_quoted(name: str, two_files: GameCollection) -> None:
    with pytest.raises(NotFound, match="no game"):
        two_files.find(name)


@pytest.mark.parametrize("number", ["0", "4", "-1", "9" * 30])
def test_a_number_beyond_the_file_is_not_there(number: str, two_files: GameCollection) -> None:
    with pytest.raises(NotFound, match="no game"):
        two_files.find(f"{two_files.sources[0].sha256[:8]}:{number}")


def test_a_broken_game_says_why(two_files: GameCollection) -> None:
    with pytest.raises(NotFound, match=r"was skipped: .*bad_move"):
        two_files.find(f"{two_files.sources[0].sha256[:8]}:2")

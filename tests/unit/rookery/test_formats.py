"""Every notation gives back the position it was given, and histories say only what is known."""

import io

import chess
import chess.pgn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.formats import FORMATS, pgn, san, uci
from rookery.prompt import STYLES, render
from tests.builders import position
from tests.format_readers import READERS
from tests.unit.rookery.boards import boards

EN_PASSANT = "4k3/8/8/8/3pP3/8/8/4K2R b K e3 0 9"


def last(board: chess.Board) -> list[str]:
    return [move.uci() for move in board.move_stack[-10:]]


@pytest.mark.parametrize("name", FORMATS)
@given(board=boards())
def test_nothing_of_the_position_is_lost(name: str, board: chess.Board) -> None:
    assert READERS[name](FORMATS[name](board.fen(), last(board))).fen() == board.fen()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("fen", [EN_PASSANT, chess.STARTING_FEN, "8/8/8/8/8/8/8/K1k5 b - - 149 900"])
def test_rights_clocks_and_en_passant_are_kept(name: str, fen: str) -> None:
    assert READERS[name](FORMATS[name](fen, [])).fen() == fen


@given(boards(), st.booleans())
def test_any_reader_of_pgn_finds_the_position(board: chess.Board, whole: bool) -> None:
    moves = [move.uci() for move in board.move_stack] if whole else last(board)[-3:]
    game = chess.pgn.read_game(io.StringIO(pgn(board.fen(), moves)))
    assert game is not None
    assert not game.errors
    assert game.end().board().fen() == board.fen()


@given(boards())
def test_histories_are_the_game_only_when_they_reach_its_start(board: chess.Board) -> None:
    moves = last(board)
    whole = len(board.move_stack) <= 10
    assert uci(board.fen(), moves).startswith("Moves (UCI): ") == whole
    assert san(board.fen(), moves).startswith("Moves: ") == whole
    if not whole:
        assert uci(board.fen(), moves).endswith(f"Last moves (UCI): {' '.join(moves)}")


def test_the_initial_position_has_no_moves_yet() -> None:
    assert san(chess.STARTING_FEN, []) == "Moves: none"
    assert uci(chess.STARTING_FEN, []) == "Moves (UCI): none"
    assert pgn(chess.STARTING_FEN, []) == "*"


def test_moves_that_do_not_lead_here_are_no_history() -> None:
    assert san(EN_PASSANT, ["e2e4"]).startswith("Position (FEN): ")
    assert san(EN_PASSANT, ["e2e9"]).startswith("Position (FEN): ")


@given(boards(), st.sampled_from(sorted(FORMATS)))
def test_every_format_has_styles_with_and_without_the_legal_moves(board: chess.Board, name: str) -> None:
    shown = position(board.fen(), last_moves=last(board))
    plain, with_san, with_uci = (
        render(shown, style=style).messages[-1].content
        for style in (name, f"{name}-legal-san", f"{name}-legal-uci")
    )
    assert plain == FORMATS[name](shown.fen, shown.last_moves)
    sans = with_san.removeprefix(f"{plain}\nLegal moves: ").split()
    ucis = with_uci.removeprefix(f"{plain}\nLegal moves (UCI): ").split()
    assert {board.parse_san(text) for text in sans} == set(board.legal_moves)
    assert {chess.Move.from_uci(text) for text in ucis} == set(board.legal_moves)


def test_the_older_names_keep_their_bytes() -> None:
    board = chess.Board("r3k3/8/8/8/8/8/8/4K2R w K - 4 30")
    asked = position(board.fen(), last_moves=("e8d8", "e1f1"))
    shown = {style: render(asked, style=style).messages[-1].content for style in STYLES}
    assert shown["fen"] == "Position (FEN): r3k3/8/8/8/8/8/8/4K2R w K - 4 30"
    assert shown["fen-moves"] == shown["fen-legal-san"]
    assert shown["fen-moves"].endswith(
        "\nLegal moves: Kd1 Kd2 Ke2 Kf1 Kf2 O-O Rf1 Rg1 Rh2 Rh3 Rh4 Rh5 Rh6 Rh7 Rh8+"
    )
    assert shown["board"] == (
        "r . . . k . . .\n"
        + ". . . . . . . .\n" * 6
        + ". . . . K . . R\nWhite to move. FEN: r3k3/8/8/8/8/8/8/4K2R w K - 4 30\nLast moves: e8d8 e1f1"
    )
    assert shown["mover-pieces"] == "Ke1Rh1ra8ke8 K -"
    assert shown["mover-numbered"] == f"30 {shown['mover-twice']}"
    assert shown["mover-squares"] == f"....K..R{'.' * 48}r...k... K -"

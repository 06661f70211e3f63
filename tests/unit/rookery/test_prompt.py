"""Prompts: nothing about the board is lost, colour does not matter, the answer is read on `Prompt.fen`."""

from dataclasses import replace

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.prompt import GAME_STYLES, LINES, STYLES, ask, mover_board, piece_list, render, squares, task_of
from rookery.trace import Position
from tests.builders import position
from tests.unit.rookery.boards import boards

styles = st.sampled_from(sorted(STYLES))
mover_styles = st.sampled_from(sorted(name for name in STYLES if name.startswith("mover-")))


def played(board: chess.Board) -> Position:
    return position(board.fen(), ply=board.ply(), last_moves=[move.uci() for move in board.move_stack])


@given(boards())
def test_squares_spell_the_board(board: chess.Board) -> None:
    read = chess.Board(None)
    for square, letter in zip(chess.SQUARES, squares(board), strict=True):
        if letter != ".":
            read.set_piece_at(square, chess.Piece.from_symbol(letter))
    assert read.board_fen() == board.board_fen()


@given(boards())
def test_a_piece_list_holds_pieces_rights_and_en_passant(board: chess.Board) -> None:
    pieces, castling, en_passant = piece_list(board).split(" ")
    read = chess.Board(None)
    for i in range(0, len(pieces), 3):
        read.set_piece_at(chess.parse_square(pieces[i + 1 : i + 3]), chess.Piece.from_symbol(pieces[i]))
    assert read.board_fen() == board.board_fen()
    assert castling == board.castling_xfen()
    assert (en_passant != "-") == board.has_legal_en_passant()


@given(boards(), styles)
def test_the_answers_board_has_the_same_moves(board: chess.Board, style: str) -> None:
    prompt = render(played(board), style=style)
    assert prompt.style == style
    assert chess.Board(prompt.fen).legal_moves.count() == board.legal_moves.count()


@given(boards(), mover_styles)
def test_a_mover_style_shows_white_to_move_and_hides_the_colour(board: chess.Board, style: str) -> None:
    prompt = render(played(board), style=style)
    assert chess.Board(prompt.fen).turn == chess.WHITE
    mirrored = render(played(board.mirror()), style=style)
    assert mirrored.messages == prompt.messages
    assert mirrored.fen.split(" ")[:4] == prompt.fen.split(" ")[:4]


@given(boards())
def test_a_mirrored_answer_is_the_mirrored_move(board: chess.Board) -> None:
    shown = mover_board(board.fen())
    if board.turn == chess.WHITE:
        assert shown == board
        return
    flipped = {
        chess.Move(chess.square_mirror(m.from_square), chess.square_mirror(m.to_square), m.promotion)
        for m in board.legal_moves
    }
    assert set(shown.legal_moves) == flipped


@given(boards())
def test_listed_moves_are_all_legal_moves(board: chess.Board) -> None:
    text = render(played(board), style="fen-moves").messages[-1].content
    listed = text.split("Legal moves: ")[1].split(" ")
    assert {board.parse_san(san) for san in listed} == set(board.legal_moves)


@given(boards(), st.sampled_from(sorted(GAME_STYLES)))
def test_a_game_is_shown_from_its_first_move(board: chess.Board, style: str) -> None:
    prompt = render(played(board), style=style)
    shown, read = prompt.messages[0].content, board.root()
    setup = read.fen() != chess.STARTING_FEN
    if setup:  # nobody knows how it came about: a game begins here
        assert shown == f"Position (FEN): {board.fen()}\n{GAME_STYLES[style]}\n"
        return
    heading, *moves = shown.removesuffix("\n").split("\n")
    for move in moves:
        read.push(read.parse_uci(move) if style == "game-uci" else read.parse_san(move))
    assert (heading, read.fen(), prompt.fen) == (GAME_STYLES[style], board.fen(), board.fen())
    if legal := list(board.legal_moves):
        board.push(legal[0])
        longer = render(played(board), style=style).messages[0].content
        assert longer.startswith(shown) and longer.removeprefix(shown).count("\n") == 1


@given(boards(), styles)
def test_the_same_position_gives_the_same_prompt(board: chess.Board, style: str) -> None:
    assert render(played(board), style=style) == render(played(board), style=style)


def test_an_unknown_style_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="no prompt style 'haiku': choose from ascii, ascii-legal-san, "):
        render(position(), style="haiku")


def test_a_question_stands_below_the_position() -> None:
    prompt = ask(position(), task="next-fen", form="uci", move="e2e4")
    assert (prompt.style, prompt.fen) == ("next-fen", chess.STARTING_FEN)
    assert [message.role for message in prompt.messages] == ["user"]
    assert prompt.messages[0].content == (
        "Moves (UCI): none\nThe move e2e4 is played. Give the FEN of the position after it."
    )


def test_what_cannot_be_asked_is_named() -> None:
    with pytest.raises(InvalidInput, match="no task 'haiku': choose from legal-moves, next-fen"):
        ask(position(), task="haiku")
    with pytest.raises(InvalidInput, match="no format 'haiku'"):
        ask(position(), task="legal-moves", form="haiku")
    broken = position("8/8 w", "odd")
    with pytest.raises(InvalidInput, match="position 'odd'"):
        ask(broken, task="legal-moves", form="ascii")


def test_a_rookworld_prompt_is_the_beginning_of_a_line() -> None:
    [message] = render(position(), style="rookworld-p").messages
    assert message.content == f"P: {chess.STARTING_FEN.ljust(89)}"


def test_a_rookworld_line_follows_the_position_s_task() -> None:
    board = chess.Board()
    for uci in ("e2e4", "e7e5"):
        board.push_uci(uci)
    for task, text in (
        ("", f"P: {board.fen().ljust(89)}"),
        ("P", f"P: {board.fen().ljust(89)}"),
        ("A", f"A: {board.fen()}+g1f3+e2e4 e7e5 g1f3+"),
    ):
        asked = replace(played(board), task=task, move="g1f3" if task == "A" else "")
        [message] = render(asked, style="rookworld").messages
        assert message.content == text
        assert task_of(asked, style="rookworld") == (task or "P")
        assert {task_of(asked, style=style) for style in STYLES.keys() - LINES} == {""}


def test_a_question_about_a_move_needs_one() -> None:
    asked = replace(position(), task="A")
    with pytest.raises(InvalidInput, match="position 'p': task A asks about a move, not ''"):
        render(asked, style="rookworld")

"""Questions about the board: each answer is what the rules say, in the form that the question asks for."""

import random
from collections import Counter
from functools import cache

import chess
import pytest

from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.board import KINDS, MOST_MOVES, board_question
from chess_datasets.tasks.example import Example
from rookery.trace import Position

PINNED = "4r1k1/8/8/4b3/4P3/4B3/3PNP2/4K2q w - - 0 1"
"""The queen gives check along the first rank; White's pieces on the e-file stand behind each other."""


@cache
def positions() -> list[Position]:
    return list(map(PositionGenerator(seed=3).position, range(100)))


@cache
def questions() -> list[Example]:
    return [board_question(p, seed=s, form="fen", notation="uci") for p in positions() for s in (1, 2)]


def of_kind(kind: str) -> list[Example]:
    return [example for example in questions() if example.task == f"board-{kind}"]


def boxed(example: Example) -> list[str]:
    answer = example.answer.removeprefix("\\boxed{").removesuffix("}")
    return [] if answer == "none" else answer.split(", ")


def square_of(example: Example) -> int:
    return chess.parse_square(example.prompt[-1].content.split("\n")[1].partition(" on ")[2][:2])


def test_all_kinds_are_asked_and_every_answer_is_boxed() -> None:
    asked = Counter(example.task.removeprefix("board-") for example in questions())
    assert set(asked) == set(KINDS)
    assert min(asked.values()) > 6
    for example in questions():
        assert example.answer.startswith("\\boxed{")
        assert example.answer.endswith("}")
        assert example.fen in example.prompt[-1].content
        assert example.prompt[-1].content.endswith(" Put the answer in \\boxed{}.")


def test_the_pieces_make_the_board() -> None:
    for example in of_kind("pieces"):
        board, pieces = chess.Board(None), list[chess.Piece]()
        for part in example.answer[7:-1].split("], "):
            name, _, squares = part.partition(": [")
            colour, kind = name.split()
            piece = chess.Piece(chess.PIECE_NAMES.index(kind.lower()), colour == "White")
            pieces.append(piece)
            for square in squares.strip("]").split(", "):
                board.set_piece_at(chess.parse_square(square.strip("'")), piece)
        assert board.board_fen() == chess.Board(example.fen).board_fen()
        assert pieces == sorted(set(pieces), key=lambda p: (not p.color, -p.piece_type))


@pytest.mark.parametrize("kind", ["moves", "captures", "empty"])
def test_moves_of_a_piece_are_its_legal_ones(kind: str) -> None:
    for example in of_kind(kind):
        board, square = chess.Board(example.fen), square_of(example)
        legal = [move for move in board.legal_moves if move.from_square == square]
        if kind == "moves":
            expected = {move.uci() for move in legal}
        else:
            wanted = kind == "captures"
            expected = {
                chess.square_name(move.to_square)
                for move in legal
                if bool(board.piece_at(move.to_square)) is wanted
            }
        assert boxed(example) == sorted(expected)


def test_checks_are_the_moves_after_which_the_opponent_is_in_check() -> None:
    for example in of_kind("checks"):
        board, checking = chess.Board(example.fen), set[str]()
        for move in board.legal_moves:
            after = board.copy()
            after.push(move)
            checking |= {move.uci()} if after.is_check() else set()
        assert boxed(example) == sorted(checking)


def test_a_legal_move_is_told_from_an_illegal_one() -> None:
    answers = Counter[str]()
    for example in of_kind("legal"):
        legal = chess.Move.from_uci(example.move) in chess.Board(example.fen).legal_moves
        assert boxed(example) == ["yes" if legal else "no"]
        answers[example.answer] += 1
    assert len(answers) == 2


def test_the_state_follows_from_the_moves() -> None:
    for example in of_kind("state"):
        board = chess.Board(example.fen)
        moves = example.prompt[-1].content.split("\n")[1].split(" are ")[0].split()[2:]
        assert 1 <= len(moves) <= MOST_MOVES
        for move in moves:
            board.push_uci(move)
        assert boxed(example) == [board.fen()]


@pytest.mark.parametrize(
    ("kind", "fen", "answer"),
    [
        ("check", PINNED, "Black Queen at h1"),
        ("check", chess.STARTING_FEN, "none"),
        ("check", "4k3/8/8/8/8/2n5/8/r3K3 w - - 0 1", "Black Rook at a1"),
        ("check", "4k3/8/8/8/8/3n4/8/r3K3 w - - 0 1", "Black Knight at d3, Black Rook at a1"),
        ("material", chess.STARTING_FEN, "White 39, Black 39"),
        ("material", PINNED, "White 9, Black 17"),
        ("checks", "4k3/8/8/8/8/8/8/R3K3 w Q - 0 1", "a1a8"),
    ],
)
def test_answers(kind: str, fen: str, answer: str) -> None:
    assert KINDS[kind](chess.Board(fen), random.Random(1), "uci") == ({}, answer)


def test_a_pinned_piece_protects_along_its_pin_alone() -> None:
    board = chess.Board("4r1k1/8/8/8/8/4R3/3P1P2/4K3 w - - 0 1")
    protected = {
        about["square"]: answer
        for about, answer in (KINDS["protected"](board, random.Random(seed), "uci") for seed in range(99))
    }
    assert protected == {"e3": "none", "d2": "e3", "f2": "e3", "e8": "none"}


def test_moves_are_written_in_san_where_wanted() -> None:
    asked = (KINDS["moves"](chess.Board(), random.Random(seed), "san") for seed in range(200))
    assert {answer for about, answer in asked if about["square"] == "b1"} == {"Na3, Nc3"}

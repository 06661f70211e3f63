"""The engine's own move generator, asked for the moves of `JudgedPosition.key`: both read the same board."""

import random
import re
import subprocess
import zipfile
from pathlib import Path

import chess
import pytest

from services.reward.position import JudgedPosition, read_position
from tests.boards import random_boards

pytestmark = pytest.mark.stockfish


def engine_moves(stockfish_path: str, positions: list[JudgedPosition], *, chess960: bool) -> list[set[str]]:
    commands = [f"setoption name UCI_Chess960 value {str(chess960).lower()}"]
    for position in positions:
        commands += [f"position fen {position.key}", "go perft 1"]
    output = subprocess.run(
        [stockfish_path],
        input="\n".join([*commands, "quit", ""]),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    replies = output.split("Nodes searched")[:-1]
    return [set(re.findall(r"^(\w+): 1$", reply, re.MULTILINE)) for reply in replies]


def assert_same_moves(stockfish_path: str, positions: list[JudgedPosition], *, chess960: bool) -> None:
    for position, moves in zip(
        positions, engine_moves(stockfish_path, positions, chess960=chess960), strict=True
    ):
        assert {position.to_engine(move) for move in position.board.legal_moves} == moves, position.key
        assert {position.from_engine(uci) for uci in moves} == set(position.board.legal_moves), position.key


def test_standard_positions(stockfish_path: str) -> None:
    positions = [read_position(board.fen()) for board in random_boards(150, seed=21, plies=(1, 90))]
    assert_same_moves(stockfish_path, positions, chess960=False)


def test_chess960_positions(stockfish_path: str) -> None:
    rng = random.Random(22)
    positions = []
    while len(positions) < 150:
        board = chess.Board.from_chess960_pos(rng.randrange(960))
        for _ in range(rng.randint(0, 20)):
            board.push(rng.choice(list(board.legal_moves)))
            if board.is_game_over():
                break
        if any(board.legal_moves) and (position := read_position(board.fen())).chess960:
            positions.append(position)
    assert_same_moves(stockfish_path, positions, chess960=True)
    assert any(
        board.is_castling(move) for board in (p.board for p in positions) for move in board.legal_moves
    )


@pytest.mark.shared_data
def test_chess960_positions_of_others(stockfish_path: str, shared_data: Path) -> None:
    with zipfile.ZipFile(shared_data / "books_stockfish" / "FRC_openings.epd.zip") as book:
        fens = book.read(book.namelist()[0]).decode().splitlines()[::10]
    perft = (shared_data / "perft" / "python-chess" / "chess960.perft").read_text().splitlines()
    fens += [line.removeprefix("epd ") for line in perft if line.startswith("epd ")][::3]
    positions = [position for position in map(read_position, fens) if position.chess960]
    assert len(positions) > 300
    assert_same_moves(stockfish_path, positions, chess960=True)

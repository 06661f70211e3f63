"""Only positions an engine may be asked about get past; both colours become one question."""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.trace import Evaluation, Move
from services.reward.position import read_position
from tests.boards import random_boards
from tests.unit.rookery.test_fen import UNUSABLE


@pytest.mark.parametrize(
    ("fen", "why"),
    [
        ("", "not a FEN"),
        ("x", "not a FEN"),
        ("8/8/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("4k3/8/8/8/8/8/8/8 w - - 0 1", "no white king"),
        ("4k2R/8/8/8/8/8/8/4K3 w - - 0 1", "opposite check"),
        ("P3k3/8/8/8/8/8/8/4K3 w - - 0 1", "pawns on backrank"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1 " + "x" * 200, "a FEN cannot have"),
        ("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", "stalemate"),
        ("R5k1/5ppp/8/8/8/8/8/4K3 b - - 0 1", "checkmate"),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQ\u212aBNR w - - 0 1", "beyond ASCII"),  # a Kelvin sign
        ("4k3/8/8/8/8/8/4P3/4K3 w - - \u0661 1", "beyond ASCII"),  # an Arabic digit, which int() reads
        ("4k3/8/8/8/8/8/4P3/4K3 w - - -1 1", "cannot be negative"),
        ("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1 extra", "more parts"),
        ("4k~2R/8/8/8/8/8/8/4K3 w - - 0 1", "opposite check"),  # no exempt kings
        ("qqqqk3/qqqqqq2/8/8/8/8/QQQQQQ2/QQQQ2K1 w - - 0 1", "too many promoted pieces"),
        ("2bqkb2/pppppppp/b7/8/8/8/8/4K3 w - - 0 1", "too many promoted pieces"),
    ],
)
def test_refuses_and_quotes(fen: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        read_position(fen)
    assert repr(fen[:100])[:-1] in str(caught.value)


def test_a_position_and_its_mirror_image_are_one_question() -> None:
    board = chess.Board("r3k2r/pp2bppp/8/3pP3/8/2N5/PPP2PPP/R3K2R w KQkq d6 0 11")
    here, there = read_position(board.fen()), read_position(board.mirror().fen())
    assert here.key == there.key
    for move in board.legal_moves:
        twin = there.from_engine(here.to_engine(move))
        assert there.board.is_legal(twin)
        assert here.from_engine(there.to_engine(twin)) == move


def test_the_move_number_does_not_matter_but_the_clock_does() -> None:
    keys = {
        read_position(f"4k3/8/8/8/8/8/4P3/4K3 w - - {end}").key for end in ("0 1", "0 90", "50 90", "99 90")
    }
    assert len(keys) == 3
    assert read_position("4k3/8/8/8/8/8/4P3/4K3 w - - 999999999 1").key.endswith(" 100 1")


def test_a_spelling_does_not_matter() -> None:
    texts = ("RNBQKBNR w KQkq - 0 1", "RNBQKBNR w KQkq", "RNBQKBNR  w\tHAha - 0 0", "RNB~QKBNR w KQkq - 0 1")
    keys = {read_position(f"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/{text}").key for text in texts}
    assert keys == {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"}


@pytest.mark.parametrize(("given", "used"), UNUSABLE)
def test_flags_nobody_can_use_do_not_matter(given: str, used: str) -> None:
    given, used = read_position(given), read_position(used)
    assert (given.key, given.chess960) == (used.key, False)
    assert set(given.board.legal_moves) == set(used.board.legal_moves)


def test_the_key_is_the_mirrored_board_spelled_by_python_chess() -> None:
    for board in random_boards(60, seed=11, plies=(1, 120)):
        seen = board if board.turn else board.mirror()
        assert read_position(board.fen()).key == f"{seen.epd()} {board.halfmove_clock} 1"


def test_a_move_that_ends_the_game_is_settled_by_the_rules() -> None:
    ends = {
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "a1a8"): Evaluation(mate=1),
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 149 90", "a1a8"): Evaluation(mate=1),  # mate comes first
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 149 90", "a1b1"): Evaluation(cp=0),  # the 75-move rule
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 148 90", "a1b1"): None,
        ("7k/8/6K1/5Q2/8/8/8/8 w - - 0 1", "f5f7"): Evaluation(cp=0),  # stalemate
        ("8/8/8/8/3k4/8/1q6/K7 w - - 0 1", "a1b2"): Evaluation(cp=0),  # bare kings
        (chess.STARTING_FEN, "e2e4"): None,
    }
    for (fen, uci), settled in ends.items():
        assert read_position(fen).legal_move(chess.Move.from_uci(uci)).final_score == settled, (fen, uci)


def test_plays_are_what_python_chess_says() -> None:
    for played in random_boards(25, seed=12, plies=(1, 120)):
        board = played.copy(stack=False)
        position = read_position(board.fen())
        for move in board.legal_moves:
            play = position.legal_move(move)
            assert (play.move.uci, play.move.san) == (board.uci(move), board.san(move))
            assert position.legal_move(move) is play
            board.push(move)
            end = board.outcome()
            won = Evaluation(cp=0) if end and end.winner is None else Evaluation(mate=1)
            assert play.final_score == (won if end else None)
            board.pop()
        assert position.board.fen() == board.fen()


def test_an_illegal_move_of_the_engine_is_refused() -> None:
    with pytest.raises(chess.IllegalMoveError, match="'e2e5' in 'rnbqkbnr"):
        read_position(chess.STARTING_FEN).from_engine("e2e5")


CHESS960 = {
    "bbqnnrkr/pppppppp/8/8/8/8/PPPPPPPP/BBQNNRKR w KQkq - 0 1": "HFhf",
    "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9": "HFhf",
    "1r2k1r1/8/8/8/8/8/8/1R2K1R1 w KQkq - 0 1": "GBgb",  # only the rooks are unusual
    "rr2k2r/8/8/8/8/8/8/RR2K2R w HBhb - 0 1": "HBhb",  # the inner rook of two
    "4k3/8/8/8/8/8/8/RK4R1 w KQ - 0 1": "GA",
}


@pytest.mark.parametrize("fen", CHESS960)
def test_chess960_where_only_that_explains_the_rights(fen: str) -> None:
    position = read_position(fen)
    assert position.chess960
    assert position.key.split()[2] == CHESS960[fen]
    mirrored = read_position(chess.Board(fen, chess960=True).mirror().fen())
    assert (mirrored.key, mirrored.chess960) == (position.key, True)


@pytest.mark.parametrize(
    "fen",
    [
        chess.STARTING_FEN,
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w HAha - 0 1",
        "rbbnkqnr/pppppppp/8/8/8/8/PPPPPPPP/RBBNKQNR w KQkq - 0 1",  # king and rooks where they always are
        "bbqnnrkr/pppppppp/8/8/8/8/PPPPPPPP/BBQNNRKR w - - 0 1",
    ],
)
def test_standard_chess_wherever_the_rights_allow_it(fen: str) -> None:
    assert not read_position(fen).chess960


def test_castling_in_chess960_is_king_takes_rook() -> None:
    fen = "5k1r/5ppp/8/8/8/8/5PPP/5K1R w Hh - 0 1"
    position = read_position(fen)
    castle = position.board.parse_san("O-O")
    assert position.legal_move(castle).move == Move(uci="f1h1", san="O-O")
    assert position.to_engine(castle) == "f1h1"
    black = read_position(fen.replace("w", "b"))
    assert black.from_engine("f1h1") == black.board.parse_san("O-O") == chess.Move.from_uci("f8h8")


@pytest.mark.shared_data
def test_chess960_positions_of_others_come_through_whole(shared_data: Path) -> None:
    chess960 = 0
    for fen in chess960_fens(shared_data):
        board = chess.Board(fen, chess960=True)
        position = read_position(fen)
        chess960 += position.chess960
        again = chess.Board(position.key, chess960=True)
        expected = board if board.turn else board.mirror()
        assert again.epd(shredder=True) == expected.epd(shredder=True), fen
        if position.chess960:
            assert set(position.board.legal_moves) == set(board.legal_moves), fen
            assert {position.from_engine(move.uci()) for move in again.legal_moves} == set(board.legal_moves)
    assert chess960 == 1872  # the other 57 have king and rooks where standard chess has them, or no rights


def chess960_fens(shared_data: Path) -> Iterator[str]:
    with zipfile.ZipFile(shared_data / "books_stockfish" / "FRC_openings.epd.zip") as book:
        yield from book.read(book.namelist()[0]).decode().splitlines()
    perft = (shared_data / "perft" / "python-chess" / "chess960.perft").read_text().splitlines()
    yield from (line.removeprefix("epd ") for line in perft if line.startswith("epd "))
    yield from (
        line.split(";")[0].strip()
        for line in (shared_data / "perft" / "pychess" / "frc_perftsuite.epd").read_text().splitlines()
    )


REFUSED_THOUGH_PYTHON_CHESS_ACCEPTS = {
    "k6K/8/8/pppppppp/8/8/8/QqQq4",  # eight pawns and two queens
    "rnqbbknr/pppppppp/8/8/8/8/PPPPPPPP/RNBBBKNR w KQkq - 0 1",  # eight pawns and three bishops
    "krq5/bqqq4/qqrp4/1qq5/8/8/8/3qB2K b - - 0 1",  # nine queens and a pawn
}


@pytest.mark.shared_data
def test_agrees_with_labelled_fens(shared_data: Path) -> None:
    for line in (shared_data / "fen_fixtures" / "fen_dev.jsonl").read_text().splitlines():
        row = json.loads(line)
        # A check may be impossible only because of the en-passant square.
        dropped = {"IMPOSSIBLE_CHECK"} if row["fen"].split()[3:4] not in ([], ["-"]) else set()
        flaws = {*row.get("status", "?")} - {"BAD_CASTLING_RIGHTS", "INVALID_EP_SQUARE"} - dropped
        possible = not flaws and row["fen"] not in REFUSED_THOUGH_PYTHON_CHESS_ACCEPTS
        if possible and any(chess.Board(row["fen"], chess960=True).legal_moves):
            position = read_position(row["fen"])
            assert position.board.is_valid(), row
            if row["valid"]:
                assert position.board.fen() == (row["canonical"] or position.board.fen()), row
        else:
            with pytest.raises(InvalidInput):
                read_position(row["fen"])


@settings(max_examples=3 * settings.default.max_examples)
@given(st.data())
def test_mutated_fens_are_read_or_refused(data: st.DataObject) -> None:
    fen = list(data.draw(st.sampled_from([chess.STARTING_FEN, "8/P1k5/8/8/3pP3/8/8/R3K2R b KQ e3 0 40"])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(fen) - 1))
        fen[place] = data.draw(st.sampled_from([*"KQRBNPkqrbnp12345678/ wb-0", "", "\x00", "\u0663"]))
    try:
        position = read_position("".join(fen))
    except InvalidInput as error:
        assert repr("".join(fen)) in str(error)
        return
    asked = chess.Board(position.key, chess960=position.chess960)
    assert asked.turn == chess.WHITE
    assert asked.is_valid()

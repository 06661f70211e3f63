"""Move text: what is read as which move, and what is refused as what. More cases: `test_answers_traps`."""

import re

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.notation import MoveReading, read_move
from rookery.trace import Outcome

START = chess.STARTING_FEN
CASTLE = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
PROMOTE = "3n3k/4P3/8/8/8/8/8/4K3 w - - 0 1"
B_PAWN_OR_BISHOP = "4k3/8/8/8/8/2n5/1P1B4/4K3 w - - 0 1"
TWO_KNIGHTS = "4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1"
EN_PASSANT = "4k3/8/8/4Pp2/8/8/8/4K3 w - f6 0 1"
QUEEN = "4k3/8/8/8/8/Q7/8/4K3 w - - 0 1"
BLOCKED = "4k3/3n4/3P4/8/8/8/8/4K3 w - - 0 1"
MATE = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


@pytest.mark.parametrize(
    ("fen", "text", "uci"),
    [
        (START, "e2e4", "e2e4"),
        (START, "b1c3", "b1c3"),
        (START, "e2\u2013e4", "e2e4"),
        (START, "Nf3.", "g1f3"),
        (START, "Nf3+", "g1f3"),  # superfluous
        (START, "Nf3 $1", "g1f3"),
        (START, "Nf3!?", "g1f3"),
        (START, "e4, e2e4", "e2e4"),
        (MATE, "Qxf7+!!", "f3f7"),
        (MATE, "Q:f7", "f3f7"),
        (MATE, "Qf7#", "f3f7"),
        (MATE, "f3xf7", "f3f7"),
        (CASTLE, "0-0-0+", "e1c1"),
        (PROMOTE, "e7-e8=Q", "e7e8q"),
        (EN_PASSANT, "exf6e.p", "e5f6"),
        (TWO_KNIGHTS, "nbd2", "b1d2"),
        (TWO_KNIGHTS, "nb1d2", "b1d2"),
        (QUEEN, "qa3a4", "a3a4"),
    ],
)
def test_reads(fen: str, text: str, uci: str) -> None:
    assert read_move(text, chess.Board(fen)) == MoveReading(Outcome.LEGAL, chess.Move.from_uci(uci))


@pytest.mark.parametrize(
    ("fen", "text", "outcome"),
    [
        (START, "e2e5", Outcome.ILLEGAL),
        (START, "e2e4q", Outcome.ILLEGAL),
        (B_PAWN_OR_BISHOP, "bc1", Outcome.ILLEGAL),  # a pawn, however much a bishop could
        (PROMOTE, "exd8+", Outcome.AMBIGUOUS),
        (START, "e4 1... e5", Outcome.AMBIGUOUS),
        (START, "-- (0000)", Outcome.NULL_MOVE),
        (BLOCKED, "d7(d6d7)", Outcome.ILLEGAL),  # one move, written twice
        (START, "O-O (e1g1)", Outcome.ILLEGAL),
        (START, "Ke3 Ke3", Outcome.ILLEGAL),
        (START, "Ke1e1", Outcome.ILLEGAL),
        (START, "ke1-e1", Outcome.ILLEGAL),
        (START, "Ke3 (Ne3)", Outcome.AMBIGUOUS),
        (START, "Ke3 (d1e3)", Outcome.AMBIGUOUS),
        (START, "e5 d5", Outcome.AMBIGUOUS),
        (START, "d5e6 f5e6", Outcome.AMBIGUOUS),
        (START, "e8=Q e8=R", Outcome.AMBIGUOUS),
        (QUEEN, "q3-a4", Outcome.UNPARSABLE),
        (QUEEN, "q3xa4", Outcome.UNPARSABLE),
        (QUEEN, "q3a4+", Outcome.UNPARSABLE),
        *((START, text, Outcome.UNPARSABLE) for text in ("2e4", "P2e4", "ee4", "e-e4", "b2.4", "b2.b4")),
        (B_PAWN_OR_BISHOP, "b-c3", Outcome.UNPARSABLE),
        (START, "Sf3", Outcome.UNPARSABLE),
        (START, "Cf3", Outcome.UNPARSABLE),
        (START, "\ud800", Outcome.UNPARSABLE),
    ],
)
def test_refuses(fen: str, text: str, outcome: Outcome) -> None:
    assert read_move(text, chess.Board(fen)) == MoveReading(outcome)


def test_both_notations_of_every_legal_move_are_that_move() -> None:
    for fen in (START, CASTLE, PROMOTE, B_PAWN_OR_BISHOP, TWO_KNIGHTS, EN_PASSANT, MATE):
        board = chess.Board(fen)
        for move in board.legal_moves:
            for text in (move.uci(), board.san(move), board.lan(move), board.san(move).rstrip("+#")):
                assert read_move(text, board) == MoveReading(Outcome.LEGAL, move), (fen, text)


@settings(max_examples=4 * settings.default.max_examples)
@given(st.text(alphabet="abcdefgh12345678NBRQKOox=+#-0 .()/:,!?ep$@Z", max_size=12))
def test_whatever_is_read_is_legal_and_names_its_square(text: str) -> None:
    board = chess.Board(CASTLE)
    reading = read_move(text, board)
    assert (reading.move is None) == (reading.outcome is not Outcome.LEGAL)
    if reading.move is not None:
        assert board.is_legal(reading.move)
        castles = board.is_castling(reading.move)
        assert castles or chess.square_name(reading.move.to_square) in text


SAN = re.compile(r"[KQRBN][a-h]?[1-8]?[x:]?[a-h][1-8]|(?:[a-h][x:]?)?[a-h][1-8](?:=?[QRBNqrbn])?")
UCI = re.compile(r"[a-h][1-8][a-h][1-8][qrbnQRBN]?")


@settings(max_examples=10 * settings.default.max_examples)
@given(st.data())
def test_uci_with_one_wrong_character_is_never_another_move(data: st.DataObject) -> None:
    board = chess.Board(data.draw(st.sampled_from((START, CASTLE, PROMOTE, B_PAWN_OR_BISHOP, QUEEN, MATE))))
    move = data.draw(st.sampled_from(list(board.legal_moves)))
    uci = move.uci()
    place = data.draw(st.integers(0, len(uci)))
    wrong = data.draw(st.sampled_from(["", *"abcdefgh12345678knqrKNQRBPx-:.=+#"]))
    text = uci[:place] + wrong + uci[place + data.draw(st.integers(0, 1)) :]
    reading = read_move(text, board)
    if reading.move not in (None, move):
        assert UCI.fullmatch(text.strip("+#.:")) or SAN.fullmatch(text.strip("+#.:")), (text, reading)

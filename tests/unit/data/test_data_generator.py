"""Generated positions: reachable, never over, of their phase, and the same for the same seed."""

from collections import Counter

import chess
import pytest

from chess_datasets.pgn.games import phase_of
from chess_datasets.positions.generator import ENDGAME_MEN, OPENINGS, PositionGenerator, opening_board
from chess_datasets.positions.recipe import Shares
from rookery.errors import InvalidInput, SetupError
from rookery.trace import Phase, Position

ONLY = {Phase.OPENING: Shares(1, 0, 0), Phase.MIDDLEGAME: Shares(0, 1, 0), Phase.ENDGAME: Shares(0, 0, 1)}


@pytest.fixture(scope="module")
def drawn() -> list[Position]:
    return list(map(PositionGenerator(seed=1).position, range(100)))


def test_a_seed_and_a_number_are_a_position(drawn: list[Position]) -> None:
    assert PositionGenerator(seed=1).position(17) == drawn[17]
    assert list(map(PositionGenerator(seed=1).position, range(17, 20))) == drawn[17:20]
    assert PositionGenerator(seed=2).position(17) != drawn[17]


def test_the_same_seed_has_given_the_same_positions_before() -> None:
    assert [PositionGenerator(seed=7).position(number).fen for number in range(3)] == [
        "3qkb1r/2Bbpn1Q/np1p4/2pP1pp1/2P2P1p/3KP2P/PP2B1PN/RN4R1 b k - 12 21",
        "8/2p3r1/2N4p/3R3k/P1n4P/2P5/6P1/2K5 b - - 0 47",
        "1r2kb2/3ppppr/8/1bpP1q1p/1P4n1/P4N2/R3PPPP/1N1QKB1R w - - 3 16",
    ]


def test_positions_are_sound_and_go_on(drawn: list[Position]) -> None:
    for position in drawn:
        board = chess.Board(position.fen)
        assert board.is_valid()
        assert board.outcome() is None
        assert any(board.legal_moves)
        assert board.ply() == position.ply


def test_phases_mean_what_they_mean_for_games(drawn: list[Position]) -> None:
    for position in drawn:
        board = chess.Board(position.fen)
        assert phase_of(board) is position.phase
        if position.phase is Phase.ENDGAME:
            assert len(board.piece_map()) < ENDGAME_MEN


def test_phases_come_in_their_shares(drawn: list[Position]) -> None:
    counts = Counter(position.phase for position in drawn)
    assert counts[Phase.OPENING] / len(drawn) == pytest.approx(0.2, abs=0.1)
    assert counts[Phase.ENDGAME] / len(drawn) == pytest.approx(0.2, abs=0.1)


@pytest.mark.parametrize("phase", Phase)
def test_a_share_of_one_gives_nothing_else(phase: Phase) -> None:
    generator = PositionGenerator(shares=ONLY[phase])
    assert {position.phase for position in map(generator.position, range(5))} == {phase}


def test_last_moves_lead_to_the_position() -> None:
    generator = PositionGenerator(shares=ONLY[Phase.OPENING])
    for position in map(generator.position, range(40)):
        board = chess.Board()
        for move in position.last_moves:
            board.push_uci(move)
        assert board.fen() == position.fen


def test_ids_are_unique_and_game_ids_are_hashes(drawn: list[Position]) -> None:
    assert len({position.id for position in drawn}) == len(drawn)
    assert all(int(position.game_id, 16) >= 0 and len(position.game_id) == 16 for position in drawn)
    assert all(len(position.last_moves) == position.ply for position in drawn)


def test_positions_with_one_legal_move_can_be_left_out() -> None:
    generator = PositionGenerator(seed=1, least_moves=5, shares=ONLY[Phase.ENDGAME])
    assert all(
        chess.Board(position.fen).legal_moves.count() >= 5 for position in map(generator.position, range(8))
    )


def test_openings_without_a_middlegame_are_an_error() -> None:
    mated = "f3 e5 g4 Qh4#"
    with pytest.raises(SetupError, match="no middlegame in 200 walks from 1 openings"):
        PositionGenerator(openings=[mated], shares=ONLY[Phase.MIDDLEGAME]).position(0)


def test_every_opening_can_be_played_and_is_another() -> None:
    assert len({opening_board(opening).fen() for opening in OPENINGS}) == len(OPENINGS)
    assert all(phase_of(opening_board(opening)) is Phase.OPENING for opening in OPENINGS)


def test_an_opening_that_cannot_be_played_is_quoted() -> None:
    with pytest.raises(InvalidInput, match="not an opening: 'e4 e5 Ke3'"):
        opening_board("e4 e5 Ke3")

"""Every detector on a board where a player can see the answer."""

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.data.annotate.exchange import best_gain, gain
from services.data.annotate.facts import Fact, files, kings, material, mates, pawns, pieces, survey, tactics
from tests.unit.data.annot_studies import random_study

sq = chess.parse_square


def found(kind: type[Fact], fen: str) -> list[Fact]:
    return [fact for fact in survey(chess.Board(fen)) if type(fact) is kind]


def test_the_balance_cancels_like_against_like() -> None:
    (fact,) = found(material.Balance, "r3k3/pp6/8/8/8/8/PPP5/2B1K3 w - - 0 1")
    assert fact == material.Balance(white=(1, 0, 1, 0, 0), black=(0, 0, 0, 1, 0), points=-1)


@pytest.mark.parametrize(
    ("fen", "kind"),
    [
        ("4k3/p7/8/8/8/8/P7/4K3 w - - 0 1", chess.PAWN),
        ("4k2r/p7/8/8/8/8/P7/R3K3 w - - 0 1", chess.ROOK),
        ("4k1n1/p7/8/8/8/8/P7/1N2K3 w - - 0 1", chess.KNIGHT),
    ],
)
def test_endings_are_named_by_the_pieces_left(fen: str, kind: int) -> None:
    assert found(material.Ending, fen) == [material.Ending(kind)]


def test_opposite_bishops_and_the_pair() -> None:
    (fact,) = found(material.OppositeBishops, "4k3/2b2p2/8/8/8/8/2B2P2/4K3 w - - 0 1")
    assert fact == material.OppositeBishops(sq("c2"), sq("c7"), pure=True)
    assert found(material.BishopPair, "4k1n1/8/8/8/8/8/8/2B1KB2 w - - 0 1") == [material.BishopPair(True)]


@pytest.mark.parametrize(
    ("fen", "square", "passed"),
    [
        ("4k3/8/8/3P4/8/8/8/4K3 w - - 0 1", "d5", True),
        ("4k3/4p3/8/3P4/8/8/8/4K3 w - - 0 1", "d5", False),
        ("4k3/3p4/8/3P4/8/8/8/4K3 w - - 0 1", "d5", False),
        ("4k3/8/8/3Pp3/8/8/8/4K3 w - - 0 1", "d5", True),
        ("4k3/8/3P4/3P4/8/8/8/4K3 w - - 0 1", "d5", False),
        ("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "d4", False),
        ("4k3/8/8/8/3p4/4P3/8/4K3 w - - 0 1", "d4", False),
        ("4k3/8/8/8/3pP3/8/8/4K3 w - - 0 1", "d4", True),
        ("4k3/8/8/8/7p/8/P7/4K3 w - - 0 1", "h4", True),
    ],
)
def test_passed_pawns(fen: str, square: str, passed: bool) -> None:
    there = [fact.square for fact in found(pawns.Passed, fen) if isinstance(fact, pawns.Passed)]
    assert (sq(square) in there) == passed


def test_a_passed_pawn_knows_its_way_its_guard_and_its_blocker() -> None:
    (white, _) = found(pawns.Passed, "4k3/8/3n4/3P4/4P3/8/8/4K3 w - - 0 1")
    assert white == pawns.Passed(sq("e4"), True, steps=4, protected=False, blocker=None)
    fact = found(pawns.Passed, "4k3/8/3n4/3P4/4P3/8/8/4K3 w - - 0 1")[1]
    assert fact == pawns.Passed(sq("d5"), True, steps=3, protected=True, blocker=sq("d6"))


def test_weak_pawns() -> None:
    fen = "4k3/p1p2p2/2p2p2/8/3p1P2/8/2P3PP/4K3 w - - 0 1"
    isolated = {fact.squares[0] for fact in found(pawns.Isolated, fen)}
    assert {sq("c2"), sq("a7"), sq("f7"), sq("f6")} == isolated
    assert [fact.squares for fact in found(pawns.Doubled, fen)] == [
        (sq("c6"), sq("c7")),
        (sq("f6"), sq("f7")),
    ]
    backward = found(pawns.Backward, "4k3/8/3p4/2p5/2P1P3/8/8/4K3 b - - 0 1")
    assert backward == [] or all(fact.squares[0] != sq("c5") for fact in backward)
    (fact,) = found(pawns.Backward, "4k3/8/3p4/4p3/2P1P3/8/8/4K3 b - - 0 1")
    assert fact == pawns.Backward(sq("d6"), False, sq("d5"))


def test_files() -> None:
    fen = "2r1k3/pp3p2/8/8/8/8/PP3P2/2R1K3 w - - 0 1"
    opened = {fact.file: fact for fact in found(files.OpenFile, fen) if isinstance(fact, files.OpenFile)}
    assert set(opened) == {2, 3, 4, 6, 7}
    assert opened[2].white == (sq("c1"),)
    assert opened[2].black == (sq("c8"),)
    (half,) = found(files.HalfOpen, "4k3/1p6/8/8/8/8/8/1R2K3 w - - 0 1")
    assert half == files.HalfOpen(True, 1, sq("b7"), (sq("b1"),))
    assert found(files.Seventh, "4k3/R4p2/8/8/8/8/8/4K3 w - - 0 1") == [files.Seventh(sq("a7"), True)]
    (doubled,) = found(files.Doubled, "4k3/8/8/8/8/8/3R4/3RK3 w - - 0 1")
    assert doubled == files.Doubled(True, 3, (sq("d1"), sq("d2")))


def test_kings() -> None:
    middlegame = "r1bq1rk1/pppn1ppp/8/8/8/8/PPP2PPP/R1BQK2R w KQ - 0 1"
    (shelter,) = found(kings.Sheltered, middlegame)
    assert shelter == kings.Sheltered(False, sq("g8"), (sq("f7"), sq("g7"), sq("h7")))
    (central,) = found(kings.Central, middlegame)
    assert central == kings.Central(True, sq("e1"), kingside=True, queenside=True)
    (weak,) = found(kings.BackRank, "1r3rk1/5ppp/8/8/8/8/QR3PPP/6K1 b - - 0 1")
    assert weak == kings.BackRank(True, sq("g1"), (sq("f2"), sq("g2"), sq("h2")))
    opened = found(kings.Line, "r2q1rk1/pppn1p1p/8/8/8/8/PPP2P1P/R1BQK1RN w Q - 0 1")
    assert opened[-1] == kings.Line(False, sq("g8"), 6, open=True, heavy=(sq("g1"),))
    (siege,) = found(kings.Besieged, "r2q1rk1/pppn1ppp/8/6NQ/8/8/PPP2PPP/R1B1K2R w KQ - 0 1")
    assert siege == kings.Besieged(False, sq("g8"), (sq("g5"), sq("h5")))


def test_a_king_on_the_edge_has_no_shelter_on_the_other_edge() -> None:
    facts = found(kings.Sheltered, "r3r2k/p2b2bp/1p2p1p1/8/3P4/BBP2N1P/PP3P2/R4QK1 b - - 0 26")
    assert all(sq("a7") not in fact.squares for fact in facts)


def test_opposition() -> None:
    (fact,) = found(kings.Opposition, "8/8/4k3/8/4K3/8/4P3/8 w - - 0 1")
    assert fact == kings.Opposition(True, (sq("e4"), sq("e6")))


def test_connected_passers_are_near_each_other_and_told_in_pairs() -> None:
    assert found(pawns.Connected, "4k3/8/8/6P1/8/7P/8/4K3 w - - 0 1") == []
    three = found(pawns.Connected, "4k3/8/6P1/5P1P/8/8/8/4K3 w - - 0 1")
    assert three == [pawns.Connected(True, (sq("f5"), sq("g6")))]


def test_pieces() -> None:
    outpost = "4k3/p7/8/3N4/4P3/8/8/4K3 w - - 0 1"
    assert found(pieces.Outpost, outpost) == [pieces.Outpost(sq("d5"), True)]
    assert found(pieces.Outpost, outpost.replace("p7", "2p5")) == []
    (bad,) = found(pieces.BadBishop, "4k3/8/8/p1p1p1p1/P1P1P1P1/8/8/4KB2 w - - 0 1")
    assert bad == pieces.BadBishop(sq("f1"), True, same=4, total=4, hemmed=False)
    (bad,) = found(pieces.BadBishop, "4k3/8/8/8/8/4P3/1P1P1PP1/2B1K3 w - - 0 1")
    assert bad.hemmed
    home = found(pieces.AtHome, "r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3")
    assert {fact.favours for fact in home} == {None}
    assert {len(fact.squares) for fact in home} == {3}


def test_loose_and_pressed() -> None:
    (loose,) = found(tactics.Loose, "4k3/8/8/3n4/8/8/8/3RK3 w - - 0 1")
    assert loose == tactics.Loose(sq("d5"), False, (sq("d1"),))
    (pressed,) = found(tactics.Pressed, "4k3/8/2p5/3n4/4P3/8/8/4K3 w - - 0 1")
    assert pressed == tactics.Pressed(sq("d5"), False, (sq("e4"),), (sq("c6"),))


def test_pins_skewers_and_discoveries() -> None:
    (pin,) = found(tactics.Pin, "4k3/8/4n3/8/8/8/8/4RK2 w - - 0 1")
    assert pin == tactics.Pin(sq("e6"), sq("e1"), sq("e8"), False)
    assert found(tactics.Pin, "4k3/4p3/4n3/8/8/8/8/4RK2 w - - 0 1") == []
    (skewer,) = found(tactics.Skewer, "4q3/8/4k3/8/8/8/8/4RK2 b - - 0 1")
    assert skewer == tactics.Skewer(sq("e1"), sq("e6"), sq("e8"), False)
    (discovery,) = found(tactics.Discovery, "4k3/8/8/4N3/8/8/8/4RK2 w - - 0 1")
    assert discovery == tactics.Discovery(sq("e1"), sq("e5"), sq("e8"), True)
    assert found(tactics.Discovery, "4k3/8/8/4P3/8/8/8/4RK2 w - - 0 1") == []


def test_forks_and_overload() -> None:
    (fork,) = found(tactics.Fork, "r3k3/2N5/8/8/8/8/8/4K3 b - - 0 1")
    assert fork == tactics.Fork(sq("c7"), (sq("a8"), sq("e8")), False)
    (busy,) = found(tactics.Overloaded, "3q2k1/8/8/3n4/7n/8/8/3R1K1R b - - 0 1")
    assert busy == tactics.Overloaded(sq("d8"), (sq("h4"), sq("d5")), False)


def test_mates_in_one_of_both_sides() -> None:
    fen = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
    (now,) = found(mates.MateNow, fen)
    assert now == mates.MateNow(True, (chess.Move.from_uci("d1d8"),))
    (threat,) = found(mates.MateThreat, fen.replace(" w ", " b "))
    assert threat == mates.MateThreat(True, (chess.Move.from_uci("d1d8"),))


@given(st.integers(0, 10_000))
@settings(max_examples=25)
def test_no_fact_changes_the_board_and_all_are_found_twice(seed: int) -> None:
    board = chess.Board(random_study(seed).fen)
    before = board.fen()
    assert list(survey(board)) == list(survey(board))
    assert board.fen() == before


@pytest.mark.parametrize(
    ("fen", "move", "points"),
    [
        ("1k1r4/1pp4p/p7/4p3/8/P5P1/1PP4P/2K1R3 w - - 0 1", "e1e5", 1),
        ("1k1r3q/1ppn3p/p4b2/4p3/8/P2N2P1/1PP1R1BP/2K1Q3 w - - 0 1", "d3e5", -2),
        ("4k3/8/8/8/8/8/3p4/2R1K3 b - - 0 1", "d2c1q", 13),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "e5d6", 1),
    ],
)
def test_the_static_exchange(fen: str, move: str, points: int) -> None:
    assert gain(chess.Board(fen), chess.Move.from_uci(move)) == points


def test_a_quiet_board_has_nothing_to_gain() -> None:
    assert best_gain(chess.Board()) == 0

"""What a move does, on boards where a player can see it."""

from itertools import pairwise

import chess
import pytest

from services.data.annotate.ideas import Idea, defence, drawbacks, ideas_of, lines, pressure, shape, strikes
from services.data.annotate.step import Step

sq = chess.parse_square


def found(kind: type[Idea], fen: str, san: str, *, threat: str | None = None) -> list[Idea]:
    board = chess.Board(fen)
    step = Step.of(board, board.parse_san(san))
    feared = chess.Move.from_uci(threat) if threat else None
    return [idea for idea in ideas_of(step, threat=feared) if type(idea) is kind]


@pytest.mark.parametrize(
    ("fen", "san", "expected"),
    [
        ("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1", "Rd8#", strikes.Mates()),
        ("k7/2K5/8/8/8/8/8/1Q6 w - - 0 1", "Qb6", strikes.Stalemates()),
        ("4k3/8/8/3n4/8/8/8/3RK3 w - - 0 1", "Rxd5", strikes.Captures(sq("d5"), chess.KNIGHT, False, True)),
        ("4k3/8/8/3pP3/8/8/8/4K3 w - d6 0 2", "exd6", strikes.Captures(sq("d5"), chess.PAWN, True, False)),
        ("4k3/P7/8/8/8/8/8/4K3 w - - 0 1", "a8=N", strikes.Promotes(chess.KNIGHT)),
        ("k3r3/8/8/8/8/8/4N3/4K3 b - - 0 1", "Rxe2+", strikes.Captures(sq("e2"), chess.KNIGHT, False, False)),
        ("r3k3/8/8/3N4/8/8/8/4K3 w - - 0 1", "Nc7+", pressure.Forks((sq("a8"), sq("e8")))),
        ("4k3/8/3q4/8/8/8/8/R3K3 w - - 0 1", "Rd1", pressure.Attacks((sq("d6"),))),
        ("4k3/8/8/2p5/8/8/1P6/4K3 w - - 0 1", "b4", pressure.Levers((sq("c5"),))),
        ("7k/4n3/8/8/8/8/8/R3K3 w - - 0 1", "Ra7", pressure.Attacks((sq("e7"),))),
        ("4k3/4n3/8/8/8/8/4Q3/R3K3 w - - 0 1", "Ra7", pressure.PilesUp(sq("e7"))),
        ("4k3/p7/8/8/8/8/8/1R2K3 w - - 0 1", "Rb7", pressure.TargetsPawn(sq("a7"), "undefended")),
        ("4k3/4n3/8/8/8/8/8/K6R w - - 0 1", "Re1", lines.Pins(sq("e7"), sq("e8"))),
        ("4k3/8/8/8/4N3/8/8/4RK2 w - - 0 1", "Nc5+", lines.Uncovers(sq("e1"), sq("e8"))),
        ("4k3/8/8/8/4r3/4N3/8/4K3 w - - 0 1", "Kd2", lines.Unpins(sq("e3"))),
    ],
)
def test_what_a_move_does_to_the_enemy(fen: str, san: str, expected: Idea) -> None:
    assert expected in found(type(expected), fen, san)


@pytest.mark.parametrize(
    ("fen", "san", "expected"),
    [
        ("6k1/5ppp/8/8/8/8/r4PPP/6K1 w - - 0 1", "h3", defence.Parries(chess.Move.from_uci("a2a1"))),
        ("4k3/8/8/8/4r3/8/3B4/4K3 w - - 0 1", "Be3", defence.Blocks(sq("e4"))),
        ("4k3/8/8/8/4r3/8/3B4/4K3 w - - 0 1", "Kd1", defence.Evades()),
        ("4k3/8/8/4p3/3N4/8/8/4K3 w - - 0 1", "Nf3", defence.Escapes(sq("e5"))),
        ("4k3/8/8/3r4/8/3P4/8/R3K3 w - - 0 1", "Ra3", defence.Defends((sq("d3"),))),
        ("4k3/3r4/b7/8/8/3P4/4K3/R7 w - - 0 1", "Ra3", defence.Reinforces(sq("d3"))),
        ("6k1/5ppp/8/8/8/8/5PPP/r4BKN w - - 0 1", "h3", defence.GivesAir()),
        ("r3k3/8/8/8/1b6/2N5/8/R3K3 w Q - 0 1", "Rxa8+", drawbacks.ForfeitsCastling()),
        ("4k3/8/8/8/1b6/2N5/1P6/4K3 w - - 0 1", "b3", drawbacks.LeavesLoose((sq("c3"),))),
        ("4k3/8/4p3/8/8/2N5/8/4K3 w - - 0 1", "Nd5", drawbacks.Exposed(sq("e6"), True)),
        ("4k3/8/8/3n4/4P3/8/5P2/4K3 w - - 0 1", "exd5", drawbacks.Spoils(isolated=True)),
    ],
)
def test_what_a_move_does_for_its_own_side(fen: str, san: str, expected: Idea) -> None:
    assert expected in found(type(expected), fen, san)


@pytest.mark.parametrize(
    ("fen", "san", "expected"),
    [
        ("4k3/8/8/8/8/8/8/4K2R w K - 0 1", "O-O", shape.Castles(kingside=True)),
        ("4k3/8/8/8/8/8/8/R3K3 w Q - 0 1", "O-O-O", shape.Castles(kingside=False)),
        ("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "Nf3", shape.Develops(chess.KNIGHT, 3)),
        ("4k3/8/8/3p4/4P3/8/8/4K3 w - - 0 1", "exd5", shape.OpensFile(4)),
        ("4k3/8/8/8/8/8/P7/R3K3 w - - 0 1", "Rd1", shape.TakesFile(3, open=True)),
        ("4k3/5p2/8/8/8/8/P7/1R2K3 w - - 0 1", "Rb7", shape.TakesSeventh()),
        ("4k3/8/8/8/8/3R4/8/R3K3 w - - 0 1", "Rad1", shape.DoublesRooks(3)),
        ("4k3/8/8/8/4P3/2N5/8/4K3 w - - 0 1", "Nd5", shape.TakesOutpost()),
        ("4k3/8/8/3P4/8/8/8/4K3 w - - 0 1", "d6", shape.Advances(2)),
        ("4k3/8/8/8/8/3p4/8/4K3 w - - 0 1", "Kd2", shape.Blockades(sq("d3"))),
        ("4k3/8/8/3P4/8/8/8/R3K3 w - - 0 1", "Rd1", shape.BacksPasser(sq("d5"))),
        ("4k3/8/8/8/8/8/4P3/4KB2 w - - 0 1", "e4", shape.Frees(sq("f1"))),
        ("4k3/8/8/8/8/8/8/1N2K3 w - - 0 1", "Nc3", shape.Centralises(chess.KNIGHT)),
        ("4k3/8/5n2/8/8/8/7P/4K3 w - - 0 1", "h3", shape.Denies(sq("g4"), sq("f6"))),
        ("4k3/8/8/8/8/8/8/1N2K3 w - - 0 1", "Nc3", shape.Covers((sq("e4"), sq("d5")))),
    ],
)
def test_what_a_move_does_to_the_shape(fen: str, san: str, expected: Idea) -> None:
    assert expected in found(type(expected), fen, san)


@pytest.mark.parametrize(
    ("fen", "san", "kind"),
    [
        ("4k3/1b6/8/8/8/8/1R6/R3K3 w - - 0 1", "Kd2", pressure.Attacks),
        ("4k3/4n3/8/8/8/8/8/R3K3 w - - 0 1", "Ra8+", lines.Pins),
        ("4k3/8/8/4p3/8/2N5/8/4K3 w - - 0 1", "Nd5", drawbacks.Exposed),
        ("4k3/2p5/8/3P4/8/8/8/4K3 w - - 0 1", "d6", shape.Advances),
        ("4k3/8/8/8/3p4/8/8/R3K3 w - - 0 1", "Kd2", shape.Blockades),
        ("6k1/5ppp/8/8/8/8/r4PPP/6K1 w - - 0 1", "f3", defence.Blocks),
        ("r3k3/8/8/8/8/8/8/R3K2R w KQ - 0 1", "O-O", drawbacks.ForfeitsCastling),
        ("4k3/8/8/8/8/8/3p4/4K3 w - - 0 1", "Kxd2", defence.Evades),
    ],
)
def test_what_a_move_does_not(fen: str, san: str, kind: type[Idea]) -> None:
    assert found(kind, fen, san) == []


def test_a_pinned_pawn_cannot_take_the_moved_piece() -> None:
    exposed = found(drawbacks.Exposed, "6k1/6p1/p7/3Pn3/5p2/4rBqP/P4RP1/5QK1 b - - 0 1", "Nxf3+")
    assert all(idea.squares != (sq("g2"),) for idea in exposed)


def test_a_threat_is_met_by_making_it_impossible_or_harmless() -> None:
    fen = "4r1k1/pq3p1p/2p1r1p1/2Q1p3/3nN1P1/1P6/P1P2P1P/3RR1K1 w - - 0 1"
    check = chess.Move.from_uci("d4f3")
    assert found(defence.StopsThreat, fen, "Kg2", threat="d4f3") == [defence.StopsThreat(check, check=True)]
    assert found(defence.StopsThreat, fen, "a3", threat="d4f3") == []
    rook = chess.Move.from_uci("e8e1")
    shut = found(defence.StopsThreat, "4r1k1/8/8/8/8/8/2B5/6K1 w - - 0 1", "Be4", threat="e8e1")
    assert shut == [defence.StopsThreat(rook, check=False)]


def test_the_most_important_idea_comes_first_and_drawbacks_last() -> None:
    board = chess.Board("q3k3/8/2p5/3N4/8/8/8/4K3 w - - 0 1")
    ideas = ideas_of(Step.of(board, board.parse_san("Nc7+")))
    assert isinstance(ideas[0], pressure.Forks)
    board = chess.Board("q3k3/2N2ppp/8/8/8/8/8/4K3 w - - 0 1")
    ideas = ideas_of(Step.of(board, board.parse_san("Nxa8")))
    assert isinstance(ideas[0], strikes.Captures)
    assert all(earlier.weight > 0 or later.weight <= 0 for earlier, later in pairwise(ideas))

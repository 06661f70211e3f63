import random
import sys
from types import FrameType
from typing import Any

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chess_datasets.pgn.games import Game, SkippedGame, in_split, phase_of
from chess_datasets.pgn.parser import parse_game
from rookery.pgn.rawgame import Defect, RawGame
from rookery.trace import Phase
from tests.unit.data.texts import ENDING, ENDING_FEN, MATE, RUY, SOURCE, game, sound

SHUFFLE = "1. Nf3 Nf6 2. Ng1 Ng8 " * 10


def skipped(text: str) -> SkippedGame:
    parsed = parse_game(RawGame(3, text.encode(), 60), SOURCE)
    assert isinstance(parsed, SkippedGame)
    return parsed


@pytest.mark.parametrize(
    ("text", "defect", "said"),
    [
        (game("1. e4 e5 2. Ke3 *"), Defect.BAD_MOVE, "illegal san: 'Ke3' in rnbqkbnr"),
        (game("1. Nf3 Nc6 2. Nb1 *"), Defect.BAD_MOVE, "illegal san"),
        (game("1. Nc3 d5 2. Nh3 d4 3. Nd5 c5 4. Nf4 h6 5. Nd3 *"), Defect.BAD_MOVE, "ambiguous san: 'Nf4'"),
        (game("1. e4 Qa9 2. d4 *"), Defect.BAD_MOVE, "no move: 'Qa9'"),
        (game("1. e4 hello e5 *"), Defect.BAD_MOVE, "no move: 'hello'"),
        (game("1. e4 e5 * 2. Nf3"), Defect.BAD_MOVE, "'g1f3' after the result"),
        (game("1. e4 -- 2. d4 *"), Defect.NULL_MOVE, "null move in"),
        (game("1. e4 0000 2. d4 *"), Defect.NULL_MOVE, "null move in"),
        (game(Variant="Crazyhouse"), Defect.VARIANT, "'Crazyhouse'"),
        (game(Variant="Chess960"), Defect.VARIANT, "'Chess960'"),
        (game(FEN="nrkbbqrn/pppppppp/8/8/8/8/PPPPPPPP/NRKBBQRN w BGbg - 0 1"), Defect.VARIANT, "Chess960"),
        (game(FEN="nonsense"), Defect.BAD_START, "nonsense"),
        (game(FEN="8/8/8/8/8/8/8/8 w - - 0 1"), Defect.BAD_START, "no white king"),
        (game("*"), Defect.NO_MOVES, "no moves"),
        (game("{ nothing } *"), Defect.NO_MOVES, "no moves"),
        ("", Defect.NO_MOVES, "no moves"),
    ],
)
def test_what_is_wrong_is_named(text: str, defect: Defect, said: str) -> None:
    game = skipped(text)
    assert game.defect is defect
    assert said in game.detail
    assert str(game).startswith(f"games.pgn game 3 at byte 60: {defect.value}: ")


def test_a_defect_found_earlier_stands() -> None:
    raw = RawGame(9, game().encode(), 5, Defect.DAMAGED_FILE, "cut")
    assert parse_game(raw, SOURCE) == SkippedGame("games.pgn", 9, Defect.DAMAGED_FILE, "cut", 5)


@pytest.mark.parametrize(
    "moves",
    [
        "1.e4 e5 2.Nf3 Nc6 *",
        "e4 e5 Nf3 Nc6",
        "1. e2e4 e7e5 2. Ng1-f3 Nb8c6 *",
        "1. e4! e5?? $14 2. Nf3 (2. f4 exf4 (2... d5)) 2... Nc6 {book} *",
        "1. e4 { [%eval 0.3] [%clk 0:03:00] } 1... e5 2. Nf3+ Nc6# 1-0",
    ],
)
def test_ways_to_write_the_same_game(moves: str) -> None:
    parsed = sound(game(moves))
    assert [move.uci() for _, _, move in parsed.replay()] == ["e2e4", "e7e5", "g1f3", "b8c6"]


def test_absurd_numbers_stop_nobody() -> None:
    digits = "9" * 6000
    absurd = [f"{digits}. e4 e5 *", f"1. e4 ${digits} e5 *", f"1. e4 {{[%clk {digits}:00:00]}} e5 *"]
    for moves in absurd:
        assert len(sound(game(moves, Result=digits, WhiteElo=digits)).moves) == 2
    assert len(skipped(game(FEN=f"4k3/8/8/8/8/8/8/4K3 w - - {digits} 1")).detail) < 300


@pytest.mark.parametrize(
    "moves",
    [
        *(
            f"1. e4 c6 2. e5 d5 3. exd6{mark} Nf6 *"
            for mark in (" e.p.", "e.p.", "ep", " ep", "!e.p.", " {x} e.p.")
        ),
        "1. a4 b5 2. axb5 a6 3. bxa6 c6 4. a7 c5 5. axb8=N",
    ],
)
def test_rare_moves(moves: str) -> None:
    parsed = sound(game(moves))
    board = chess.Board(parsed.position(len(parsed.moves) - 1).fen)
    *_, (_, before, last) = parsed.replay()
    assert board.fen() == before.fen() or last in board.legal_moves


@pytest.mark.parametrize(
    ("tag", "elo"),
    [
        ("1800", 1800),
        ("?", None),
        ("", None),
        ("-", None),
        ("0", None),
        ("99999", None),
        ("9" * 5000, None),
        ("²", None),
    ],
)
def test_elo(tag: str, elo: int | None) -> None:
    assert sound(game(WhiteElo=tag, BlackElo="2000")).white_elo == elo


def test_a_position_carries_where_it_comes_from() -> None:
    parsed = sound(game(WhiteElo="1500"))
    position = parsed.position(9)
    assert position.id == "01234567:1:9"
    assert position.game_id == parsed.id
    assert position.fen == "r1bqkb1r/1ppp1ppp/p1n2n2/4p3/B3P3/5N2/PPPP1PPP/RNBQ1RK1 b kq - 3 5"
    assert position.last_moves == ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "b5a4", "g8f6", "e1g1")
    assert (position.white_elo, position.black_elo) == (1500, None)
    assert parsed.position(0).last_moves == ()


def test_the_last_position_is_never_one() -> None:
    parsed = sound(game(MATE))
    assert [ply for phase in Phase for ply in parsed.plies(phase)] == [0, 1, 2, 3]


def test_a_set_up_game_starts_where_it_says() -> None:
    parsed = sound(game(ENDING, FEN=ENDING_FEN, SetUp="1"))
    assert parsed.plies(Phase.ENDGAME) == [0, 1, 2, 3, 4, 5]
    assert parsed.position(0).fen == ENDING_FEN


def test_phases() -> None:
    assert phase_of(chess.Board()) is Phase.OPENING
    board = chess.Board()
    board.fullmove_number = 13
    assert phase_of(board) is Phase.MIDDLEGAME
    for square in (chess.B1, chess.C1, chess.F1, chess.G1, chess.B8, chess.C8, chess.F8):
        board.remove_piece_at(square)
    assert phase_of(board) is Phase.MIDDLEGAME
    board.remove_piece_at(chess.G8)
    assert phase_of(board) is Phase.ENDGAME


def drawn(parsed: Game) -> set[int]:
    return {ply for phase in Phase for ply in parsed.plies(phase)}


def test_fivefold_repetition_ends_the_game() -> None:
    parsed = sound(game(f"{SHUFFLE} *"))
    assert drawn(parsed) == set(range(16))


def test_the_work_grows_as_the_game() -> None:
    """python-chess looks for repetitions in the whole game at each ply."""
    board, rng, sans = chess.Board(), random.Random(0), []
    while len(sans) < 1200:  # knights, and a pawn before 75 moves without one
        kind = chess.PAWN if board.halfmove_clock > 140 else chess.KNIGHT
        disturbs = {m: board.is_capture(m) or board.gives_check(m) for m in board.legal_moves}
        first = min(
            disturbs, key=lambda m: (disturbs[m], board.piece_type_at(m.from_square) != kind, rng.random())
        )
        sans.append(board.san_and_push(first))

    def steps(plies: int) -> int:
        count = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        sys.settrace(trace)
        try:
            sound(game(" ".join(sans[:plies])))
        finally:
            sys.settrace(None)
        return count

    assert steps(1200) < 2.3 * steps(600)


def test_seventy_five_moves_end_the_game() -> None:
    fen = "4k3/7p/8/8/8/8/P7/4K3 w - - 148 100"
    parsed = sound(game("100. Kd2 Kd7 101. Kd3 Kd6 102. a4 *", FEN=fen))
    assert drawn(parsed) == {0, 1}


def test_bare_kings_end_the_game() -> None:
    parsed = sound(game("1. Kxe2 Kd7 2. Kd3 *", FEN="4k3/8/8/8/8/8/4p3/4K3 w - - 0 1"))
    assert drawn(parsed) == {0}


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(seed=st.integers(0, 1 << 32), plies=st.integers(1, 80))
def test_every_game_replays(seed: int, plies: int) -> None:
    board, rng, sans, fens = chess.Board(), random.Random(seed), [], []
    while len(sans) < plies and not board.is_checkmate() and not board.is_stalemate():
        move = rng.choice(sorted(board.legal_moves, key=chess.Move.uci))
        sans.append(board.san(move))
        fens.append(board.fen())
        board.push(move)
    parsed = sound(game(" ".join(sans)))
    assert [board.fen() for _, board, _ in parsed.replay()] == fens
    assert all(parsed.position(ply).fen == fens[ply] for ply in drawn(parsed))
    assert all(not chess.Board(fens[ply]).is_game_over() for ply in drawn(parsed))


@given(st.integers(0, (1 << 64) - 1))
def test_a_game_is_on_one_side(number: int) -> None:
    game_id = f"{number:016x}"
    assert in_split(game_id, "train") != in_split(game_id, "heldout")
    assert in_split(game_id, "all")


def test_a_twentieth_is_held_out() -> None:
    ids = [RawGame(1, " ".join("abcdefgh"[int(c)] + "4" for c in f"{i:o}").encode()).id for i in range(4000)]
    assert 0.04 < sum(in_split(game_id, "heldout") for game_id in ids) / len(ids) < 0.06


def test_ruy_is_an_opening() -> None:
    assert sound(game(RUY)).plies(Phase.OPENING) == list(range(10))


def test_marks_of_en_passant_change_no_id() -> None:
    moves = "1. e4 c6 2. e5 d5 3. exd6{} Nf6 *"
    assert len({sound(game(moves.format(mark))).id for mark in ("", "ep", "e.p.", " e.p.", "!ep")}) == 1

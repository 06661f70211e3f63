"""Puzzles are chosen by rank, each question once, and evenly by theme where that is wanted."""

from collections import Counter
from collections.abc import Sequence

import chess
import pytest

from chess_datasets.tasks.puzzles import select_puzzles
from rookery.puzzles import Puzzle


def puzzle(number: int, *themes: str, place: int | None = None) -> Puzzle:
    """One whose position is like no other's, unless its `place` is."""
    board = chess.Board("7k/8/8/8/8/8/8/7K w - - 0 1")
    one, other = divmod(number if place is None else place, 40)
    board.set_piece_at(8 + one, chess.Piece(chess.QUEEN, chess.WHITE))
    board.set_piece_at(20 + other, chess.Piece(chess.KNIGHT, chess.BLACK))
    return Puzzle(f"p{number:04}", board.fen(), "a1a2", ("a2a3",), 1500, 75, 90, 1000, themes, "")


def names(puzzles: Sequence[Puzzle]) -> list[str]:
    return [puzzle.id for puzzle in puzzles]


def test_a_choice_is_a_seed_s_and_in_order() -> None:
    puzzles = [puzzle(number) for number in range(400)]
    chosen = select_puzzles(puzzles, count=20, seed=3)
    assert len({one.id for one in chosen}) == 20
    assert names(chosen) == sorted(names(chosen))
    assert chosen != select_puzzles(puzzles, count=20, seed=4)
    assert set(names(select_puzzles(puzzles[::-1], count=20, seed=3))) == set(names(chosen))
    assert max(int(one.id[1:]) for one in chosen) > 200


def test_all_are_taken_where_there_are_no_more() -> None:
    puzzles = [puzzle(number) for number in range(30)]
    assert select_puzzles(puzzles, count=900) == puzzles


def test_of_one_question_the_first_puzzle_is_taken() -> None:
    puzzles = [puzzle(number, place=number // 3) for number in range(30)]
    assert select_puzzles(puzzles, count=30) == puzzles[::3]


def test_every_puzzle_has_the_same_chance() -> None:
    puzzles = [puzzle(number) for number in range(40)]
    counts = Counter(one.id for seed in range(300) for one in select_puzzles(puzzles, count=10, seed=seed))
    assert 45 < min(counts.values()) <= max(counts.values()) < 110
    assert len(counts) == 40


@pytest.mark.parametrize("order", [1, -1])
def test_themes_get_even_shares(order: int) -> None:
    common = [puzzle(number, "fork", "short") for number in range(400)]
    rare = [puzzle(number, "pin", "short") for number in range(400, 440)]
    puzzles = [*common, *rare][::order]
    plain = Counter(one.themes[0] for one in select_puzzles(puzzles, count=60))
    assert plain["pin"] < 20
    even = Counter(one.themes[0] for one in select_puzzles(puzzles, count=60, themes=["fork", "pin"]))
    assert even == {"fork": 30, "pin": 30}
    of_all = Counter(theme for one in select_puzzles(puzzles, count=60, themes=[]) for theme in one.themes)
    assert of_all["pin"] >= 20


def test_a_theme_that_is_too_rare_gives_way() -> None:
    puzzles = [puzzle(number, "fork") for number in range(50)] + [puzzle(50, "pin"), puzzle(51)]
    chosen = select_puzzles(puzzles, count=40, themes=[])
    assert len(chosen) == 40
    assert "p0050" in names(chosen)
    assert len(select_puzzles(puzzles, count=99, themes=["pin"])) == 52

"""Which moves solve a puzzle."""

import pytest

from rookery.puzzles import COLUMNS, parse, playable

BEFORE = "6k1/2p2ppp/8/8/8/8/5PPP/RR4K1 b - - 0 30"


@pytest.mark.parametrize(
    ("move", "right"), [("b1b8", True), ("a1a8", True), ("a1a2", False), ("a1h8", False), ("nonsense", False)]
)
def test_any_mate_solves_a_puzzle_and_nothing_else_beside_the_solution(move: str, right: bool) -> None:
    values = ("x", BEFORE, "c7c6 b1b8", "800", "75", "94", "1000", "mateIn1", "https://lichess.org/a")
    puzzle = playable(parse(dict(zip(COLUMNS, values, strict=True))))
    [turn] = puzzle.turns()
    assert puzzle.start == BEFORE
    assert turn.is_right(move) == right

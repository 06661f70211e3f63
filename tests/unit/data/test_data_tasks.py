"""Examples: what a model is asked, what it should say, and that it is true."""

import random
from functools import cache

import chess
import pytest

from chess_datasets.positions.generator import PositionGenerator
from chess_datasets.tasks.example import Example, legal_moves, next_fen, rookworld_example
from chess_datasets.tasks.rookworld import RookworldMix, state_line
from rookery import rookworld
from rookery.errors import InvalidInput
from rookery.formats import FORMATS
from rookery.rookworld import PolicyAnswer, PolicyLine
from rookery.trace import Position
from tests import rookworld_lines
from tests.builders import position
from tests.format_readers import READERS

FEN = "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"
POSITION = position(FEN, last_moves=("e7e8", "d1e1"))


@cache
def positions() -> list[Position]:
    return list(map(PositionGenerator(seed=9).position, range(12)))


def test_legal_moves_are_all_of_them_sorted() -> None:
    example = legal_moves(POSITION)
    assert example.messages == [
        {
            "role": "user",
            "content": f"Position (FEN): {FEN}\n"
            "List every legal move in UCI, in alphabetical order, separated by spaces.",
        },
        {"role": "assistant", "content": "e1d1 e1d2 e1f1 e1f2 e2e3 e2e4"},
    ]
    assert (example.id, example.task, example.fen) == ("p", "legal-moves", FEN)


def test_the_next_position_follows_from_the_move() -> None:
    for example in (next_fen(one, seed=1) for one in positions()):
        board = chess.Board(example.fen)
        board.push_uci(example.move)
        assert example.answer == board.fen()
        assert f"The move {example.move} is played." in example.prompt[-1].content


def test_the_move_depends_on_the_seed_and_the_position_alone() -> None:
    whole = [next_fen(one, seed=1) for one in positions()]
    assert [next_fen(one, seed=1) for one in reversed(positions())] == whole[::-1]
    assert [next_fen(one, seed=2) for one in positions()] != whole


@pytest.mark.parametrize("form", FORMATS)
def test_positions_are_shown_in_any_format(form: str) -> None:
    example = legal_moves(POSITION, form=form)
    shown, _, question = example.prompt[-1].content.rpartition("\n")
    assert READERS[form](shown).fen() == FEN
    assert question.startswith("List every legal move")


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(InvalidInput, match="no format 'haiku'"):
        legal_moves(POSITION, form="haiku")


@pytest.mark.parametrize("layout", rookworld.LAYOUTS)
def test_a_policy_example_is_the_line_cut_where_the_model_goes_on(layout: str) -> None:
    line = PolicyLine(FEN, PolicyAnswer(("e2e4", "e2e3"), (0.3, 0.1), "e2e4"))
    example = rookworld_example(POSITION, line, layout=layout)
    assert example.text == rookworld_lines.policy_line(line, layout=layout)
    assert example.answer.startswith("M: ")
    assert (example.task, example.move) == ("P", "")


def test_a_state_example_is_the_line_and_names_its_move() -> None:
    line = state_line(POSITION, random.Random(1), mix=RookworldMix())
    example = rookworld_example(POSITION, line)
    assert example.text == rookworld_lines.state_line(line)
    assert example.prompt[0].content.endswith(f"+e7e8 d1e1 {line.move}+")
    assert (example.task, example.move) == ("A", line.move)
    assert isinstance(example, Example)

"""What is planted is false by the rules of chess, whatever the reader thinks of it."""

import random

import chess
import pytest

from bench.annotations.mutations import mutations
from commentary import Score, Study, StudyLine

# The d- and e-files are open, White's knight and rook can take on f3.
TWO_OPEN = "3rr1k1/ppp2ppp/8/8/8/5b2/PPP2PPP/2NRR1K1 w - - 0 20"
TAKERS = "6k1/8/8/8/8/5b2/8/4NRK1 w - - 0 20"


def planted(study: Study, kind: str, text: str) -> set[str]:
    found = (lie for seed in range(40) for lie in mutations(text, study, random.Random(seed)))
    return {lie.text for lie in found if lie.kind == kind}


@pytest.mark.parametrize(
    ("fen", "kind", "text"),
    [
        (chess.STARTING_FEN, "side", "White has four minor pieces still at home."),
        (TWO_OPEN, "side", "White has a rook on the seventh."),
        (chess.STARTING_FEN, "side", "White's king is still in the centre."),
        (chess.STARTING_FEN, "side", "Black's queen has no moves."),
        (chess.STARTING_FEN, "file", "The a-file is closed."),
        (chess.STARTING_FEN, "degree", "Material is level."),
    ],
)
def test_what_may_be_true_as_well_is_not_planted(fen: str, kind: str, text: str) -> None:
    assert planted(Study(fen), kind, text) == set()


@pytest.mark.parametrize(
    ("fen", "kind", "text", "words"),
    [
        (TWO_OPEN, "file", "The {}-file is open.", "d a b c f g h"),
        (TAKERS, "move", "20.{}xf3 takes the bishop on f3.", "N Q B"),
        (TAKERS, "piece", "White attacks the {} on f3.", "bishop queen rook knight pawn"),
        (TAKERS, "square", "White attacks the bishop on f{}.", "3 1 2 4 5 6 7 8"),
        (TAKERS, "side", "{}'s rook on f1 attacks the bishop.", "White Black"),
        (TAKERS, "side", "{} has a big advantage.", "White Black"),
        (TAKERS, "side", "{} has two minor pieces undeveloped.", "White Black"),
        (TAKERS, "side", "{} has doubled pawns on the a-file.", "White Black"),
        (TAKERS, "degree", "White is {}.", "winning|lost|slightly better|clearly better|much better"),
    ],
)
def test_all_else_is(fen: str, kind: str, text: str, words: str) -> None:
    true, *false = words.split("|" if "|" in words else " ")
    assert planted(Study(fen), kind, text.format(true)) == {text.format(word) for word in false}


def test_what_a_line_leads_to_is_known() -> None:
    text, lie = "The knight on g1 is bad.", "The knight on g2 is bad."
    line = StudyLine(Score(cp=0), ("e1g2", "f3g2"))
    assert lie in planted(Study(TAKERS), "square", text)
    assert lie not in planted(Study(TAKERS, (line,)), "square", text)


def test_a_line_that_costs_two_pawns_may_cost_one_first() -> None:
    fen = "6k1/8/8/8/8/5b2/PP6/6K1 w - - 0 20"
    text, lie = "White is three pawns up.", "White is two pawns up."
    assert planted(Study(fen), "count", text) == {"White is four pawns up.", "White is five pawns up."}
    assert lie in planted(Study(TAKERS), "count", text)

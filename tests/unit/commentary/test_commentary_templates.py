"""Every template works both ways: what it writes is read as the same claim, and is true."""

import random
from collections.abc import Iterator

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commentary import Study, read
from commentary.concept import Finding, concept, move_findings, position_findings
from commentary.naming import Naming, Person, numbered
from commentary.step import Step
from commentary.template import Template, finite, infinitive, participle
from commentary.writing.writer import sentence
from tests.unit.commentary.boards import MOVES, RARE, random_board

PERSONS: dict[str, Person] = {"notebook": "third", "annotator": "third", "coach": "we", "calculator": "i"}
BADLY_PLACED = "4k3/8/p1p5/P1P1p3/4P3/1B6/8/4K3 w - - 0 1"


def hand_of(board: chess.Board, seed: int) -> Naming:
    rng = random.Random(seed)
    voice = rng.choice(sorted(PERSONS))
    return Naming(board, voice, PERSONS[voice], rng, owns=rng.random())


def of_the_position(board: chess.Board, naming: Naming) -> Iterator[tuple[Finding, Template, str]]:
    """Every finding in every wording."""
    naming.look(board)
    for finding in position_findings(board):
        for template in finding.concept.options(naming, finding.values):
            naming.forget()
            yield finding, template, sentence(template.write(naming, finding.values))


def of_a_move(
    board: chess.Board, move: chess.Move, naming: Naming
) -> Iterator[tuple[Finding, Template, str]]:
    step = Step.of(board, move)
    for finding in move_findings(step):
        for template in finding.concept.options(naming, finding.values):
            naming.look_at_move(step.before, step.after, step.target)
            words = finite(template.do(naming, finding.values))
            yield finding, template, sentence(f"{numbered(board, [move])} {words}")


def assert_read_back(board: chess.Board, finding: Finding, template: Template, text: str) -> None:
    reading = read(board.fen(), text)
    name = finding.concept.name
    assert not reading.unread, f"{text!r} cannot be read in {board.fen()!r} ({name})"
    said = {claim.concept for claim in reading.claims}
    assert not template.read or name in said, f"{text!r} is {said}, not {name}, in {board.fen()!r}"
    assert not reading.false, f"{text!r} is false in {board.fen()!r}: {reading.false}"


@pytest.mark.parametrize("fen", RARE)
def test_what_is_written_of_a_position_is_read_and_true(fen: str) -> None:
    board = chess.Board(fen)
    for seed in range(4):
        for finding, template, text in of_the_position(board, hand_of(board, seed)):
            assert_read_back(board, finding, template, text)


@given(st.integers(0, 1 << 40))
@settings(max_examples=settings.default.max_examples // 4, deadline=None)
def test_and_of_any_position(seed: int) -> None:
    board = random_board(seed)
    for finding, template, text in of_the_position(board, hand_of(board, seed)):
        assert_read_back(board, finding, template, text)


@pytest.mark.parametrize(("fen", "san"), MOVES, ids=[san for _, san in MOVES])
def test_what_is_written_of_a_move_is_read_and_true(fen: str, san: str) -> None:
    board = chess.Board(fen)
    for seed in range(4):
        for finding, template, text in of_a_move(board, board.parse_san(san), hand_of(board, seed)):
            assert_read_back(board, finding, template, text)


@given(st.integers(0, 1 << 40))
@settings(max_examples=settings.default.max_examples // 4, deadline=None)
def test_and_of_any_move(seed: int) -> None:
    board, rng = random_board(seed), random.Random(seed)
    for finding, template, text in of_a_move(
        board, rng.choice(list(board.legal_moves)), hand_of(board, seed)
    ):
        assert_read_back(board, finding, template, text)


def test_verbs_take_their_forms() -> None:
    marked = "~pin the knight and ~be quiet"
    assert (finite(marked), infinitive(marked), participle(marked)) == (
        "pins the knight and is quiet",
        "pin the knight and be quiet",
        "pinning the knight and being quiet",
    )


@pytest.mark.parametrize("source", ["{side} ~have {pawn:squirrel}", "{piece} ~be (open", "a) b", "{kind}s?"])
def test_a_broken_template_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="template"):
        Template.of(source)


def test_no_two_concepts_share_a_name() -> None:
    with pytest.raises(ValueError, match="pin"):
        concept("pin", topic="contacts", holds=lambda context, side: True)


def test_what_is_only_read_is_never_written() -> None:
    template = Template.of("{side} ~be (up||ahead) {file}( now)?")
    naming = hand_of(chess.Board(), 0)
    written = {template.write(naming, {"side": chess.BLACK, "file": 0}) for _ in range(20)}
    assert written == {"Black is up the a-file"}
    assert template.predicate is not None
    assert template.predicate.fullmatch("is ahead «f1» now")


def test_a_study_is_as_good_as_a_fen() -> None:
    board = chess.Board(BADLY_PLACED)
    assert read(Study(board.fen()), "White is a bishop up.").sound

"""The claim checker: what it reads, what it believes, and that nobody helps it."""

import ast
import inspect
import random
import re
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.trace import Evaluation
from rookery.uci import Line
from services.data.annotate.claims.checker import Report, check
from services.data.annotate.claims.forms import GRAMMAR
from services.data.annotate.claims.token import lex
from services.data.annotate.compose import Manner, draft
from services.data.annotate.planting import plant
from services.data.annotate.study import Study
from tests.conftest import ROOT
from tests.unit.data.annot_studies import random_study

ANNOTATE = ROOT / "services" / "data" / "annotate"

# White: Ng5, Qh5, Bc4 at f7; the pawn e5 hangs to Nc6; Black's Ra8 and Bc8 are at home.
ATTACK = "r1bqk2r/pppp1ppp/2n2n2/4p1NQ/2B1P3/8/PPPP1PPP/RNB1K2R w KQkq - 0 5"
ATTACK_STUDY = Study(
    ATTACK,
    lines=(Line(Evaluation(mate=1), ("h5f7",)), Line(Evaluation(cp=150), ("c4f7", "e8f8", "h5h4"))),
    refuted=(Line(Evaluation(cp=-520), ("h5h6", "g7h6", "g5f7")),),
    threat=Line(Evaluation(cp=300), ("f6h5", "g5f3")),
)
# A rook ending: White has the c-file, Black a weak pawn on d5.
ENDING = "6k1/pp3ppp/8/3p4/3P4/8/PP3PPP/2R3K1 w - - 0 25"
ENDING_STUDY = Study(ENDING, lines=(Line(Evaluation(cp=420), ("c1c7", "b7b5", "c7a7")),))


def read(text: str, study: Study) -> Report:
    """What the checker finds in some thinking, the answer being the engine's move without a word."""
    board = chess.Board(study.fen)
    best = board.san(chess.Move.from_uci(study.best.pv[0]))
    return check(f"<think>\n{text}\n</think>\n\\boxed{{{best}}}", study)


@pytest.mark.parametrize(
    "text",
    [
        "White's queen on h5 attacks the pawn on f7.",
        "The pawn on f7 is attacked by the queen on h5, the knight on g5 and the bishop on c4.",
        "Only Black's king defends the pawn on f7.",
        "The knight on f6 attacks White's queen.",
        "White is a piece up, and Black has yet to develop the bishop on c8.",
        "Black's king is still in the centre, but Black can still castle on either side.",
        "Qxf7# captures the pawn on f7 and is checkmate.",
        "What about Bxf7+? It takes the pawn on f7. After 5...Kf8 6.Qh4, White has won a pawn.",
        "Bxf7+ is weaker than Qxf7#.",
        "Qh6 runs into 5...gxh6.",
        "Qh6 loses a queen for a pawn.",
        "Black threatens 5...Nxh5, which takes White's queen.",
        "That leaves Qxf7#.",
        "White's queen on h5 hangs to Black's knight on f6.",
    ],
)
def test_true_sentences_are_read_and_believed(text: str) -> None:
    report = read(text, ATTACK_STUDY)
    assert report.unread == []
    assert report.false == []
    assert report.claims >= 2


@pytest.mark.parametrize(
    "text",
    [
        "White's queen on h5 attacks the pawn on g7.",
        "White's queen on h4 attacks the pawn on f7.",
        "Black's queen on h5 attacks the pawn on f7.",
        "White's rook on h5 attacks the pawn on f7.",
        "The pawn on f7 is attacked by the queen on h5, the knight on g5 and the bishop on b3.",
        "Only Black's queen defends the pawn on f7.",
        "The bishop on f6 attacks the queen.",
        "White is a pawn up.",
        "Material is level.",
        "The g5-knight is loose.",
        "Black has yet to develop the knight on c6.",
        "Black can no longer castle.",
        "Qxf7+ captures the pawn on f7.",
        "Qxf7# captures the knight on f7.",
        "Bxf7+ is checkmate.",
        "What about Bxf7+? After 5...Kf8 6.Qh4, White has won two pawns.",
        "What about Bxf7+? After 5...Kd8 6.Qh4, White has won a pawn.",
        "What about Bxf7+? After 5...Kf8 6.Qh3, White has won a pawn.",
        "Bxf7+ is stronger than Qxf7#.",
        "Qh6 loses a rook for a pawn.",
        "Black threatens 5...Nxe4, which takes White's pawn on e4.",
        "White threatens 5...Nxh5, which takes White's queen.",
        "That leaves Bxf7+.",
        "The f7-knight is loose.",
        "The material is even; White's pawn on e4 is passed.",
    ],
)
def test_false_sentences_are_caught(text: str) -> None:
    report = read(text, ATTACK_STUDY)
    assert report.unread == []
    assert report.false


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("This is a rook ending.", False),
        ("White's rook on c1 holds the open c-file.", True),
        ("White's rook on c1 holds the open d-file.", False),
        ("The c- and e-files are open.", True),
        ("The c- and d-files are open.", False),
        ("Black has an isolated pawn on d5.", True),
        ("White has an isolated pawn on d4.", True),
        ("The pawns on a7, b7 and d5 are isolated.", False),
        ("The pawn on d4 and the pawn on d5 block each other.", True),
        ("Rc7 reaches the seventh rank and attacks the undefended pawn on b7.", True),
        ("Rc7 reaches the seventh rank and attacks the undefended pawn on f7.", False),
        (
            "Black's king is boxed in by its own pawns on f7, g7 and h7, and White's back rank is unguarded.",
            False,
        ),
        ("White is a rook up.", True),
        ("White is the exchange up.", False),
        ("White is much better.", True),
        ("White is slightly better.", False),
        ("White is winning.", False),
        ("Rc7 is a quiet move. After 25...b5 26.Rxa7, White has won a pawn.", True),
        ("Rc7 is a quiet move. After 25...b5 26.Rxa7, White has won a knight.", False),
        ("White to move.", True),
        ("Black to move.", False),
    ],
)
def test_an_ending(text: str, holds: bool) -> None:
    report = read(text, ENDING_STUDY)
    assert report.unread == []
    assert (not report.false) == holds


def test_what_cannot_be_read_is_reported_not_guessed() -> None:
    report = read("The position smells of danger. Qxf7# is checkmate.", ATTACK_STUDY)
    assert report.unread == ["The position smells of danger."]
    assert report.false == []


def test_sentences_without_a_claim_are_a_short_list() -> None:
    report = read("Candidates. Not good enough. What is the threat?", ATTACK_STUDY)
    assert report.unread == report.false == []
    assert report.talk == 3


@pytest.mark.parametrize("box", ["Bxf7+", "Ke3", "", "Qxf7", "h5f7 "])
def test_the_box_must_hold_the_best_move(box: str) -> None:
    answer = f"<think>\nCandidates.\n</think>\nSo. \\boxed{{{box}}}"
    assert not check(answer, ATTACK_STUDY).sound


@pytest.mark.parametrize("answer", ["Qxf7#", "<think>\nmoves\n</think>\nno box", "\\boxed{Qxf7#}"])
def test_an_answer_has_a_form(answer: str) -> None:
    assert not check(answer, ATTACK_STUDY).sound


def test_uci_in_the_box_is_as_good() -> None:
    assert check("<think>\nCandidates.\n</think>\n\\boxed{h5f7}", ATTACK_STUDY).sound


def test_planted_falsehoods_are_found() -> None:
    planted = caught = 0
    for seed in range(24):
        study = random_study(seed)
        answer, report = draft(study, Manner(), id_=str(seed))
        assert report.sound
        for lie in plant(answer, random.Random(seed)):
            planted += 1
            caught += not check(lie.text, study).sound
    assert planted > 100
    # Some changed words are true by chance: another square may be attacked as well.
    assert caught / planted > 0.97


@given(st.integers(0, 9), st.integers(0, 1 << 32))
@settings(max_examples=40)
def test_no_truncated_text_breaks_the_checker(seed: int, cut: int) -> None:
    study = random_study(seed)
    answer, _ = draft(study, Manner(), id_=str(seed))
    head, tail = answer.split("</think>")
    check(f"{head[: 9 + cut % len(head)]}\n</think>{tail}", study)


@given(st.text(max_size=80))
def test_no_text_breaks_the_lexer(text: str) -> None:
    lexed, tokens = lex(text)
    assert len(re.findall(r"«\w\d+»", lexed)) >= len(tokens) or "«" in text


def _imported(package: Path) -> set[str]:
    names = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module)
    return names


def test_the_checker_shares_no_code_with_the_writer() -> None:
    own = "services.data.annotate"
    allowed = (f"{own}.claims", f"{own}.study")
    foreign = {name for name in _imported(ANNOTATE / "claims") if name.startswith(own)}
    assert all(name.startswith(allowed) for name in foreign)
    writing = (f"{own}.{part}" for part in ("facts", "ideas", "voice", "case", "exchange"))
    assert not any(name.startswith(tuple(writing)) for name in _imported(ANNOTATE / "claims"))
    assert not any(name.startswith(f"{own}.claims") for name in _imported(ANNOTATE / "voice"))


def test_every_form_can_be_tested() -> None:
    """A slot that may be left out has a default in the test of truth, and every slot is a parameter."""
    for subject, forms in GRAMMAR.forms.items():
        for form in forms:
            parameters = list(inspect.signature(form.truth).parameters.values())[1 + (subject is not None) :]
            required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
            slots = {group.split("__")[0] for group in form.pattern.groupindex}
            assert required <= _unavoidable(form.pattern.pattern) | _in_every_branch(form.kind)
            anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
            assert anything or slots <= {p.name for p in parameters}


def _unavoidable(pattern: str) -> set[str]:
    depth, names = 0, set()
    for match in re.finditer(r"\\.|\(\?P<(\w+?)__\d+>|[()]", pattern):
        if match[0] == ")":
            depth -= 1
        elif match[0].startswith("("):
            if match[1] and depth == 0:
                names.add(match[1])
            depth += 1
    return names


def _in_every_branch(kind: str) -> set[str]:
    return {"side_has": {"p", "g"}}.get(kind, set())

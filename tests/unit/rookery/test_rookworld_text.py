"""The exact bytes of `P:` and `A:` lines, and readers that survive what models write."""

import json
import re
from pathlib import Path

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery import rookworld
from rookery.errors import InvalidInput
from rookery.rookworld import PolicyAnswer, PolicyLine, StateAnswer, StateLine
from rookery.trace import Evaluation
from tests import rookworld_lines

FEN = "r1b1kbnr/pp2pppp/n1p5/q2PP3/3P4/2N5/PP3PPP/R1BQKBNR b KQkq - 2 6"
LINE = PolicyLine(
    FEN,
    PolicyAnswer(("c6d5", "a6b4", "c8d7", "a6c7", "a6b8"), (-2.0, -2.07, -2.92, -2.79, -2.66), best="c6d5"),
)
FIELDS = "M: c6d5 a6b4 c8d7 a6c7 a6b8      E: -2.0 -2.07 -2.92 -2.79 -2.66            B: c6d5"
TEXT = f"P: {FEN}{' ' * 25}{FIELDS}"
STATE = StateLine(
    fen="5R2/6R1/8/3P4/p7/1b2R2P/2p3P1/6K1 b - - 0 58",
    move="b3d5",
    recent=("e1e3", "a2b3", "f7f2", "b5b4", "g5g7", "b4c3", "f2f8", "c3c2", "d4d5", "b3d5"),
    answer=StateAnswer(
        "5R2/6R1/8/3b4/p7/4R2P/2p3P1/6K1 w - - 0 59", reward=0.001, terminated=False, truncated=False
    ),
)
STATE_TEXT = (
    "A: 5R2/6R1/8/3P4/p7/1b2R2P/2p3P1/6K1 b - - 0 58+b3d5"
    "+e1e3 a2b3 f7f2 b5b4 g5g7 b4c3 f2f8 c3c2 d4d5 b3d5"
    "+5R2/6R1/8/3b4/p7/4R2P/2p3P1/6K1 w - - 0 59+0.001+0+0"
)


def test_writes_the_published_columns() -> None:
    assert rookworld_lines.policy_line(LINE) == TEXT
    assert (len(TEXT), TEXT.index("M: "), TEXT.index("E: "), TEXT.index("B: ")) == (175, 92, 125, 168)


def test_generator_writes_one_column_more() -> None:
    text = rookworld_lines.policy_line(LINE, layout="generator")
    assert (len(text), text.index("M: "), text.index("E: "), text.index("B: ")) == (176, 93, 126, 169)


@pytest.mark.parametrize("layout", rookworld.LAYOUTS)
def test_prompt_and_answer_make_the_line_and_every_layout_reads_back(layout: str) -> None:
    prompt = rookworld.policy_prompt(FEN, layout=layout)
    answer = rookworld.policy_answer(LINE.answer, layout=layout)
    assert prompt + answer == rookworld_lines.policy_line(LINE, layout=layout)
    assert rookworld.parse_policy_line(prompt + answer) == LINE
    assert rookworld.parse_policy_prompt(prompt) == FEN
    assert rookworld.read_policy_answer(answer) == LINE.answer


def test_unknown_layout_is_quoted() -> None:
    with pytest.raises(InvalidInput, match=r"no layout 'wide': choose from published"):
        rookworld.policy_prompt(FEN, layout="wide")


@pytest.mark.parametrize("prompt", [f"P: {FEN}", f"P: {FEN} ", FEN, f"P:{FEN}", f"P: {FEN}{' ' * 25}\n"])
def test_reads_every_way_the_scripts_prompt(prompt: str) -> None:
    assert rookworld.parse_policy_prompt(prompt) == FEN


@pytest.mark.parametrize(
    "text",
    [
        FIELDS,
        f"{' ' * 25}{FIELDS}",
        f"{FIELDS}\n",
        f"{FIELDS}<|endoftext|>P: more",
        "M: c6d5 a6b4 c8d7 a6c7 a6b8 E: -2.0 -2.07 -2.92 -2.79 -2.66 B: c6d5",
        "M: c6d5 a6b4 c8d7 a6c7 a6b8\nE: -2.0 -2.07 -2.92 -2.79 -2.66\nB: c6d5",
        "M:c6d5 a6b4 c8d7 a6c7 a6b8E:-2 -2.07 -2.92 -2.79 -2.66B:c6d5",
    ],
)
def test_reads_an_answer_whatever_its_padding(text: str) -> None:
    assert rookworld.read_policy_answer(text) == LINE.answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        FEN,
        "M: e2e4 d2d4 E: 0.3 B: e2e4",
        "M: e2e4 E: 0.3 0.2 B: e2e4",
        "M: E: B: e2e4",
        "M: e2e4 E: 0.3",
        "M: e2e4 E: 0.3 B:",
        "M: e2e4 E: 0.3 B: e2",
        "E: 0.3 M: e2e4 B: e2e4",
        "M: e2e4 E: 0.3 B: e2e4 B: d2d4",
        "M: e2e4 E: 0.3 B: e2e4 d2d4",
        "M: e2e4 E: 0.3 B: e2e4, the best by far",
        "M: 0000 E: 0.3 B: 0000",
        "M: e4 E: 0.3 B: e4",
        "M: e7e8Q E: 0.3 B: e7e8Q",
        "M: e2e4 E: nan B: e2e4",
        "M: e2e4 E: inf B: e2e4",
        "M: e2e4 E: 1e9 B: e2e4",
        "M: e2e4 E: 99999 B: e2e4",
        "M: e2e4 E: \u0663.\u0663 B: e2e4",
        "M: e2e4 d2d4 c2c4 b2b4 a2a4 g2g4 E: 0 0 0 0 0 0 B: e2e4",
        f"M: e2e4{' ' * 600}E: 0.3 B: e2e4",
    ],
)
def test_refuses_what_is_no_answer(text: str) -> None:
    assert rookworld.read_policy_answer(text) is None


@pytest.mark.parametrize("text", ["", "P: M: E: B:", FIELDS, f"P: {FEN}", TEXT.replace("c6d5", "c6d9")])
def test_refuses_what_is_no_policy_line(text: str) -> None:
    with pytest.raises(InvalidInput):
        rookworld.parse_policy_line(text)


def test_state_line_has_the_published_bytes() -> None:
    assert rookworld_lines.state_line(STATE) == STATE_TEXT
    assert rookworld.parse_state_line(STATE_TEXT) == STATE
    assert rookworld.parse_state_line(STATE_TEXT.removeprefix("A: ") + "\n") == STATE


def test_state_prompt_and_answer_make_the_line() -> None:
    prompt = rookworld.state_prompt(STATE.fen, STATE.move, STATE.recent)
    assert prompt + rookworld.state_answer(STATE.answer) == STATE_TEXT
    for variant in (prompt, prompt.removeprefix("A: "), prompt.removesuffix("+")):
        assert rookworld.parse_state_prompt(variant) == (STATE.fen, STATE.move, STATE.recent)


@pytest.mark.parametrize("ending", ["", "\n", "<|endoftext|>A: more"])
@pytest.mark.parametrize("start", ["", "+", "  "])
def test_reads_a_state_whatever_surrounds_it(start: str, ending: str) -> None:
    text = f"{start}{rookworld.state_answer(STATE.answer)}{ending}"
    assert rookworld.read_state_answer(text) == STATE.answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/+0.001+0+0",
        "++++",
        f"{STATE.answer.next_fen}+0.001+0",
        f"{STATE.answer.next_fen}+0.001+0+0+0",
        f"{STATE.answer.next_fen}+0.001+false+false",
        f"{STATE.answer.next_fen}+0.001+2+0",
        f"{STATE.answer.next_fen}+nan+0+0",
        f"{STATE.answer.next_fen}+0_1+0+0",
        "8/8/8/8/8/8/8/9 w - - 0 1+0.001+0+0",
        "8/8/8/8/8/8/8/ppppppppp w - - 0 1+0.001+0+0",
        "8/8/8/8/8/8/8/44p w - - 0 1+0.001+0+0",
        "8/8/8/8/8/8/8/8 w - - 99999 1+0.001+0+0",
        "8/8/8/8/8/8/8/8 w - -+0.001+0+0",
    ],
)
def test_refuses_what_is_no_state(text: str) -> None:
    assert rookworld.read_state_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A: ",
        STATE_TEXT.replace("+0+0", "+0"),
        STATE_TEXT.replace("+b3d5+", "+b3d9+"),
        STATE_TEXT.replace("e1e3", "e1e3 e1e3"),  # eleven
        STATE_TEXT.replace(" 58+", "+"),
    ],
)
def test_refuses_what_is_no_state_line(text: str) -> None:
    with pytest.raises(InvalidInput):
        rookworld.parse_state_line(text)


@given(
    st.one_of(
        st.integers(-20_000, 20_000).map(lambda cp: Evaluation(cp=cp)),
        st.integers(-150, 150).map(lambda n: Evaluation(mate=n)),
    )
)
def test_evaluations_survive_their_text(evaluation: Evaluation) -> None:
    text = str(rookworld.to_pawns(evaluation))
    if evaluation.mate == 0:
        evaluation = Evaluation(mate=0)
    assert rookworld.from_pawns(float(text)) == evaluation


_MOVES = st.builds(
    lambda a, b, promotion: f"{a}{b}{promotion}",
    st.sampled_from(chess.SQUARE_NAMES),
    st.sampled_from(chess.SQUARE_NAMES),
    st.sampled_from(["", "", "q", "n"]),
)
_EVALS = st.integers(-100_000, 100_000).map(lambda cp: cp / 100)
_CANDIDATES = st.lists(st.tuples(_MOVES, _EVALS), min_size=1, max_size=5)


@given(_CANDIDATES, _MOVES, st.sampled_from(sorted(rookworld.LAYOUTS)))
def test_every_line_reads_back(candidates: list[tuple[str, float]], best: str, layout: str) -> None:
    moves, evals = zip(*candidates, strict=True)
    line = PolicyLine(FEN, PolicyAnswer(moves, evals, best))
    assert rookworld.parse_policy_line(rookworld_lines.policy_line(line, layout=layout)) == line


@given(st.text(alphabet="MEB:/ +-.0123abcdefghknpqrw\n\u0663<|>", max_size=200))
def test_nothing_that_a_model_writes_is_an_exception(text: str) -> None:
    answer, state = rookworld.read_policy_answer(text), rookworld.read_state_answer(text)
    assert isinstance(answer, PolicyAnswer | None)
    assert isinstance(state, StateAnswer | None)


@pytest.mark.parametrize("piece", ["M: e2e4 ", "+", "0 ", "M:E:B:", " ", "8/", "<|endoftext|"])
def test_megabytes_are_not_looked_into(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert rookworld.read_policy_answer(text) is None
    assert rookworld.read_state_answer(text) is None


@pytest.mark.shared_data
def test_reproduces_the_published_policy_lines(shared_data: Path) -> None:
    lines = (shared_data / "rookworld/rook/rook_val_dev_250.txt").read_text().splitlines()
    records = [rookworld.parse_policy_line(line) for line in lines]
    assert [rookworld_lines.policy_line(record) for record in records] == lines
    assert len(lines) == 250
    assert sum(len(record.answer.moves) < 5 for record in records) == 13  # fewer legal moves, none irregular


@pytest.mark.shared_data
def test_reproduces_the_published_state_prompts(shared_data: Path) -> None:
    rows = json.loads((shared_data / "rookworld/trl/opening_dataset_train.json").read_text())
    prompts = [row["prompt"] for row in rows]
    assert [rookworld.state_prompt(*rookworld.parse_state_prompt(prompt)) for prompt in prompts] == prompts
    assert len(prompts) == 870


@pytest.mark.shared_data
def test_reads_what_a_trained_model_wrote(shared_data: Path) -> None:
    log = next((shared_data / "rookworld/trl/logs").iterdir()).read_text()
    states = set(re.findall(r"Text: +(\S+ [wb] \S+ \S+ \d+ \d+\+[^.]+\.\d+\+\d\+\d)\.\.\.", log))
    assert states == {"8/2k2b2/2p4r/R2p1p2/P7/2P2B1P/5PPK/4R3 b - - 2 31+0.001+0+0"}
    assert all(rookworld.read_state_answer(f"{state}<|endoftext|>") for state in states)


def test_an_evaluation_without_a_score_has_no_text() -> None:
    with pytest.raises(ValueError, match="without a score"):
        rookworld.to_pawns(Evaluation())

"""The RookWorld grades: what each answer earns, and the most that an answer without skill can."""

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InvalidInput
from rookery.rookworld import PolicyAnswer as Fields
from rookery.rookworld import policy_answer, policy_prompt
from rookery.trace import Evaluation, Outcome
from rookery.winprob import win_probability
from services.reward.rookworld_grades import FORMAT, INVALID, Grade, grade_policy, grade_state, read_policy

# White is a little better; seven legal moves are judged, the engine lists five of them.
BOARD = chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3")
CP = {"f1b5": 40, "f1c4": 35, "d2d4": 30, "b1c3": 20, "c2c3": 5, "a2a3": -30, "f3e5": -250, "f3g1": -40}
TOP = ("f1b5", "f1c4", "d2d4", "b1c3", "c2c3")
PERFECT_TEXT = policy_answer(Fields(TOP, tuple(CP[move] / 100 for move in TOP), "f1b5"))

LEGAL_SUFFIX = "+0.001+0+0"
MATE = ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", "a1a8", "R5k1/5ppp/8/8/8/8/8/6K1 b - - 1 1")


def win(cp: int) -> float:
    return win_probability(Evaluation(cp=cp))


WINS = {chess.Move.from_uci(move): win(cp) for move, cp in CP.items()}


def grade(text: str, board: chess.Board = BOARD, wins: dict[chess.Move, float] = WINS) -> Grade:
    """The grade if the first five of `wins` are the engine's."""
    return grade_policy(read_policy(text, board), wins, top=list(wins)[:5])


def test_the_engine_s_own_answer_is_perfect() -> None:
    assert grade(PERFECT_TEXT) == Grade(
        1.0, Outcome.LEGAL, {"format": 1.0, "best": 1.0, "candidates": 1.0, "evaluations": 1.0}
    )


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        pytest.param("M: c2c3 b1c3 d2d4 f1c4 f1b5 E: 0.05 0.2 0.3 0.35 0.4 B: f1b5", 1.0, id="order of M"),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 0.5 0.5 0.5 0.5 0.3 B: f1c4", 1.0, id="as good as the best"
        ),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 a2a3 E: 0.4 0.35 0.3 0.2 -0.3 B: f1b5", 1.0, id="sixth best for fifth"
        ),
        pytest.param("M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 0.4 0.35 0.3 0.2 1.2 B: f1b5", 0.8, id="one eval off"),
        pytest.param("M: f1b5 f1c4 d2d4 b1c3 f3g1 E: 0.4 0.35 0.3 0.2 -0.4 B: c2c3", 0.8, id="a weaker best"),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 1.4 1.35 1.3 1.2 1.05 B: f1b5", 0.6, id="evals a pawn off"
        ),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 0.4 0.35 0.3 0.2 0.05 B: f3e5", 0.6, id="best hangs a knight"
        ),
        pytest.param("M: f1b5 f1c4 d2d4 b1c3 E: 0.4 0.35 0.3 0.2 B: f1b5", 0.6, id="four of five"),
        pytest.param("M: f1b5 f1c4 d2d4 e2e5 c2c3 E: 0.4 0.35 0.3 0.2 0.05 B: f1b5", 0.6, id="one illegal"),
        pytest.param("M: f1b5 E: 0.4 B: f1b5", 0.4, id="one safe move"),
        pytest.param(
            "M: f1b5 f1b5 f1b5 f1b5 f1b5 E: 0.4 0.4 0.4 0.4 0.4 B: f1b5", 0.4, id="the same five times"
        ),
        pytest.param("M: e7e5 d7d5 E: 0.0 0.0 B: f3e5", 0.4, id="only legal"),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 0.4 0.35 0.3 0.2 0.05 B: e2e4", 0.2, id="best is illegal"
        ),
        pytest.param(
            "M: f1b5 f1c4 d2d4 b1c3 c2c3 E: 0.4 0.35 0.3 0.2 B: f1b5", -0.3, id="an eval is missing"
        ),
        pytest.param("I would play \\boxed{Bb5}.", -0.3, id="another task's answer"),
    ],
)
def test_steps(text: str, reward: float) -> None:
    assert grade(text).reward == reward


def test_every_illegal_or_unreadable_answer_is_below_every_legal_one() -> None:
    worst_legal = grade("M: a1a1 E: -9999 B: f3e5")
    best_illegal = grade(PERFECT_TEXT.replace("B: f1b5", "B: f1h3"))
    assert (worst_legal.outcome, worst_legal.reward) == (Outcome.LEGAL, 0.4)
    assert (best_illegal.outcome, best_illegal.reward) == (Outcome.ILLEGAL, FORMAT)
    assert grade("").outcome is Outcome.UNPARSABLE


def test_reasoning_is_not_the_answer() -> None:
    assert grade(f"<think>{PERFECT_TEXT}</think> {PERFECT_TEXT}").reward == 1.0
    assert grade(f"<think>{PERFECT_TEXT}</think> M: f1b5 E: 0.4 B: f1b5").reward == 0.4
    assert grade(f"<think>{PERFECT_TEXT}").reward == INVALID


def test_the_engine_must_be_asked_about_each_legal_move_once() -> None:
    answer = read_policy("M: f1b5 a2a3 f1b5 e2e5 E: 0 0 0 0 B: f3g1", BOARD)
    assert answer is not None
    assert [move.uci() for move in answer.named] == ["f1b5", "a2a3", "f3g1"]


def test_a_move_named_twice_counts_with_its_first_evaluation() -> None:
    assert grade("M: f1b5 f1b5 E: 0.4 9.0 B: f1b5").components["evaluations"] == 0.2
    assert grade("M: f1b5 f1b5 E: 9.0 0.4 B: f1b5").components["evaluations"] == 0.0


def test_few_legal_moves_are_a_whole_list() -> None:
    lone = chess.Board("7k/8/8/8/8/8/6r1/7K w - - 0 1")
    [take] = lone.legal_moves
    assert grade("M: h1g2 E: 0.0 B: h1g2", lone, {take: 0.5}).reward == 1.0
    assert grade("M: h1g2 h1h2 E: 0.0 0.0 B: h1g2", lone, {take: 0.5}).reward == 0.4


def test_mate_is_an_evaluation_and_a_delivered_mate_is_certain() -> None:
    board = chess.Board(MATE[0])
    moves = [chess.Move.from_uci(move) for move in ("a1a8", "g1f2", "g1g2", "g1h2", "a1a7")]
    wins = dict(zip(moves, (1.0, 0.9, 0.9, 0.89, 0.88), strict=True))
    text = "M: a1a8 g1f2 g1g2 g1h2 a1a7 E: 999.99 6.0 6.0 5.8 5.5 B: a1a8"
    assert grade(text, board, wins).reward == 1.0
    assert grade(text.replace("999.99", "12.0"), board, wins).reward == 1.0  # as sure as a win gets
    assert grade(text.replace("999.99", "-999.99"), board, wins).reward == 0.8


@pytest.mark.parametrize(
    ("hack", "most"),
    [
        pytest.param("", INVALID, id="nothing"),
        pytest.param(policy_prompt(BOARD.fen()), INVALID, id="the prompt"),
        pytest.param(policy_prompt(BOARD.fen()) + PERFECT_TEXT, INVALID, id="the prompt and then the answer"),
        pytest.param(f"{PERFECT_TEXT} {PERFECT_TEXT}", INVALID, id="two answers"),
        pytest.param("M: E: B:", INVALID, id="the skeleton"),
        pytest.param("M: a1a1 E: 0 B: a1a1", FORMAT, id="the shape of a move"),
        pytest.param(
            "M: e2e4 d2d4 g1f3 c2c4 b1c3 E: 0.3 0.2 0.1 0.2 0.1 B: e2e4", FORMAT, id="the opening's answer"
        ),
        pytest.param("M: f1b5 E: 0.4 B: f1b5", 0.4, id="one safe move"),
        pytest.param("M: f1b5 f1b5 f1b5 f1b5 f1b5 E: 0 0 0 0 0 B: f1b5", 0.4, id="duplicates"),
        pytest.param("M: f1b5 a1a1 a1a1 a1a1 a1a1 E: 0 0 0 0 0 B: f1b5", 0.4, id="fillers"),
        pytest.param("M: f1b5 f1c4 E: 0.4 0.35 B: f1b5", 0.4, id="two safe moves"),
    ],
)
def test_policy_hacks_earn_at_most(hack: str, most: float) -> None:
    assert grade(hack).reward <= most


def test_constant_evaluations_lose_a_step_unless_they_are_true() -> None:
    sharp = WINS | {chess.Move.from_uci(move): win(150 + 10 * n) for n, move in enumerate(TOP)}
    assert grade(PERFECT_TEXT, wins=sharp).reward == 0.6
    zeros = policy_answer(Fields(TOP, (0.0,) * 5, "f1b5"))
    assert grade(zeros, wins=sharp).reward == 0.6


_UCI = st.sampled_from([*CP, "e2e5", "a1a1", "h1h3"])
_ANSWERS = st.lists(st.tuples(_UCI, st.integers(-300, 300)), min_size=1, max_size=5)


def _text(named: list[tuple[str, int]], best: str) -> str:
    moves, cps = zip(*named, strict=True)
    return policy_answer(Fields(moves, tuple(cp / 100 for cp in cps), best))


def _mirror(uci: str) -> str:
    return "".join(str(9 - int(character)) if character.isdigit() else character for character in uci)


@given(_ANSWERS, _UCI)
def test_colour_does_not_matter(named: list[tuple[str, int]], best: str) -> None:
    mirrored = {chess.Move.from_uci(_mirror(move.uci())): value for move, value in WINS.items()}
    text = _text([(_mirror(move), cp) for move, cp in named], _mirror(best))
    assert grade(text, BOARD.mirror(), mirrored) == grade(_text(named, best))


@given(_ANSWERS, _UCI)
def test_grades_are_on_the_scale_and_shares_in_range(named: list[tuple[str, int]], best: str) -> None:
    graded = grade(_text(named, best))
    assert graded.reward in {0.2, 0.4, 0.6, 0.8, 1.0}
    assert (graded.reward >= 0.4) == (graded.outcome is Outcome.LEGAL)
    assert all(0.0 <= share <= 1.0 for share in graded.components.values())


@given(_ANSWERS, st.sampled_from(sorted(CP)), st.sampled_from(sorted(CP)))
def test_a_better_best_move_never_earns_less(named: list[tuple[str, int]], one: str, other: str) -> None:
    worse, better = sorted((one, other), key=CP.__getitem__)
    assert grade(_text(named, better)).reward >= grade(_text(named, worse)).reward


@given(_ANSWERS, st.sampled_from(sorted(CP)), st.data())
def test_naming_a_move_again_never_earns_more(
    named: list[tuple[str, int]], best: str, data: st.DataObject
) -> None:
    again = [*named, data.draw(st.sampled_from(named))][:5]
    assert grade(_text(again, best)).reward <= grade(_text(named, best)).reward


@given(st.text(max_size=300))
def test_any_text_is_graded(text: str) -> None:
    assert grade(text).reward in {INVALID, FORMAT, 0.4}
    assert grade_state(*MATE[:2], text).reward in {INVALID, FORMAT}


START, E4 = chess.STARTING_FEN, "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
STALEMATE = ("k7/8/K7/8/8/8/8/1Q6 w - - 0 1", "b1b6", "k7/8/KQ6/8/8/8/8/8 b - - 1 1")


@pytest.mark.parametrize(
    ("fen", "move", "response", "reward"),
    [
        pytest.param(START, "e2e4", f"{E4}+0.001+0+0", 1.0, id="all right"),
        pytest.param(START, "e2e4", f"+{E4}+0.001+0+0<|endoftext|>", 1.0, id="with what surrounds it"),
        pytest.param(START, "e2e4", f"{E4}+1.0+0+0", 0.8, id="reward wrong"),
        pytest.param(START, "e2e4", f"{E4}+0.5+1+0", 0.6, id="two wrong"),
        pytest.param(START, "e2e4", f"{E4}+-1.0+1+1", 0.4, id="only the board"),
        pytest.param(START, "e2e4", f"{E4.replace('- 0 1', 'e3 0 1')}+0.001+0+0", 0.2, id="a needless e3"),
        pytest.param(START, "e2e4", f"{E4.replace('0 1', '0 2')}+0.001+0+0", 0.2, id="the clock"),
        pytest.param(START, "e2e4", f"{E4.replace('KQkq', 'KQk')}+0.001+0+0", 0.2, id="a castling right"),
        pytest.param(START, "e2e4", f"{E4}+0.001+0", -0.3, id="a field is missing"),
        pytest.param(*MATE[:2], f"{MATE[2]}+1.0+1+0", 1.0, id="mate"),
        pytest.param(*MATE[:2], f"{MATE[2]}+0.001+0+0", 0.6, id="mate not seen"),
        pytest.param(*STALEMATE[:2], f"{STALEMATE[2]}+0.5+1+0", 1.0, id="stalemate"),
        pytest.param(*STALEMATE[:2], f"{STALEMATE[2]}+1.0+1+0", 0.8, id="stalemate taken for mate"),
        pytest.param(START, "e2e5", f"{START}+-1.0+0+1", 1.0, id="illegal"),
        pytest.param(START, "e2e5", f"{START}+-1+0+1", 1.0, id="the number, not its digits"),
        pytest.param(START, "e2e5", f"{START}+0.001+0+1", 0.8, id="illegal, reward wrong"),
        pytest.param(START, "e2e5", f"{E4}+-1.0+0+1", 0.2, id="illegal, yet the board has changed"),
    ],
)
def test_state_steps(fen: str, move: str, response: str, reward: float) -> None:
    assert grade_state(fen, move, response).reward == reward


@pytest.mark.parametrize("question", [(START, "e2e4"), (START, "e2e5"), MATE[:2], STALEMATE[:2]])
@pytest.mark.parametrize(
    ("hack", "most"),
    [
        pytest.param("{fen}" + LEGAL_SUFFIX, FORMAT, id="the input copied"),
        pytest.param("/" + LEGAL_SUFFIX, INVALID, id="a lone slash"),
        pytest.param("8/8/8/8/8/8/8/8 w - - 0 1" + LEGAL_SUFFIX, FORMAT, id="an empty board"),
        pytest.param(LEGAL_SUFFIX, INVALID, id="the suffix"),
        pytest.param("{fen}+e2e4+e2e4+", INVALID, id="the prompt"),
        pytest.param("", INVALID, id="nothing"),
    ],
)
def test_state_hacks_earn_at_most(question: tuple[str, str], hack: str, most: float) -> None:
    assert grade_state(*question, hack.replace("{fen}", question[0])).reward <= most


def test_calling_every_move_illegal_pays_only_where_it_is_true() -> None:
    assert grade_state(START, "e2e4", f"{START}+-1.0+0+1").reward == FORMAT


def test_a_state_says_its_fields() -> None:
    graded = grade_state(START, "e2e4", f"{E4}+0.5+0+0")
    assert graded == Grade(
        0.8, Outcome.LEGAL, {"format": 1.0, "fen": 1.0, "reward": 0.0, "terminated": 1.0, "truncated": 1.0}
    )
    assert grade_state(START, "e2e4", "e4").outcome is Outcome.UNPARSABLE


@pytest.mark.parametrize("move", ["", "Nf3", "0000", "e2e9", "e2e4 "])
def test_a_question_without_a_move_is_refused(move: str) -> None:
    with pytest.raises(InvalidInput, match="not a move in UCI"):
        grade_state(START, move, f"{E4}+0.001+0+0")


@given(st.data())
def test_one_changed_character_of_the_board_is_a_wrong_board(data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(E4) - 1))
    character = data.draw(st.sampled_from("pnbrqkPNBRQKw/- 12345678"))
    text = E4[:place] + character + E4[place + 1 :]
    reward = grade_state(START, "e2e4", text + LEGAL_SUFFIX).reward
    assert reward == 1.0 if text == E4 else reward <= FORMAT

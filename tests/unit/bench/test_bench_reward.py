"""What the bench of the reward would get wrong in silence: its questions, its searches, its ratios."""

import chess
import pytest

from bench.reward.limit import searches
from bench.reward.outcome import CALM_CORES, Case, Outcome, Sample, targets
from bench.reward.routes import Judged, batches
from bench.reward.throughput import check
from bench.reward.workload import Answer, Question, Workload, count_verdicts
from bench.usage import Usage
from rookery.answers import extract
from rookery.notation import read_move

START = chess.STARTING_FEN
BLACK = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
BACK_RANK = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
TWO_MOVES = "7k/8/8/8/8/8/r7/7K w - - 0 1"


@pytest.mark.parametrize("kind", ["distinct", "group"])
@pytest.mark.parametrize("fen", [START, BLACK, BACK_RANK, TWO_MOVES])
def test_every_answer_is_read_as_the_move_it_was_made_from(kind, fen):
    (question,) = Workload([fen], kind, 200).questions(0, 1)
    assert len(question.answers) == (1 if kind == "distinct" else 8)
    for answer in question.answers:
        found = extract(answer.completion)
        reading = None if found.missing else read_move(found.text, chess.Board(fen)).move
        assert (reading and reading.uci()) == answer.move


def test_a_group_holds_six_legal_moves_and_two_that_are_not():
    (question,) = Workload([START], "group", 200).questions(0, 1)
    moves = [answer.move for answer in question.answers]
    assert moves.count(None) == 2
    assert len(set(moves)) == 7


def test_a_question_is_the_same_wherever_it_is_asked():
    assert Workload([START, BLACK], "group", 80).questions(1, 1) == Workload([BLACK], "group", 80).questions(
        0, 9
    )


def test_the_limit_searches_a_position_once_and_each_further_move_that_is_not_over():
    question = _question(BACK_RANK, "a1a8", "a1b1", "a1b1", "a1c1", None)
    wanted = searches([question], {BACK_RANK: "a1c1"})
    assert [move for _, move in wanted] == [None, "a1b1"]


def test_the_limit_searches_what_the_service_shows_its_engine():
    ((fen, _), (_, move)) = searches([_question(BLACK, "e7e5")], {BLACK: "c7c5"})
    assert fen.split()[1] == "w"
    assert move == "e2e4"


def test_the_limit_searches_nothing_without_a_legal_answer():
    assert searches([_question(START, None, None)], {}) == []


def test_batches_keep_groups_whole():
    questions = [_question(START, *["e2e4"] * 8)] * 19
    runs = list(batches(questions, 64))
    assert [count_verdicts(run) for run in runs] == [64, 64, 24]


@pytest.mark.parametrize(
    "judged", [[], [Judged(False, None)], [Judged(True, "e2e4")] * 2], ids=["missing", "wrong", "too many"]
)
def test_a_service_that_judges_otherwise_is_not_measured(judged):
    with pytest.raises(RuntimeError):
        check([_question(START, "e2e4")], judged)


def test_disturbed_rounds_do_not_count_where_there_are_calm_ones():
    outcome = Outcome(_case(), [_round(ours_s=1.25), _round(ours_s=0.5, others=2 * CALM_CORES)])
    assert outcome.is_calm
    assert outcome.ratios("grpc") == [0.8]
    (target,) = targets([outcome])
    assert (target.measured, target.met) == (0.8, False)


def test_without_a_calm_round_all_count_and_the_target_says_so():
    outcome = Outcome(_case(), [_round(ours_s=1.0, others=1.0)])
    (target,) = targets([outcome])
    assert target.met
    assert "no round was calm" in target.note


def test_the_ratio_by_cpu_counts_everybody_who_took_part():
    assert Outcome(_case(), [_round(ours_s=1.0)]).cpu_ratio("grpc") == pytest.approx(2.0 / 2.5)


def _question(fen, *moves):
    return Question(fen, tuple(Answer("...", move) for move in moves))


def _case():
    return Case("distinct", 1000, 2, ("grpc",))


def _round(*, ours_s, others=0.0):
    limit = Sample(100, 200, Usage(1.0, 0.0, 1.9, 0.1, others, 0.0))
    return {"limit": limit, "grpc": Sample(100, 200, Usage(ours_s, 0.4, 2.0, 0.1, others, 0.0))}

"""RookWorld's P: and A: answers through the whole scorer: truth from the engine, errors in their slots."""

import chess
import pytest

from rookery.errors import InvalidInput
from rookery.trace import Outcome, ScoreItem
from services.reward import LocalScorer

pytestmark = pytest.mark.stockfish

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"


def policy(scorer: LocalScorer, response: str, fen: str = FEN, **how: str):
    return scorer.score(ScoreItem(fen, response, task="P", **how))


def engine_answer(scorer: LocalScorer, fen: str) -> str:
    """What the engine itself would answer, move by move through the service."""
    board = chess.Board(fen)
    judged = [
        (scorer.score(ScoreItem(fen, rf"\boxed{{{move.uci()}}}")), move.uci()) for move in board.legal_moves
    ]
    judged.sort(key=lambda item: -(item[0].win_after or 0.0))
    best = [(verdict, uci) for verdict, uci in judged[:5]]
    evals = " ".join(f"{(verdict.eval_after.cp or 0) / 100}" for verdict, _ in best if verdict.eval_after)
    return f"M: {' '.join(uci for _, uci in best)} E: {evals} B: {best[0][1]}"


def test_the_engines_own_answer_earns_nearly_all(scorer: LocalScorer) -> None:
    verdict = policy(scorer, engine_answer(scorer, FEN))
    assert verdict.outcome is Outcome.LEGAL and verdict.reward >= 0.8
    assert verdict.move is not None and verdict.move.san == "Nxg5"
    assert verdict.reward_version.startswith("graded-2/lichess-")
    assert verdict.engine is not None and verdict.engine.nodes > 1000


def test_colour_does_not_matter(scorer: LocalScorer) -> None:
    answer = engine_answer(scorer, FEN)
    turned = answer.translate(str.maketrans("12345678", "87654321"))
    evals = slice(answer.index("E:"), answer.index("B:"))
    mirrored = turned[: evals.start] + answer[evals] + turned[evals.stop :]
    one, other = policy(scorer, answer), policy(scorer, mirrored, chess.Board(FEN).mirror().fen())
    assert (one.reward, one.components, one.win_after) == (other.reward, other.components, other.win_after)


def test_the_first_line_continues_a_game(scorer: LocalScorer) -> None:
    boxed = scorer.score(ScoreItem(FEN, r"\boxed{Nxg5}"))
    assert scorer.score(ScoreItem(FEN, "Nxg5\ne4\n", task="game")) == boxed
    assert scorer.score(ScoreItem(FEN, "f3g5", task="game")) == boxed
    outcomes = [scorer.score(ScoreItem(FEN, text, task="game")).outcome for text in ("Nxg6", "", "a\nNxg5")]
    assert outcomes == [Outcome.ILLEGAL, Outcome.NO_BOX, Outcome.UNPARSABLE]
    cut = scorer.score(ScoreItem(FEN, "Nx", task="game", truncated=True))
    assert cut.outcome is Outcome.TRUNCATED


def test_one_batch_holds_all_tasks_and_each_keeps_its_place(scorer: LocalScorer) -> None:
    after = chess.Board(FEN)
    after.push_uci("f3g5")
    move, bad, state, illegal, text, again, none = scorer.score_batch(
        [
            ScoreItem(FEN, r"\boxed{Nxg5}"),
            ScoreItem(FEN, "nonsense", task="P"),
            ScoreItem(FEN, f"{after.fen()}+0.001+0+0", task="A", move="f3g5"),
            ScoreItem(FEN, "M: f3g5 E: 7 B: e1e5", task="P"),
            ScoreItem(FEN, "M: f3g5 f1c4 b1c3 c1e3 h2h4 E: 7.4 2 2 2 2 B: f3g5", task="P"),
            ScoreItem(FEN, "anything", task="A", move="nowhere"),
            ScoreItem("8/8/8/8/8/8/8/8 w - - 0 1", "M:", task="P"),
        ]
    )
    assert (move.reward, move.outcome) == (0.0, Outcome.LEGAL)
    assert (bad.reward, bad.outcome) == (-0.3, Outcome.UNPARSABLE)
    assert (state.reward, state.outcome, state.engine.nodes) == (1.0, Outcome.LEGAL, 0)
    assert (illegal.reward, illegal.outcome) == (0.2, Outcome.ILLEGAL)
    assert text.reward >= 0.4
    assert isinstance(again, InvalidInput) and "nowhere" in str(again)
    assert isinstance(none, InvalidInput)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (ScoreItem(FEN, "", task="Q"), "no task 'Q'"),
        (ScoreItem(FEN, "", task="P", scheme="delta"), "scheme 'delta' judges moves"),
        (ScoreItem(FEN, "", scheme="graded"), "graded judges tasks P and A"),
        (ScoreItem(FEN, "", move="e2e4"), "move 'e2e4' is only for task 'A'"),
        (ScoreItem(FEN, "", task="A"), "not a move in UCI: ''"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(scorer: LocalScorer, item: ScoreItem, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scorer.score(item)
    assert why in str(caught.value)

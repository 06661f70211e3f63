"""Laws that every verdict of the real engine obeys, whatever the position."""

import itertools
import json
import random
from contextlib import closing
from dataclasses import asdict

import chess
import httpx
import pytest

import services.reward
from rookery.config.reward import RewardSettings
from rookery.trace import Evaluation, Outcome, ScoreItem, Verdict
from services.reward import LocalScorer
from services.reward.app import create_app
from services.reward.scorer import Scorer
from tests.boards import random_boards

pytestmark = pytest.mark.stockfish

FIELDS = ("reward", "outcome", "win_before", "win_after", "regret", "eval_before", "eval_after", "engine")
MATE_OR_NOT = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"


def boxed(text: str) -> str:
    return rf"\boxed{{{text}}}"


def judge(scorer: LocalScorer, fen: str, text: str) -> Verdict:
    return scorer.score(ScoreItem(fen, boxed(text)))


def mirror(uci: str) -> str:
    return uci.translate(str.maketrans("12345678", "87654321"))


def judge_all(scorer: LocalScorer, board: chess.Board) -> list[Verdict]:
    """The verdict of every legal move."""
    verdicts = scorer.score_batch([ScoreItem(board.fen(), boxed(move.uci())) for move in board.legal_moves])
    assert all(isinstance(verdict, Verdict) for verdict in verdicts)
    return verdicts


@pytest.fixture(scope="module")
def judged(scorer: LocalScorer) -> list[tuple[chess.Board, list[Verdict]]]:
    return [(board, judge_all(scorer, board)) for board in random_boards(10, seed=41, plies=(4, 100))]


Judged = list[tuple[chess.Board, list[Verdict]]]


def worth(evaluation: Evaluation) -> float:
    """A number that orders evaluations as chess players do."""
    if evaluation.mate is not None:
        return (1 if evaluation.mate > 0 else -1) * (1e6 - abs(evaluation.mate))
    assert evaluation.cp is not None
    return evaluation.cp


def test_better_by_the_engine_is_never_worse_by_the_reward(judged: Judged) -> None:
    for board, verdicts in judged:
        ordered = sorted(verdicts, key=lambda verdict: worth(verdict.eval_after), reverse=True)
        for better, worse in itertools.pairwise(ordered):
            assert better.reward >= worse.reward, (board.fen(), better.move, worse.move)
            assert better.win_after >= worse.win_after, (board.fen(), better.move, worse.move)


def test_the_best_move_has_no_regret_and_none_has_less(judged: Judged) -> None:
    for board, verdicts in judged:
        best = {verdict.best for verdict in verdicts}
        assert len(best) == 1, board.fen()
        (played,) = [verdict for verdict in verdicts if verdict.move in best]
        assert played.regret == played.reward == 0.0
        assert played.win_after == played.win_before
        assert all(0.0 <= verdict.regret <= 1.0 for verdict in verdicts)


def test_the_reward_is_the_lost_win_probability(judged: Judged) -> None:
    for _, verdicts in judged:
        for verdict in verdicts:
            assert verdict.regret == max(0.0, verdict.win_before - verdict.win_after)
            assert verdict.reward == -verdict.regret


def test_every_move_comes_back_as_it_was_answered(judged: Judged) -> None:
    for board, verdicts in judged:
        names = [(board.uci(move), board.san(move)) for move in board.legal_moves]
        assert [(verdict.move.uci, verdict.move.san) for verdict in verdicts] == names


def test_colour_does_not_matter_for_any_move(judged: Judged, scorer: LocalScorer) -> None:
    for board, verdicts in judged:
        moves = [mirror(verdict.move.uci) for verdict in verdicts]
        twins = scorer.score_batch([ScoreItem(board.mirror().fen(), boxed(uci)) for uci in moves])
        for verdict, twin in zip(verdicts, twins, strict=True):
            assert mirror(twin.best.uci) == verdict.best.uci
            for field in FIELDS:
                assert getattr(twin, field) == getattr(verdict, field), (field, board.fen())


def test_colour_does_not_matter_to_an_engine_that_never_saw_the_other(
    engine_settings: RewardSettings,
) -> None:
    here, there = [], []
    for board in random_boards(15, seed=42, plies=(4, 100)):
        move = max(board.legal_moves, key=lambda move: move.uci())
        here.append(ScoreItem(board.fen(), boxed(move.uci())))
        there.append(ScoreItem(board.mirror().fen(), boxed(mirror(move.uci()))))
    verdicts, twins = fresh(engine_settings, here), fresh(engine_settings, there)
    for verdict, twin in zip(verdicts, twins, strict=True):
        assert [getattr(verdict, field) for field in FIELDS] == [getattr(twin, field) for field in FIELDS]


def fresh(settings: RewardSettings, items: list[ScoreItem]) -> list[Verdict]:
    """Verdicts of a scorer that has seen nothing yet, one by one."""
    with closing(LocalScorer(settings)) as scorer:
        return [scorer.score(item) for item in items]


def mixed_items() -> list[ScoreItem]:
    """Legal and refused answers, with repetitions."""
    rng = random.Random(43)
    items = []
    for board in random_boards(14, seed=44, plies=(4, 100)):
        moves = list(board.legal_moves)
        texts = [board.san(rng.choice(moves)), rng.choice(moves).uci(), "e9", "--", ""]
        items += [ScoreItem(board.fen(), boxed(text)) for text in texts]
    return items + rng.sample(items, 20)


def test_order_batch_cache_and_engine_do_not_matter(
    engine_settings: RewardSettings, scorer: LocalScorer
) -> None:
    items = mixed_items()
    one_by_one = [scorer.score(item) for item in items]
    assert [scorer.score(item) for item in items] == one_by_one
    assert scorer.score_batch(items) == one_by_one
    assert fresh(engine_settings, items) == one_by_one
    shuffled = random.Random(45).sample(range(len(items)), len(items))
    with closing(LocalScorer(engine_settings.model_copy(update={"engines": 2}))) as other:
        verdicts = other.score_batch([items[place] for place in shuffled])
        assert verdicts == [one_by_one[place] for place in shuffled]
        assert [other.score(item) for item in items] == one_by_one


async def test_http_gives_the_same_bits(engine_settings: RewardSettings, scorer: LocalScorer) -> None:
    items = mixed_items()
    bodies = [{"fen": item.fen, "response": item.response} for item in items]
    async with await Scorer.start(engine_settings) as served:
        transport = httpx.ASGITransport(app=create_app(served))
        async with httpx.AsyncClient(transport=transport, base_url="http://reward") as http:
            batch = (await http.post("/v1/score/batch", json={"items": bodies})).json()["verdicts"]
            singles = [(await http.post("/v1/score", json=body)).json() for body in bodies[::5]]
    verdicts = [json.loads(json.dumps(asdict(verdict))) for verdict in scorer.score_batch(items)]
    assert batch == verdicts
    assert singles == verdicts[::5]


def test_the_plain_function_gives_the_same_bits(
    engine_settings: RewardSettings, scorer: LocalScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_ENGINE_PATH", str(engine_settings.engine_path))
    monkeypatch.setenv("REWARD_ENGINES", "1")
    monkeypatch.setenv("REWARD_NODES", str(engine_settings.nodes))
    for item in mixed_items()[:10]:
        expected = scorer.score(item)
        assert services.reward.verdict(item.fen, item.response) == expected
        assert services.reward.reward(item.fen, item.response) == expected.reward


def test_asking_again_gives_the_same_bits(scorer: LocalScorer) -> None:
    item = ScoreItem(MATE_OR_NOT, boxed("Nh3"))
    assert len({repr(scorer.score(item)) for _ in range(50)}) == 1


def test_a_spelling_does_not_matter(scorer: LocalScorer) -> None:
    answers = ("Nh3", "g1h3", "Ng1-h3!?", r"\text{4. Nh3}", "**Nh3**", "Nh3 (g1h3)")
    assert len({repr(judge(scorer, MATE_OR_NOT, text)) for text in answers}) == 1
    long = ScoreItem(MATE_OR_NOT, f"<think>{boxed('a3')}</think> So: {boxed('Nh3')}", truncated=True)
    assert scorer.score(long) == judge(scorer, MATE_OR_NOT, "Nh3")


def test_the_move_number_does_not_matter(scorer: LocalScorer) -> None:
    verdicts = {repr(judge(scorer, f"{MATE_OR_NOT[:-1]}{number}", "Nh3")) for number in (0, 1, 4, 400)}
    assert len(verdicts) == 1


def test_a_stalemate_is_a_draw_whatever_was_at_stake(scorer: LocalScorer) -> None:
    won = judge(scorer, "7k/8/6K1/5Q2/8/8/8/8 w - - 0 1", "Qf7")
    assert (won.win_after, won.eval_after) == (0.5, Evaluation(cp=0))
    assert won.reward == 0.5 - won.win_before < -0.4
    lost = "8/8/8/8/8/8/p7/k1K5 w - - 0 1"
    saved = judge(scorer, lost, "Kc2")
    assert (saved.win_after, saved.reward) == (0.5, 0.0)
    assert judge(scorer, lost, "Kd2").reward < -0.4


def test_a_mate_delivered_is_a_point_and_nothing_else_is(judged: Judged, scorer: LocalScorer) -> None:
    mate = judge(scorer, MATE_OR_NOT, "Qxf7")
    assert (mate.reward, mate.win_after, mate.eval_after) == (0.0, 1.0, Evaluation(mate=1))
    assert (mate.regret, mate.best) == (0.0, mate.move)
    assert judge(scorer, MATE_OR_NOT, "a3").reward < -0.2
    for _, verdicts in judged:
        for verdict in verdicts:
            assert (verdict.win_after == 1.0) == verdict.move.san.endswith("#")


def test_nearer_mates_are_never_worth_less(scorer: LocalScorer) -> None:
    seen = set()
    for fen in (
        "7k/8/8/8/8/8/R7/1R4K1 w - - 0 1",
        "7k/8/8/8/8/r7/1r6/6K1 w - - 0 1",
        "8/8/8/4k3/8/8/Q7/K6R w - - 0 1",
    ):
        verdicts = [verdict for verdict in judge_all(scorer, chess.Board(fen)) if verdict.eval_after.mate]
        for one in verdicts:
            seen.add(one.eval_after.mate)
            for other in verdicts:
                if worth(one.eval_after) > worth(other.eval_after):
                    assert one.win_after >= other.win_after, (one, other)
    assert len({mate for mate in seen if mate > 0}) > 2 and min(seen) < 0


@pytest.mark.parametrize(
    ("fen", "square"),
    [("8/4P3/5b2/3n1P2/k7/5p2/8/5K2 w - - 0 1", "e7e8"), ("1r6/P6P/2K5/8/6p1/5r2/4k3/8 w - - 0 1", "a7b8")],
)
def test_four_promotions_are_four_verdicts(scorer: LocalScorer, fen: str, square: str) -> None:
    verdicts = [judge(scorer, fen, f"{square}{piece}") for piece in "qrbn"]
    rewards = [verdict.reward for verdict in verdicts]
    assert [verdict.move.uci for verdict in verdicts] == [f"{square}{piece}" for piece in "qrbn"]
    assert rewards[0] == 0.0 and len(set(rewards)) == 4
    mirrored = chess.Board(fen).mirror().fen()
    assert [judge(scorer, mirrored, f"{mirror(square)}{piece}").reward for piece in "qrbn"] == rewards
    unnamed = judge(scorer, fen, square)
    assert (unnamed.outcome, unnamed.reward) == (Outcome.AMBIGUOUS, -1.2)


def test_a_queen_is_not_always_the_best_promotion(scorer: LocalScorer) -> None:
    fen = "8/5P1k/5K2/8/8/8/8/8 w - - 0 1"
    assert judge(scorer, fen, "f8=R").reward == 0.0
    queen = judge(scorer, fen, "f8=Q")  # stalemate
    assert queen.win_after == 0.5 and queen.reward < -0.4


def test_en_passant_exists_only_at_once(scorer: LocalScorer) -> None:
    fen = "8/8/8/k1pP3R/8/8/8/K7 w - c6 0 2"
    for board in (chess.Board(fen), chess.Board(fen).mirror()):
        uci = "d5c6" if board.turn else "d4c3"
        assert judge(scorer, board.fen(), uci).move.san.startswith("dxc")
        board.ep_square = None
        assert judge(scorer, board.fen(), uci).outcome is Outcome.ILLEGAL


def test_castling_needs_its_right(scorer: LocalScorer) -> None:
    fen = "rn3r2/pbppq1p1/1p2pN2/8/3P2NP/6P1/PPP1BP1R/R3K1k1 w Q - 5 18"  # Lasker - Thomas, London 1912
    for board in (chess.Board(fen), chess.Board(fen).mirror()):
        verdict = judge(scorer, board.fen(), "O-O-O")
        assert (verdict.reward, verdict.win_after, verdict.move.san) == (0.0, 1.0, "O-O-O#")
        board.castling_rights = chess.BB_EMPTY
        assert judge(scorer, board.fen(), "O-O-O").outcome is Outcome.ILLEGAL
        assert judge(scorer, board.fen(), "e1c1" if board.turn else "e8c8").outcome is Outcome.ILLEGAL


def test_castling_rights_are_part_of_the_question(engine_settings: RewardSettings) -> None:
    board = "r3k2r/pbppqppp/1pn2n2/4p3/4P3/1PN2N2/PBPPQPPP/R3K2R w"
    fens = [f"{board} {rights} - 0 1" for rights in ("KQkq", "KQ", "kq", "-")]
    verdicts = fresh(engine_settings, [ScoreItem(fen, boxed("d3")) for fen in fens])
    assert len({verdict.eval_after for verdict in verdicts}) > 2


def test_the_fifty_move_rule_is_in_sight(scorer: LocalScorer) -> None:
    fresh_clock, worn_clock = (f"8/8/8/4k3/8/8/Q1P5/K7 w - - {clock} 80" for clock in (0, 99))
    assert judge(scorer, fresh_clock, "Kb1").win_after > 0.95
    assert judge(scorer, worn_clock, "Kb1").win_after == 0.5
    assert judge(scorer, worn_clock, "c4").win_after > 0.9


def test_chess960_is_judged_like_chess(scorer: LocalScorer) -> None:
    rng = random.Random(46)
    castled = 0
    for number in rng.sample(range(960), 12):
        board = chess.Board.from_chess960_pos(number)
        while not any(board.is_castling(move) for move in board.legal_moves) and board.ply() < 60:
            board.push(rng.choice(list(board.legal_moves)))
        board = board.copy(stack=False)
        verdicts = judge_all(scorer, board)
        twins = scorer.score_batch(
            [ScoreItem(board.mirror().fen(), boxed(mirror(verdict.move.uci))) for verdict in verdicts]
        )
        for move, verdict, twin in zip(board.legal_moves, verdicts, twins, strict=True):
            assert (verdict.move.uci, verdict.move.san) == (board.uci(move), board.san(move))
            assert mirror(twin.best.uci) == verdict.best.uci
            assert [getattr(verdict, field) for field in FIELDS] == [getattr(twin, field) for field in FIELDS]
            castled += board.is_castling(move)
    assert castled > 5


def test_castling_in_chess960_is_one_move_in_every_spelling(scorer: LocalScorer) -> None:
    fen = "5k1r/5ppp/8/8/8/8/5PPP/5K1R w Hh - 0 1"
    verdicts = {repr(judge(scorer, fen, text)) for text in ("O-O", "0-0", "f1h1", r"\text{O-O}")}
    assert len(verdicts) == 1
    assert judge(scorer, fen, "O-O").move.uci == "f1h1"
    assert judge(scorer, fen, "f1g1").move.san == "Kg1"

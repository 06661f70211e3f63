"""Verdicts of the real engine: what they are made of, what is refused, and how batches are judged."""

import gc
import math

import pytest

from rookery.config.reward import RewardSettings
from rookery.errors import InvalidInput
from rookery.trace import ScoreItem, Verdict
from rookery.uci import Query
from services.reward import LocalScorer
from services.reward.scorer import Scorer
from services.reward.truth import reader_id

pytestmark = pytest.mark.stockfish

SCHOLARS_MATE = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
QUEEN_HANGS = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"


def judge(scorer: LocalScorer, fen: str, move: str, *, scheme: str = "") -> Verdict:
    return scorer.score(ScoreItem(fen, rf"\boxed{{{move}}}", scheme=scheme))


def test_the_components_sum_to_the_reward(scorer: LocalScorer) -> None:
    for answer in (r"\boxed{a3}", r"\boxed{Ke3}", "nothing"):
        verdict = scorer.score(ScoreItem(SCHOLARS_MATE, answer))
        assert math.isclose(sum(verdict.components.values()), verdict.reward)


def test_the_version_names_all_that_decides(scorer: LocalScorer) -> None:
    version = judge(scorer, SCHOLARS_MATE, "a3").reward_version
    assert version.startswith("delta-1/parser-4/lichess-k0.00368208/nodes-1000/hash-1/stockfish")
    assert judge(scorer, SCHOLARS_MATE, "a3", scheme="best").reward_version.startswith("best-2/")


@pytest.mark.parametrize(
    "item", [ScoreItem(SCHOLARS_MATE, "", scheme="x"), ScoreItem(SCHOLARS_MATE, "", task="x")]
)
def test_unknown_names_are_refused(scorer: LocalScorer, item: ScoreItem) -> None:
    with pytest.raises(InvalidInput, match="'x': choose from"):
        scorer.score(item)


def test_a_position_that_the_reader_does_not_know_is_refused_alone(scorer: LocalScorer) -> None:
    chess960 = "bqnbrkrn/pppppppp/8/8/8/8/PPPPPPPP/BQNBRKRN w GEge - 0 1"
    items = [ScoreItem(fen, r"Hm. \boxed{a3}", scheme="delta+truth") for fen in (chess960, QUEEN_HANGS)]
    refused, judged = scorer.score_batch(items)
    assert isinstance(refused, InvalidInput)
    assert "scheme truth cannot read about 'bqnb" in str(refused)
    assert isinstance(judged, Verdict)
    assert judged.components["truth"] == 0.0
    assert f"/{reader_id()}" in judged.reward_version


async def test_a_batch_asks_each_question_once(engine_settings: RewardSettings) -> None:
    asked: list[Query] = []
    moves = ["Nxg5", "h3", "h3", "g2g3", "g3", "Bxg5", "Ke7", "Nxg5"]
    async with await Scorer.start(engine_settings) as scorer:
        answer = scorer.pool.answer

        async def counting(queries, queue):
            asked.extend(queries)
            return await answer(queries, queue)

        scorer.pool.answer = counting
        verdicts = await scorer.score_batch([ScoreItem(QUEEN_HANGS, rf"\boxed{{{move}}}") for move in moves])
    assert verdicts[1] == verdicts[2] and verdicts[3] == verdicts[4]
    assert sorted(query.move or "" for query in asked) == ["", "c1g5", "g2g3", "h2h3"]


async def test_a_refused_batch_is_freed_without_the_garbage_collector(
    engine_settings: RewardSettings,
) -> None:
    async with await Scorer.start(engine_settings) as scorer:
        enabled = gc.isenabled()
        gc.disable()
        try:
            results = await scorer.score_batch([ScoreItem(f"{n} a hostile FEN", "x") for n in range(3)])
            left = [
                each for each in gc.get_objects() if isinstance(each, ScoreItem) and "hostile" in each.fen
            ]
        finally:
            if enabled:
                gc.enable()
    assert all(isinstance(result, InvalidInput) and result.__cause__ for result in results)
    assert not left


def test_a_bad_item_does_not_spoil_its_batch(scorer: LocalScorer) -> None:
    good, bad, over = scorer.score_batch(
        [
            ScoreItem(QUEEN_HANGS, r"\boxed{Nxg5}"),
            ScoreItem("not a fen", r"\boxed{Nxg5}"),
            ScoreItem("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", r"\boxed{Kg8}"),
        ]
    )
    assert isinstance(good, Verdict) and good.reward == 0.0
    assert isinstance(bad, InvalidInput) and "'not a fen'" in str(bad)
    assert isinstance(over, InvalidInput) and "stalemate" in str(over)

"""Verdicts of the real engine: chess facts, what is refused, and that no bad answer breaks anything."""

import gc
import math

import chess
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.errors import InvalidInput, RookeryError
from rookery.trace import Outcome, Verdict
from rookery.uci import Query
from services.reward import LocalScorer
from services.reward.scorer import Item, Scorer
from services.reward.settings import RewardSettings
from services.reward.truth import reader_id

pytestmark = pytest.mark.stockfish

SCHOLARS_MATE = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5Q2/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
QUEEN_HANGS = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
PROMOTE = "8/4P1k1/8/8/8/8/1K6/8 w - - 0 1"
EN_PASSANT_WINS = "4k3/8/8/3Pp3/8/8/8/4K3 w - e6 0 1"


def judge(scorer: LocalScorer, fen: str, move: str, *, scheme: str = "") -> Verdict:
    return scorer.score(Item(fen, rf"\boxed{{{move}}}", scheme=scheme))


def test_the_best_move_has_no_regret_and_a_blunder_has(scorer: LocalScorer) -> None:
    best = judge(scorer, QUEEN_HANGS, "Nxg5")
    blunder = judge(scorer, QUEEN_HANGS, "h3")
    assert best.reward == best.regret == 0.0
    assert best.outcome is blunder.outcome is Outcome.LEGAL
    assert blunder.regret is not None and blunder.regret > 0.2
    assert blunder.reward == -blunder.regret == blunder.components["delta"]


def test_taking_the_last_piece_draws(scorer: LocalScorer) -> None:
    verdict = judge(scorer, "8/8/8/8/3k4/8/1q6/K7 w - - 0 1", "Kxb2")
    assert (verdict.win_after, verdict.reward) == (0.5, 0.0)


def test_castling_answers_in_any_spelling_are_one_move(scorer: LocalScorer) -> None:
    fen = "r1bqk1nr/pppp1ppp/2n5/2b1p3/2B1P3/5N2/PPPP1PPP/RNBQK2R w KQkq - 4 4"
    verdicts = {repr(judge(scorer, fen, text)) for text in ("O-O", "0-0", "o-o", "e1g1", "e1h1")}
    assert len(verdicts) == 1


@pytest.mark.parametrize("scheme", ["delta", "best"])
def test_every_refusal_is_below_the_worst_legal_move(scorer: LocalScorer, scheme: str) -> None:
    board = chess.Board(SCHOLARS_MATE)
    worst = min(judge(scorer, board.fen(), move.uci(), scheme=scheme).reward for move in board.legal_moves)
    answers = (
        r"\boxed{Ke3}",
        r"\boxed{}",
        r"\boxed{--}",
        r"\boxed{hello}",
        "",
        r"\boxed{e4",
        r"\boxed{a3 b3}",
    )
    for answer in answers:
        verdict = scorer.score(Item(board.fen(), answer, scheme=scheme))
        assert verdict.reward < worst
        assert verdict.outcome is not Outcome.LEGAL
        assert verdict.move is verdict.best is verdict.regret is None
        assert verdict.engine is not None and verdict.engine.nodes == 0


def test_the_components_sum_to_the_reward(scorer: LocalScorer) -> None:
    for answer in (r"\boxed{a3}", r"\boxed{Ke3}", "nothing"):
        verdict = scorer.score(Item(SCHOLARS_MATE, answer))
        assert math.isclose(sum(verdict.components.values()), verdict.reward)


def test_the_version_names_all_that_decides(scorer: LocalScorer) -> None:
    version = judge(scorer, SCHOLARS_MATE, "a3").reward_version
    assert version.startswith("delta-1/parser-2/lichess-k0.00368208/nodes-1000/hash-1/stockfish")
    assert judge(scorer, SCHOLARS_MATE, "a3", scheme="best").reward_version.startswith("best-2/")


@pytest.mark.parametrize("item", [Item(SCHOLARS_MATE, "", scheme="x"), Item(SCHOLARS_MATE, "", task="x")])
def test_unknown_names_are_refused(scorer: LocalScorer, item: Item) -> None:
    with pytest.raises(InvalidInput, match="'x': choose from"):
        scorer.score(item)


def test_a_position_that_the_reader_does_not_know_is_refused_alone(scorer: LocalScorer) -> None:
    chess960 = "bqnbrkrn/pppppppp/8/8/8/8/PPPPPPPP/BQNBRKRN w GEge - 0 1"
    items = [Item(fen, r"Hm. \boxed{a3}", scheme="delta+truth") for fen in (chess960, QUEEN_HANGS)]
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
        verdicts = await scorer.score_batch([Item(QUEEN_HANGS, rf"\boxed{{{move}}}") for move in moves])
    assert verdicts[1] == verdicts[2] and verdicts[3] == verdicts[4]
    assert sorted(query.move or "" for query in asked) == ["", "c1g5", "g2g3", "h2h3"]


async def test_a_refused_batch_is_freed_without_the_garbage_collector(
    engine_settings: RewardSettings,
) -> None:
    async with await Scorer.start(engine_settings) as scorer:
        enabled = gc.isenabled()
        gc.disable()
        try:
            results = await scorer.score_batch([Item(f"{n} a hostile FEN", "x") for n in range(3)])
            left = [each for each in gc.get_objects() if isinstance(each, Item) and "hostile" in each.fen]
        finally:
            if enabled:
                gc.enable()
    assert all(isinstance(result, InvalidInput) and result.__cause__ for result in results)
    assert not left


def test_a_bad_item_does_not_spoil_its_batch(scorer: LocalScorer) -> None:
    good, bad, over = scorer.score_batch(
        [
            Item(QUEEN_HANGS, r"\boxed{Nxg5}"),
            Item("not a fen", r"\boxed{Nxg5}"),
            Item("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1", r"\boxed{Kg8}"),
        ]
    )
    assert isinstance(good, Verdict) and good.reward == 0.0
    assert isinstance(bad, InvalidInput) and "'not a fen'" in str(bad)
    assert isinstance(over, InvalidInput) and "stalemate" in str(over)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    response=st.one_of(
        st.text(max_size=60),
        st.text(alphabet="\\boxed{}<think>/ NBRQKabcdefgh12345678x+#=-O.", max_size=60),
        st.text(alphabet="NBRQKabcdefgh12345678x+#=-O. ", max_size=8).map(lambda text: rf"\boxed{{{text}}}"),
    )
)
def test_any_completion_has_a_verdict(scorer: LocalScorer, response: str) -> None:
    verdict = scorer.score(Item(SCHOLARS_MATE, response))
    assert math.isfinite(verdict.reward)
    assert (verdict.outcome is Outcome.LEGAL) == (verdict.reward >= -1.0)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_fen_is_judged_or_refused(scorer: LocalScorer, data: st.DataObject) -> None:
    fen = list(data.draw(st.sampled_from([SCHOLARS_MATE, PROMOTE, EN_PASSANT_WINS])))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(fen) - 1))
        fen[place] = data.draw(st.sampled_from([*"KQRBNPkqrbnp12345678/ wb-0", ""]))
    text = "".join(fen)
    try:
        move = next(iter(chess.Board(text).legal_moves), None)
        verdict = judge(scorer, text, move.uci() if move else "e4")
        assert math.isfinite(verdict.reward)
    except ValueError:
        with pytest.raises(InvalidInput):
            judge(scorer, text, "e4")
    except RookeryError as error:
        assert isinstance(error, InvalidInput)

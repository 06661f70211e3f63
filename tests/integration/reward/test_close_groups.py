"""Answers that are close together are judged again with more nodes: when, how, and that verdicts say so."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import chess
import pytest
from pydantic import ValidationError

from rookery.config.reward import RewardSettings
from rookery.trace import Verdict
from services.reward import LocalScorer
from services.reward.scorer import Item

pytestmark = pytest.mark.stockfish

NODES, MORE = 1000, 8000
START = chess.STARTING_FEN
HANGING = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
CLOSE = ["e2e4", "d2d4", "g1f3", "c2c4", "e2e4"]
APART = ["f3g5", "h2h3", "f3g5"]


def settings(stockfish_path: str, **changed: object) -> RewardSettings:
    return RewardSettings(engine_path=Path(stockfish_path), engines=1, **{"nodes": NODES, **changed})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def deeper(stockfish_path: str) -> Iterator[LocalScorer]:
    with closing(LocalScorer(settings(stockfish_path, close_nodes=MORE, close_regret=0.1))) as scorer:
        yield scorer


def judged(scorer: LocalScorer, fen: str, moves: list[str], scheme: str = "") -> list[Verdict]:
    results = scorer.score_batch([Item(fen, rf"\boxed{{{move}}}", scheme=scheme) for move in moves])
    return [result for result in results if isinstance(result, Verdict)]


def wins(verdicts: list[Verdict]) -> list[tuple[float | None, float | None]]:
    return [(verdict.win_before, verdict.win_after) for verdict in verdicts]


def nodes_of(verdict: Verdict) -> int:
    assert verdict.engine is not None
    return verdict.engine.nodes


def test_a_close_group_has_the_verdicts_of_more_nodes(deeper: LocalScorer, stockfish_path: str) -> None:
    with closing(LocalScorer(settings(stockfish_path, nodes=MORE))) as expected:
        plain = judged(expected, START, CLOSE)
    found = judged(deeper, START, CLOSE)
    assert wins(found) == wins(plain)
    assert [verdict.reward for verdict in found] == [verdict.reward for verdict in plain]
    assert all(nodes_of(mine) > nodes_of(theirs) for mine, theirs in zip(found, plain, strict=True))
    assert judged(deeper, START, CLOSE) == found, "from the cache"


@pytest.mark.parametrize(
    ("fen", "moves"), [(HANGING, APART), (START, ["e2e4"] * 8), (START, ["e2e4", "e4"]), (START, ["e2e4"])]
)
def test_other_groups_have_those_of_the_usual_nodes(
    fen: str, moves: list[str], deeper: LocalScorer, scorer: LocalScorer
) -> None:
    found = judged(deeper, fen, moves)
    assert wins(found) == wins(judged(scorer, fen, moves))
    assert max(map(nodes_of, found)) < MORE


def test_the_scheme_does_not_decide_which_groups_are_close(deeper: LocalScorer) -> None:
    for scheme in ("best", "minmax", "delta+0.2*candidates"):
        assert min(map(nodes_of, judged(deeper, START, CLOSE, scheme))) > MORE
        assert max(map(nodes_of, judged(deeper, HANGING, APART, scheme))) < 2 * 50 * NODES


def test_answers_without_a_move_do_not_count(deeper: LocalScorer) -> None:
    *moves, refused = judged(deeper, START, [*CLOSE, "e2e5"])
    assert wins(moves) == wins(judged(deeper, START, CLOSE))
    assert nodes_of(refused) == 0


def test_the_version_says_so(deeper: LocalScorer, scorer: LocalScorer) -> None:
    version = judged(deeper, START, ["e2e4"])[0].reward_version
    assert f"/nodes-{NODES}/close-0.1-{MORE}/hash-1/" in version
    assert version.replace(f"/close-0.1-{MORE}", "") == judged(scorer, START, ["e2e4"])[0].reward_version


def test_close_nodes_must_be_more() -> None:
    with pytest.raises(ValidationError, match="--close-nodes 500: must be more than --nodes 1000"):
        RewardSettings(close_nodes=500)

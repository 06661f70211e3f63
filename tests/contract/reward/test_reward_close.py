"""Answers that are close together have the same verdicts over HTTP, gRPC and in this process."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import chess
import httpx
import pytest

from rookery.clients import RewardClient, ScoreItem
from rookery.config.reward import RewardSettings
from rookery.trace import Verdict
from services.reward import LocalScorer
from services.reward.scorer import Item
from tests.contract.running_service import RunningService

pytestmark = pytest.mark.stockfish

FEN = chess.STARTING_FEN
ANSWERS = [rf"\boxed{{{move}}}" for move in ("e2e4", "d2d4", "a2a3", "e2e5", "no move")]
MORE, REGRET = 8000, 0.2


async def test_a_group_is_judged_as_one_whatever_the_way(
    start_service: Callable[..., RunningService], stockfish_path: str
) -> None:
    service = start_service("--close-nodes", str(MORE), "--close-regret", str(REGRET))
    items = [ScoreItem(FEN, answer) for answer in ANSWERS]
    async with RewardClient(service.grpc_target) as client:
        batch = await client.score(items)
        [(_, streamed)] = [pair async for pair in client.stream([(0, items)])]
    async with httpx.AsyncClient() as http:
        body = {"items": [{"fen": FEN, "response": answer} for answer in ANSWERS]}
        answered = (await http.post(f"{service.url}/v1/score/batch", json=body)).json()["verdicts"]
    settings = RewardSettings(
        engine_path=Path(stockfish_path), engines=1, close_nodes=MORE, close_regret=REGRET
    )
    with closing(LocalScorer(settings)) as local:
        expected = local.score_batch([Item(FEN, answer) for answer in ANSWERS])
        alone = local.score(Item(FEN, ANSWERS[0]))
    assert batch == streamed == expected
    assert [verdict["reward"] for verdict in answered] == [verdict.reward for verdict in batch]
    assert [verdict["engine"]["nodes"] for verdict in answered] == [nodes(verdict) for verdict in batch]
    assert min(map(nodes, batch[:3])) > MORE > nodes(alone)
    assert [nodes(verdict) for verdict in batch[3:]] == [0, 0]


def nodes(verdict: Verdict) -> int:
    assert verdict.engine is not None
    return verdict.engine.nodes

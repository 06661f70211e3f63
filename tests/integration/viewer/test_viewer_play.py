"""A policy of each kind of prompt style, asked for a move, with the real reward service."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request

from services.reward.app import create_app
from services.reward.scorer import Scorer
from services.reward.settings import RewardSettings
from services.viewer.play import Peers, Question
from tests.servers import serve_http

pytestmark = pytest.mark.stockfish


@pytest.mark.parametrize(
    ("style", "said"),
    [
        ("fen", r"\boxed{e7e5}"),
        ("rookworld", "M: e7e5 c7c5 g8f6 E: -0.3 -0.4 -0.5 B: e7e5"),
        ("game-san", "e5"),
    ],
)
def test_an_answer_is_judged_by_the_task_of_its_style(style: str, said: str) -> None:
    policy = FastAPI()

    @policy.post("/v1/completions")
    @policy.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        choice = {"index": 0, "text": said, "message": {"content": said}, "finish_reason": "stop"}
        return {"choices": [choice]}

    async def ask() -> dict[str, Any]:
        async with (
            await Scorer.start(RewardSettings(engines=1, nodes=100)) as scorer,
            serve_http(create_app(scorer)) as reward,
            serve_http(policy) as inference,
        ):
            question = Question(moves=["e4"], player="policy", style=style)
            return await Peers(inference, reward).answer(question, question.board())

    reply = asyncio.run(ask())
    assert (reply["verdict"]["outcome"], reply["move"]) == ("legal", {"uci": "e7e5", "san": "e5"})

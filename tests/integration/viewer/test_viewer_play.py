"""A policy of each kind of prompt style, asked for a move, with the real reward service."""

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI, Request

from rookery.config.reward import RewardSettings
from services.reward.app import create_app
from services.reward.scorer import Scorer
from services.viewer.play import MoveQuestion, RunServices
from tests.servers import serve_http

pytestmark = pytest.mark.stockfish


@pytest.mark.parametrize(
    ("style", "said", "outcome"),
    [
        ("fen", r"\boxed{e7e5}", "legal"),
        ("fen", r"I may play \boxed{e7e5}", "no_box"),
        ("rookworld", "M: e7e5 c7c5 g8f6 E: -0.3 -0.4 -0.5 B: e7e5", "legal"),
        ("game-san", "e5", "legal"),
    ],
)
def test_an_answer_is_judged_by_the_task_of_its_style(style: str, said: str, outcome: str) -> None:
    thinks = outcome == "no_box"  # the prompt opens the reasoning, which never ends
    policy = FastAPI()
    policy.get("/v1/models")(lambda: {"data": [{"id": "policy", "owned_by": "vllm"}]})
    policy.post("/detokenize")(lambda: {"prompt": "<think>" if thinks else "<|assistant|>"})

    @policy.post("/v1/completions")
    @policy.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        choice = {"index": 0, "text": said, "message": {"content": said}, "finish_reason": "stop"}
        told = {"prompt_token_ids": [1], "token_ids": []}
        return {"choices": [choice | told | {"logprobs": {"content": [], "token_logprobs": []}}]} | told

    async def ask() -> dict[str, Any]:
        async with (
            await Scorer.start(RewardSettings(engines=1, nodes=100)) as scorer,
            serve_http(create_app(scorer)) as reward,
            serve_http(policy) as inference,
        ):
            question = MoveQuestion(moves=["e4"], player="policy", style=style)
            return await RunServices(inference, reward).answer(question, question.board())

    reply = asyncio.run(ask())
    move = {"uci": "e7e5", "san": "e5"} if outcome == "legal" else None
    assert (reply["verdict"]["outcome"], reply["move"]) == (outcome, move)
    named = ["e7e5", "c7c5", "g8f6"] if style == "rookworld" else []
    assert [candidate["uci"] for candidate in reply["candidates"]] == named

"""In-process stand-ins for the two peers, to make them fail on purpose. The real ones meet in tests/e2e."""

import asyncio
import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field

import chess
import grpc
from fastapi import FastAPI, HTTPException, Request, Response

from rookery.games import random_move
from rookery.trace import policy_name
from rookery.v1 import reward_pb2, reward_pb2_grpc, verdict_pb2
from tests.servers import one_token


@dataclass
class Inference:
    """Answers like the inference server: completions under the versions it still knows."""

    version: int = 0
    retired: set[int] = field(default_factory=set)
    ready: bool = True
    failures: int = 0
    aborted: list[str | None] = field(default_factory=list)
    """Finish reasons of the second completion of the next answers."""
    partial: int = 0
    """How many of the next answers lack their last completion."""
    fails_and_leaves: bool = False
    refuses: bool = False
    wants_token: bool = False
    delay_s: float = 0.0
    later_delay_s: float = 0.0
    """Of further turns, besides."""
    texts: tuple[str, ...] = ("\\boxed{e2e4}",)
    """What it writes first, after one answer in the prompt, and so on; the last one from then on."""
    rewrites: bool = False
    """Prompts do not begin with the tokens of the turns before."""
    context: int = 1 << 20
    """Most tokens of a prompt and its answer, which is cut there, as vLLM does it."""
    leased: list[int] = field(default_factory=list)
    requests: list[dict] = field(default_factory=list)
    working: int = 0
    most_working: int = 0

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/policy")
        async def policy(response: Response) -> dict:
            if not self.ready:
                response.status_code = 503
                return {}
            name = policy_name(self.version)
            sha256 = hashlib.sha256(name.encode()).hexdigest()
            path = f"/a/{name}"
            return {
                "version": self.version,
                "sha256": sha256,
                "name": name,
                "path": path,
                "base_model": "tiny",
            }

        @app.post("/lease")
        async def lease(request: Request) -> dict:
            body = await request.json()
            self.leased.append(body["version"])
            name = policy_name(body["version"])
            return {"version": body["version"], "sha256": hashlib.sha256(name.encode()).hexdigest()}

        @app.post("/v1/chat/completions")
        async def complete(request: Request) -> Response:
            body = await request.json()
            self.requests.append(body)
            self.working += 1
            self.most_working = max(self.most_working, self.working)
            try:
                later = any(message["role"] == "assistant" for message in body["messages"])
                await asyncio.sleep(self.delay_s + later * self.later_delay_s)
            finally:
                self.working -= 1
            return self.answer(body)

        return app

    def answer(self, body: dict) -> Response:
        if self.failures:
            self.failures -= 1
            return Response("engine died", status_code=500)
        if self.fails_and_leaves:
            self.ready = False
            return Response("engine died", status_code=500)
        if self.wants_token:
            return Response("needs the token", status_code=401)
        answered = [m for m in body["messages"] if m["role"] == "assistant"]
        asked = [1, 2, *([5, 6, 7, 3, 4] * len(answered) if not self.rewrites or not answered else [9])]
        room = self.context - len(asked)
        if self.refuses or room <= 0:
            said = f"This model's maximum context length is {self.context} tokens. However, your prompt ..."
            return Response("max_tokens is too large" if self.refuses else said, status_code=400)
        number = int(body["model"].removeprefix("policy-v"))
        if number in self.retired or number > self.version:
            return Response("no such model", status_code=404)
        text = self.texts[min(len(answered), len(self.texts) - 1)]
        choices = [
            {
                "index": i,
                "finish_reason": "stop" if room >= 3 else "length",
                "message": {"content": f"{text} {body['seed'] + i}"},
                "token_ids": [5, 6, 7][:room],
                "logprobs": {"content": [{"logprob": -0.5}] * min(room, 3)},
            }
            for i in reversed(range(body["n"]))
        ]
        if self.aborted:
            choices[-2]["finish_reason"] = self.aborted.pop(0)
        if self.partial:
            self.partial -= 1
            choices.pop(0)
        content = json.dumps({"prompt_token_ids": asked, "choices": choices})
        return Response(content, media_type="application/json")


def playing(inference: Inference) -> FastAPI:
    """A model that continues games in UCI by legal moves. Its tokens are characters."""
    app = inference.app()

    @app.post("/v1/completions")
    async def complete(request: Request) -> dict:
        body = await request.json()
        inference.requests.append(body)
        if int(body["model"].removeprefix("policy-v")) in inference.retired:
            raise HTTPException(404)
        board = chess.Board()
        for move in body["prompt"].splitlines()[1:]:
            board.push_uci(move)
        choices = []
        for i in range(body["n"]):
            move = random_move(board, seed=body["seed"] + i).uci()
            ids = list(f"{move}\n".encode())
            choices.append(
                {
                    "index": i,
                    "finish_reason": "stop",
                    "text": move,
                    "prompt_token_ids": list(body["prompt"].encode()),
                    "token_ids": ids,
                    "logprobs": {"token_logprobs": [-1.0] * len(ids)},
                }
            )
        return {"choices": choices}

    return app


@dataclass
class ScoringInference(Inference):
    """Gives log-probabilities, too, or fails. With status 500, it leaves."""

    scoring_status: int = 200
    scored: int = 0

    def app(self) -> FastAPI:
        app = super().app()

        @app.post("/v1/completions")
        async def score(body: dict) -> dict:
            self.requests.append(body)
            self.scored += 1
            if self.scoring_status != 200:
                self.ready = self.scoring_status != 500
                raise HTTPException(self.scoring_status, "maximum context length is 9 tokens")
            return one_token(body)

        return app


class Reward(reward_pb2_grpc.RewardServiceServicer):
    """Scores every answer the same, or fails as told."""

    reward = -0.25
    versions: tuple[str, ...] = ("test-1",)
    """One for each verdict in turn."""
    problem_status = 0
    wants_token = False
    influence = False
    """Its verdicts have a sentence, and the term, which is the effect of this sentence."""
    requests: list[reward_pb2.ScoreRequest]

    def __init__(self) -> None:
        self.requests = []
        self.truncated: set[bool] = set()
        """Whether answers were cut."""

    async def ScoreBatch(self, request, context):  # noqa: N802
        self.truncated |= {item.truncated for item in request.items}
        if self.wants_token:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "needs the token")
        self.requests += request.items
        if self.problem_status:
            problem = reward_pb2.Problem(title="Told to", status=self.problem_status, detail="so")
            return reward_pb2.ScoreBatchResponse(
                items=[reward_pb2.ScoreBatchItem(problem=problem) for _ in request.items]
            )
        verdicts = [
            verdict_pb2.Verdict(reward=self.reward, outcome=verdict_pb2.OUTCOME_LEGAL, reward_version=version)
            for _, version in zip(request.items, itertools.cycle(self.versions))
        ]
        for place, (verdict, item) in enumerate(zip(verdicts, request.items, strict=True)):
            if self.influence:
                verdict.move.uci = "cd"[place % 2]
                verdict.regret = (place % 2) / 4
                verdict.components["influence"] = sum(effect.regret for effect in item.effects[1:])
                verdict.reward += verdict.components["influence"]
                sentence = verdict.sentences.add(start=0, end=4, read=True)
                sentence.claims.add(concept="pin", start=0, end=3, true=True, weight=1.0)
        return reward_pb2.ScoreBatchResponse(
            items=[reward_pb2.ScoreBatchItem(verdict=verdict) for verdict in verdicts]
        )

    def go_blind(self) -> None:
        self.reward = math.nan

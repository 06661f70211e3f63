"""The whole evaluation over real HTTP and gRPC: the real reward service, a policy server in a page."""

import asyncio
import contextlib
import hashlib
import json
import random
import socket
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import chess
import grpc
import pytest
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from rich.console import Console

from rookery.errors import InvalidInput, NotFound, PeerFault
from rookery.trace import Phase, Position
from rookery.v1 import reward_pb2_grpc
from services.arena.session import run
from services.arena.settings import EvaluateSettings
from services.data.app import create_app
from services.data.pgn.collection import GameCollection
from services.data.positions.numbered import PositionOrder
from services.data.positions.recipe import Shares
from services.reward.scorer import Scorer
from services.reward.servicer import RewardServicer
from services.reward.settings import RewardSettings

BEFORE, AFTER = "policy-v000000", "policy-v000001"
QUIET = Console(quiet=True)

pytestmark = pytest.mark.stockfish


@dataclass
class PolicyServer:
    """Speaks the part of vLLM's interface that the arena asks: BEFORE often errs, AFTER seldom."""

    adapters: Path
    failures: int = 0
    requests: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()
        app.get("/policy")(self.policy)
        app.get("/v1/models")(self.models)
        app.post("/v1/chat/completions")(self.complete)
        return app

    async def policy(self) -> dict[str, Any]:
        return {"version": 1, "sha256": "f" * 64, "name": AFTER, "path": "/a", "base_model": "tiny"}

    async def models(self) -> dict[str, Any]:
        roots = {"tiny": "tiny", BEFORE: str(self.adapters), AFTER: "/elsewhere", "policy": "/elsewhere"}
        return {"data": [{"id": name, "root": root} for name, root in roots.items()]}

    async def complete(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.requests.append(body)
        if self.failures:
            self.failures -= 1
            raise HTTPException(503, "warming up")
        choices = [self._choice(body, index) for index in range(body["n"])]
        return {"prompt_token_ids": [1, 2], "choices": choices}

    def _choice(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        legal = chess.Board(body["messages"][-1]["content"].removeprefix("Position (FEN): ")).legal_moves
        draw = 0 if body["temperature"] == 0 else body["seed"] + index
        rng = random.Random(f"{draw}/{body['messages']}")
        errs = rng.random() < (0.6 if body["model"] == BEFORE else 0.1)
        move = "a1a1" if errs else rng.choice(sorted(m.uci() for m in legal))
        return {
            "index": index,
            "message": {"content": f"<think>hm</think>\\boxed{{{move}}}"},
            "token_ids": [5, 6],
            "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -0.2}]},
            "finish_reason": "stop",
        }


@contextlib.asynccontextmanager
async def serving(app: FastAPI) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        server.capture_signals = contextlib.nullcontext
        task = asyncio.create_task(server.serve(sockets=[sock]))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        await task


@contextlib.asynccontextmanager
async def judging() -> AsyncIterator[int]:
    """The port of the real reward service, quick rather than strong."""
    scorer = await Scorer.start(RewardSettings(engines=1, nodes=100))
    server = grpc.aio.server()
    reward_pb2_grpc.add_RewardServiceServicer_to_server(RewardServicer(scorer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(None)
    await scorer.close()


@pytest.fixture
def policy_server(tmp_path: Path) -> PolicyServer:
    return PolicyServer(tmp_path / "adapters")


@pytest.fixture
def positions_file(tmp_path: Path) -> Path:
    """40 positions from games of random moves."""
    lines, rng = [], random.Random(1)
    for game in range(40):
        board = chess.Board()
        for _ in range(10 + game):
            board.push(rng.choice(list(board.legal_moves)))
        phase = Phase.OPENING if game < 20 else Phase.MIDDLEGAME
        position = Position(f"r:{game}:{board.ply()}", board.fen(), board.ply(), phase, f"r:{game}")
        lines.append(json.dumps(asdict(position)))
    path = tmp_path / "heldout.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
async def settings(policy_server: PolicyServer, positions_file: Path, tmp_path: Path):
    async with judging() as port, serving(policy_server.app()) as url:
        yield EvaluateSettings(
            inference_url=url,
            reward_target=f"dns:///127.0.0.1:{port}",
            positions=positions_file,
            before=BEFORE,
            after=AFTER,
            style="fen",
            count=30,
            out=tmp_path / "run",
        )


def changed(settings: EvaluateSettings, **values: Any) -> EvaluateSettings:
    return EvaluateSettings(**{**settings.model_dump(), **values})


async def test_before_and_after(settings, policy_server: PolicyServer) -> None:
    policy_server.adapters.mkdir()
    (policy_server.adapters / "adapter_model.safetensors").write_bytes(b"weights")
    report = await run(settings, console=QUIET)
    difference = report["metrics"]["legal_rate"]["difference"]
    assert difference["ci95"][0] > 0.2
    assert report["metrics"]["box_rate"]["before"]["mean"] == 1.0
    assert len(report["reward_version"]) == 1
    assert report["engine"][0].startswith("Stockfish")
    assert 0 < report["metrics"]["regret_legal"]["after"]["mean"] < 0.5
    assert report["policies"]["after"]["sha256"] == "f" * 64
    assert report["policies"]["before"]["sha256"] == hashlib.sha256(b"weights").hexdigest()
    assert json.loads((settings.out / "report.json").read_text()) == report


async def test_both_policies_are_asked_alike(settings, policy_server: PolicyServer) -> None:
    await run(settings, console=QUIET)
    asked = {
        name: sorted(
            (str(r["messages"]), r["temperature"], r["n"], r["seed"], r["top_p"], r["top_k"], r["max_tokens"])
            for r in policy_server.requests
            if r["model"] == name
        )
        for name in (BEFORE, AFTER)
    }
    assert asked[BEFORE] == asked[AFTER]
    assert {(row[1], row[2]) for row in asked[AFTER]} == {(0.0, 1), (1.0, 4)}
    assert {row[4:] for row in asked[AFTER]} == {(1.0, -1, 32)}
    assert len({row[3] for row in asked[AFTER]}) == 30


async def test_the_same_evaluation_gives_the_same_report(settings, tmp_path: Path) -> None:
    reports = [await run(changed(settings, out=tmp_path / name), console=QUIET) for name in ("a", "b")]
    for report in reports:
        del report["seconds"]
    assert reports[0] == reports[1]


async def test_a_server_that_hiccups_is_asked_again(settings, policy_server: PolicyServer) -> None:
    policy_server.failures = 1
    await run(changed(settings, count=5), console=QUIET)
    assert len(policy_server.requests) == 21


async def test_an_unknown_policy_says_what_is_served(settings) -> None:
    with pytest.raises(NotFound, match=r"policy 'policy-v000009' is not served .*tiny, policy-v000000"):
        await run(changed(settings, after="policy-v000009"), console=QUIET)
    assert not settings.out.exists()


async def test_too_few_positions_are_said(settings) -> None:
    with pytest.raises(InvalidInput, match="500 positions asked for, 40 there"):
        await run(changed(settings, count=500), console=QUIET)


async def test_an_absent_server_is_a_peer_fault(settings) -> None:
    with pytest.raises(PeerFault, match=r"GET http://127\.0\.0\.1:9/v1/models"):
        await run(changed(settings, inference_url="http://127.0.0.1:9"), console=QUIET)


@pytest.fixture
def seen_file(positions_file: Path, tmp_path: Path) -> Path:
    """The first 20 of the 40 positions."""
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(positions_file.read_text().splitlines()[:20]) + "\n")
    return path


async def test_excluded_positions_are_not_asked(settings, seen_file: Path) -> None:
    report = await run(changed(settings, count=20, exclude=seen_file), console=QUIET)
    assert list(report["by_phase"]) == ["middlegame"]


@pytest.fixture
def games_file(tmp_path: Path) -> Path:
    """100 games of 40 random moves; a twentieth of them will be held out."""
    games, rng = [], random.Random(2)
    for _ in range(100):
        board = chess.Board()
        while board.ply() < 40 and any(board.legal_moves):
            board.push(rng.choice(list(board.legal_moves)))
        games.append(f'[Result "*"]\n\n{chess.Board().variation_san(board.move_stack)} *\n\n')
    path = tmp_path / "games.pgn"
    path.write_text("".join(games))
    return path


async def test_positions_come_from_the_data_service(settings, games_file: Path) -> None:
    with contextlib.closing(GameCollection([games_file])) as games:
        order = PositionOrder(games, shares=Shares(), split="train")
        async with serving(create_app(order, seed=0)) as url:
            asked = changed(settings, positions=None, data_url=url, count=15)
            report = await run(asked, console=QUIET)
    assert report["positions"]["count"] == 15
    assert report["positions"]["source"] == url
    assert report["positions"]["file_sha256"] is None

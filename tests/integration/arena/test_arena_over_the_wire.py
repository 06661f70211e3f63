"""The whole evaluation over real HTTP and gRPC: the real reward service, a policy server in a page."""

import contextlib
import io
import json
import random
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pytest
from fastapi import FastAPI, HTTPException, Request
from rich.console import Console

from arena.pieces import BEST, RANDOM
from arena.positions import read_jsonl
from arena.session import run
from chess_datasets.pgn.collection import GameCollection
from chess_datasets.positions.numbered import PositionOrder
from chess_datasets.positions.recipe import Shares
from rookery.clients import RewardClient, ScoreItem
from rookery.config.arena import ArenaEvaluateSettings
from rookery.config.reward import RewardSettings
from rookery.errors import InvalidInput, NotFound, PeerFault, RookeryError
from rookery.formats import FORMATS
from rookery.trace import Phase, Position
from services.data.app import create_app
from services.reward.scorer import Scorer
from services.reward.servicer import RewardServicer
from tests.boards import random_boards
from tests.format_readers import READERS
from tests.servers import one_token, serve_http, serve_reward

BEFORE, AFTER = "policy-v000000", "policy-v000001"
QUIET = Console(quiet=True)

pytestmark = pytest.mark.stockfish


@dataclass
class PolicyServer:
    """Speaks the part of vLLM's interface that the arena asks: BEFORE often errs, AFTER seldom."""

    failures: int = 0
    owner: str = "vllm"
    requests: list[dict[str, Any]] = field(default_factory=list)

    def app(self) -> FastAPI:
        app = FastAPI()
        app.get("/v1/models")(self.models)
        app.post("/v1/chat/completions")(self.complete)
        app.post("/v1/completions")(self.score)
        return app

    async def score(self, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(body)
        return one_token(body)

    async def models(self) -> dict[str, Any]:
        return {"data": [{"id": name, "owned_by": self.owner} for name in (BEFORE, AFTER)]}

    async def complete(self, request: Request) -> dict[str, Any]:
        body = await request.json()
        self.requests.append(body)
        if body["model"] not in (BEFORE, AFTER):
            raise HTTPException(404, f"no model {body['model']}")
        if self.failures:
            self.failures -= 1
            raise HTTPException(503, "warming up")
        choices = [self._choice(body, index) for index in range(body["n"])]
        return {"prompt_token_ids": [1, 2], "choices": choices}

    def _choice(self, body: dict[str, Any], index: int) -> dict[str, Any]:
        begun = body.get("continue_final_message", False)
        legal = shown_board(body["messages"][-2 if begun else -1]["content"]).legal_moves
        draw = 0 if body["temperature"] == 0 else body["seed"] + index
        rng = random.Random(f"{draw}/{body['messages']}")
        errs = rng.random() < (0.6 if body["model"] == BEFORE else 0.1)
        move = "a1a1" if errs else rng.choice(sorted(m.uci() for m in legal))
        return {
            "index": index,
            "message": {"content": f"{move}}}" if begun else f"<think>{move}</think>\\boxed{{{move}}}"},
            "token_ids": [5, 6],
            "logprobs": {"content": [{"logprob": -0.1}, {"logprob": -0.2}]},
            "finish_reason": "stop",
        }


def shown_board(prompt: str) -> chess.Board:
    """The board of a prompt in any of the position formats, also if a remark follows it."""
    for text, read in product((prompt, prompt.rpartition("\n")[0]), READERS.values()):
        with contextlib.suppress(ValueError):
            return read(text.partition("\nLegal moves")[0])
    raise AssertionError(f"no position in {prompt!r}")


@contextlib.asynccontextmanager
async def judging() -> AsyncIterator[str]:
    """The address of the real reward service, quick rather than strong."""
    async with (
        await Scorer.start(RewardSettings(engines=1, nodes=100)) as scorer,
        serve_reward(RewardServicer(scorer)) as target,
    ):
        yield target


@pytest.fixture
def policy_server() -> PolicyServer:
    return PolicyServer()


@pytest.fixture
def positions_file(tmp_path: Path) -> Path:
    """40 positions from games of random moves."""
    lines = []
    for game, board in enumerate(random_boards(40, seed=1, plies=(10, 50))):
        phase = Phase.OPENING if game < 20 else Phase.MIDDLEGAME
        position = Position(f"r:{game}:{board.ply()}", board.fen(), board.ply(), phase, f"r:{game}")
        lines.append(json.dumps(asdict(position)))
    path = tmp_path / "heldout.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
async def settings(policy_server: PolicyServer, positions_file: Path, tmp_path: Path):
    async with judging() as target, serve_http(policy_server.app()) as url:
        yield ArenaEvaluateSettings(
            players=(f"{url}#{BEFORE},style=fen", f"{url}#{AFTER},style=fen"),
            reward_target=f"dns:///{target}",
            positions=positions_file,
            count=30,
            out=tmp_path / "run",
        )


def changed(settings: ArenaEvaluateSettings, **values: Any) -> ArenaEvaluateSettings:
    return ArenaEvaluateSettings(**{**settings.model_dump(), **values})


async def test_before_and_after(settings) -> None:
    report = await run(settings, console=QUIET)
    metrics = report["sections"]["positions"]["metrics"]
    assert metrics["legal_rate"][AFTER]["difference"]["ci95"][0] > 0.2
    assert metrics["box_rate"][BEFORE]["mean"] == 1.0
    assert 0 < metrics["regret_legal"][AFTER]["mean"] < 0.5
    assert metrics["legal_rate"][RANDOM]["mean"] == metrics["action_accuracy_greedy"][BEST]["mean"] == 1.0
    assert metrics["regret_legal_greedy"][BEST]["mean"] == 0.0
    assert 0.05 < metrics["regret_legal"][RANDOM]["mean"] < 0.6
    assert metrics["legal_rate_listed"][AFTER]["mean"] > metrics["legal_rate_listed"][BEFORE]["mean"]
    assert set(metrics["mirror_consistency"]) == {BEFORE, AFTER, RANDOM, BEST}
    assert report["engine"][0].startswith("Stockfish")
    assert report["sections"]["reasoning"]["metrics"]["with_reasoning"][AFTER]["mean"] == 1.0
    gain = report["sections"]["reasoning"]["gain"]
    assert gain["gain_over_first"][AFTER]["mean"] == 0.0, "its first candidate is always its move"
    assert gain["regret_without"][AFTER]["mean"] > 0
    assert json.loads((settings.out / "report.json").read_text()) == report


async def test_changed_questions_are_paired_with_the_same_ones_as_they_are(settings) -> None:
    """AFTER draws anew whether it errs for each text, so its moves differ, but not how often it is legal."""
    report = await run(changed(settings, sections="brittleness", count=20), console=QUIET)
    section = report["sections"]["brittleness"]
    assert section["positions"] | {"left and right swapped": None} == dict.fromkeys(
        section["positions"], 20
    ) | {"left and right swapped": None}
    assert 0 < section["positions"]["left and right swapped"] < 20
    changes = section["changes"]
    assert set(changes["legal_moves/legal_change"]) == {BEFORE, AFTER}
    assert set(changes["shuffled/regret_change"]) == {BEFORE, AFTER, RANDOM, BEST}
    low, high = changes["irrelevant_sentence/legal_change"][AFTER]["ci95"]
    assert -0.5 < low < 0 < high < 0.5
    assert changes["colours_swapped/legal_change"][BEST]["mean"] == 0
    assert section["moves"]["colours_swapped/same_move"][BEST]["mean"] > 0.9
    assert section["moves"]["follows_claim"][AFTER]["mean"] == 0
    cost = report["cost"][AFTER]
    assert cost["questions"] == 8 * 20 + section["positions"]["left and right swapped"]
    assert cost["tokens"] == 2 * cost["questions"]


async def test_a_dry_run_asks_nothing_and_a_budget_stops(settings, policy_server: PolicyServer) -> None:
    dry = changed(settings, count=10, samples=0, sections="positions", dry_run=True)
    shown = io.StringIO()
    assert await run(dry, console=Console(file=shown, width=100)) == {}
    assert not policy_server.requests
    row = next(line for line in shown.getvalue().splitlines() if AFTER in line)
    assert row.split() == [AFTER, "30", "0", "at", "most", "960", "unknown"]
    limited = changed(dry, dry_run=False, budget_tokens=20)
    policy_server.owner = "somebody"
    with pytest.raises(InvalidInput, match=r"--budget-tokens: the server of .* is not vLLM"):
        await run(limited, console=QUIET)
    policy_server.owner = "vllm"
    with pytest.raises(RookeryError, match="the budget of 20 tokens is spent: the answers have 2"):
        await run(changed(limited, concurrency=1), console=QUIET)
    asked = len(policy_server.requests)
    assert asked == 10
    report = await run(changed(limited, budget_tokens=None), console=QUIET)
    assert report["cost"][AFTER]["questions"] == 30
    assert len(policy_server.requests) == 2 * 30
    with pytest.raises(
        RookeryError, match=r"the budget of 1e-09 minutes is spent: the same command continues"
    ):
        await run(changed(dry, dry_run=False, budget_minutes=1e-9, seed=1), console=QUIET)


async def test_all_players_are_asked_alike(settings, policy_server: PolicyServer) -> None:
    await run(changed(settings, count=10), console=QUIET)
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
    assert len({row[3] for row in asked[AFTER]}) == 2 * 10  # as they are, and mirrored


async def test_position_formats_stand_side_by_side(settings) -> None:
    report = await run(changed(settings, styles=True, count=5, samples=0), console=QUIET)
    styles = report["sections"]["positions"]["styles"]
    assert {name.partition("/")[0] for name in styles} == set(FORMATS)
    assert all({BEFORE, AFTER} <= set(row) <= {BEFORE, AFTER, RANDOM, BEST} for row in styles.values() if row)


async def test_the_same_evaluation_gives_the_same_report(settings, tmp_path: Path) -> None:
    reports = [await run(changed(settings, count=10, out=tmp_path / name), console=QUIET) for name in "ab"]
    for costs in (report["cost"].values() for report in reports):
        assert all(cost.pop("seconds_a_question") > 0 for cost in costs)
    assert reports[0] == reports[1]


async def test_a_model_that_reasons_is_asked_not_to_with_its_own_empty_marks(
    settings, policy_server: PolicyServer
) -> None:
    """Else it may reason in the box: after `\\boxed{` alone, rook-small goes on as after `<think>`."""
    await run(changed(settings, count=5), console=QUIET)
    begun = {
        body["messages"][-1]["content"]
        for body in policy_server.requests
        if body.get("continue_final_message")
    }
    assert begun == {"<think></think>\\boxed{"}


async def test_the_influence_of_a_candidate_is_that_of_a_plain_softmax_over_legal_moves(settings) -> None:
    """The only candidate is the move itself, so without it there is nothing left. Another position's text is
    as long, so the placebo changes nothing."""
    settings = changed(settings, count=5, sections="influence")
    report = await run(settings, console=QUIET)
    section = report["sections"]["influence"]
    metrics = {name: cells[AFTER]["mean"] for name, cells in section["metrics"].items()}
    assert metrics["parts"] == 1.0
    assert metrics["gain_over_placebo"] == pytest.approx(0.0)
    for answer in section["answers"][AFTER]:
        assert [part["regret"] for part in answer["parts"]] == pytest.approx([answer["gain_over_none"]])

    positions = {p.id: p for p in read_jsonl(settings.positions)}
    async with judging() as target, RewardClient(f"dns:///{target}") as reward:
        told = section["answers"][AFTER][0]
        fen = positions[told["position"]].fen
        moves = [move.uci() for move in chess.Board(fen).legal_moves]
        verdicts = await reward.score([ScoreItem(fen, f"\\boxed{{{move}}}") for move in moves])

    def expected_regret(beginning: str) -> float:
        length = 2 + len(beginning) + len("\\boxed{")
        costs = np.array([sum((ord(c) - 97) * (length + i) for i, c in enumerate(m)) for m in moves])
        weights = np.exp(-(costs - costs.min()) / 50)
        return float(weights @ [verdict.regret for verdict in verdicts] / weights.sum())

    gain = expected_regret("<think></think>") - expected_regret("<think>a1a1</think>")
    assert told["gain_over_none"] == pytest.approx(gain)


async def test_a_second_evaluation_asks_nothing_again(settings, policy_server: PolicyServer) -> None:
    settings = changed(settings, count=10)
    first = await run(settings, console=QUIET)
    asked = len(policy_server.requests)
    second = await run(changed(settings, against=(settings.out / "report.json",)), console=QUIET)
    assert len(policy_server.requests) == asked
    beside = second["sections"].pop("against/run")["figures"]["positions/metrics/legal_rate"]
    assert beside[f"{AFTER} (run)"] == {k: beside[AFTER][k] for k in ("mean", "ci95")}
    assert first["sections"] == second["sections"]
    await run(changed(settings, seed=settings.seed + 1, count=5), console=QUIET)
    assert len(policy_server.requests) > asked


async def test_players_asked_one_after_the_other_make_one_report(
    settings, policy_server: PolicyServer, tmp_path: Path
) -> None:
    """Each has a server of its own, which is gone when the next is asked."""
    players = tuple(f"{player},source={number}" for number, player in enumerate(settings.players))
    settings = changed(settings, count=10, players=players)
    gone = []
    for player in players:
        async with serve_http(policy_server.app()) as url:
            gone.append(f"{url}#{player.partition('#')[2]}")
            assert await run(changed(settings, players=gone[-1:], ask_only=True), console=QUIET) == {}
    assert not (settings.out / "report.json").exists()
    apart = await run(changed(settings, players=gone), console=QUIET)
    together = await run(changed(settings, out=tmp_path / "other"), console=QUIET)
    assert apart["sections"] == together["sections"]


async def test_a_server_that_hiccups_is_asked_again(settings, policy_server: PolicyServer) -> None:
    policy_server.failures = 1
    await run(changed(settings, count=5, ask_only=True), console=QUIET)
    # Greedy, sampled, mirrored, with the legal moves, without reasoning.
    assert len(policy_server.requests) == 2 * 5 * 5 + 1


async def test_an_unknown_policy_is_said(settings) -> None:
    unknown = settings.players[1].replace(AFTER, "policy-v000009")
    with pytest.raises(NotFound, match=r"policy-v000009"):
        await run(changed(settings, players=(unknown,)), console=QUIET)


async def test_two_players_with_one_name_are_refused(settings) -> None:
    with pytest.raises(InvalidInput, match="two players have the same name"):
        await run(changed(settings, players=("random", "random")), console=QUIET)


async def test_too_few_positions_are_said(settings) -> None:
    with pytest.raises(InvalidInput, match="500 positions were asked for, but there are only 40"):
        await run(changed(settings, count=500), console=QUIET)


async def test_an_absent_server_is_a_peer_fault(settings) -> None:
    with pytest.raises(PeerFault, match=r"http://127\.0\.0\.1:9/v1"):
        await run(changed(settings, players=("http://127.0.0.1:9#policy",), count=1), console=QUIET)


@pytest.fixture
def seen_file(positions_file: Path, tmp_path: Path) -> Path:
    """The first 20 of the 40 positions."""
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(positions_file.read_text().splitlines()[:20]) + "\n")
    return path


async def test_excluded_positions_are_not_asked(settings, seen_file: Path) -> None:
    report = await run(changed(settings, count=20, samples=1, exclude=seen_file), console=QUIET)
    parts = {name.partition("/")[0] for name in report["sections"]["positions"]["parts"]}
    assert parts == {"middlegame", "white to move", "black to move"}


@pytest.fixture
def games_file(tmp_path: Path) -> Path:
    """100 games of 40 random moves; a twentieth of them will be held out."""
    boards = random_boards(100, seed=2, plies=(40, 40))
    games = [f'[Result "*"]\n\n{chess.Board().variation_san(board.move_stack)} *\n\n' for board in boards]
    path = tmp_path / "games.pgn"
    path.write_text("".join(games))
    return path


async def test_positions_come_from_the_data_service(settings, games_file: Path) -> None:
    with contextlib.closing(GameCollection([games_file])) as games:
        order = PositionOrder(games, shares=Shares(), split="train")
        async with serve_http(create_app(order, seed=0)) as url:
            asked = changed(settings, positions=None, data_url=url, count=15, samples=1)
            report = await run(asked, console=QUIET)
    assert report["positions"]["count"] == 15
    assert report["positions"]["source"] == url
    assert report["positions"]["file_sha256"] is None

"""A data set of P: and A: lines on its whole way: feed, rollouts, reward and a training step; whole games.

Only the inference server is a stand-in, which answers as it is told. `tests/e2e` has the real one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import chess
import pytest
from fastapi import FastAPI, Request

from rookery.clients import RewardClient
from rookery.config.data import FeedSettings
from rookery.config.reward import RewardSettings
from rookery.config.rollouts import RolloutsSettings
from rookery.rookworld import policy_prompt, state_answer
from rookery.rookworld_env import step
from rookery.streams import Entry, RunStreams
from rookery.trace import TraceGroup
from services.data.feed import Feed, numbered_positions
from services.inference.rollouts.group_generator import GroupGenerator
from services.inference.rollouts.peers import Peers
from services.reward.scorer import Scorer
from services.reward.servicer import RewardServicer
from services.trainer.batches.rows import Row, make_rows
from tests.builders import numbered_position, read
from tests.gpt2 import rookworld_lines, write_rookworld_model
from tests.integration.rollouts.conftest import START
from tests.integration.rollouts.standins import Inference, playing
from tests.servers import serve_http, serve_reward
from tests.waiting import eventually

pytestmark = [pytest.mark.redis, pytest.mark.stockfish, pytest.mark.torch]

pytest.importorskip("torch")

LINES = [line for line in rookworld_lines(12) if "+1.0+" not in line][:8]
WRONG = f"{START}+0.001+0+0"
SIZE = 4


def right_answer(prompt: str) -> str:
    """The answer of the data set, whatever the padding of the question."""
    for line in LINES:
        question = line[: line.index("M:")] if line.startswith("P:") else "+".join(line.split("+")[:3]) + "+"
        if question.split() == prompt.split():
            return line[len(question) :]
    raise AssertionError(f"not asked for: {prompt!r}")


def answering(inference: Inference, encode: Callable[[str], list[int]]) -> FastAPI:
    app = inference.app()

    @app.post("/v1/completions")
    async def complete(request: Request) -> dict:
        body = await request.json()
        texts = [right_answer(body["prompt"]), WRONG, "M: nothing", right_answer(body["prompt"])]
        choices = [
            {
                "index": i,
                "finish_reason": "stop",
                "text": text,
                "prompt_token_ids": encode(body["prompt"]),
                "token_ids": (ids := encode(text)),
                "logprobs": {"token_logprobs": [-5.0] * len(ids)},
            }
            for i, text in enumerate(texts)
        ]
        return {"choices": choices}

    return app


async def _generated(
    streams: RunStreams,
    entries: list[Entry],
    app: FastAPI,
    *,
    settings: RolloutsSettings,
    stockfish: str,
) -> list[TraceGroup]:
    """The groups of entries, by this app and the real reward service."""
    reward = RewardSettings(engine_path=Path(stockfish), engines=1)
    async with (
        await Scorer.start(reward) as scorer,
        serve_http(app) as url,
        serve_reward(RewardServicer(scorer)) as target,
    ):
        stopping, changed = asyncio.Event(), asyncio.Event()
        peers = Peers(url, RewardClient(target), changed=changed)
        watching = asyncio.create_task(peers.watch(stopping))
        await eventually(lambda: not peers.unavailable_reason())
        rollouts = GroupGenerator(settings, peers)
        groups = [await rollouts.generate(entry, streams.positions) for entry in entries]
        stopping.set()
        await watching
        await rollouts.players.close()
        await peers.close()
    return groups


async def test_whole_games_are_played_judged_and_trained_on_as_one_row_each(
    streams: RunStreams, stockfish_path: str
) -> None:
    """Each turn with its own verdict; the text of a game grows, so a game is one conversation."""
    spec = "game,opponent=engine,blunders=0.5,plies=8"
    played = [replace(numbered_position(n), episode=spec) for n in range(2)]
    streams.positions.add(played, cursor=0)
    entries = read(streams.positions, 2)
    settings = RolloutsSettings(run="test", style="game-uci", group_size=SIZE, seed=7)
    app = playing(Inference())
    how = {"settings": settings, "stockfish": stockfish_path}
    groups = await _generated(streams, entries, app, **how)
    for group in groups:
        for trace in group.traces:
            board = chess.Board()
            for turn in trace.turns:
                assert group.prompt_of(turn).fen == board.fen()
                assert turn.verdict is not None
                assert turn.verdict.move is not None
                assert turn.verdict.regret is not None
                assert turn.continues == (turn is not trace.turns[0])
                board.push_uci(turn.verdict.move.uci)
                if said := turn.observation.partition(":")[0]:
                    board.push_san(said)
            result = trace.turns[-1].rewards["result"]
            assert trace.reward == pytest.approx(result + sum(turn.verdict.reward for turn in trace.turns))
            assert board.ply() == 8 or board.is_game_over()
        assert len({str(trace.turns) for trace in group.traces}) == SIZE
        values = [[0.0] * len(group.turns)]
        rows = make_rows([group], values, version=0, mask_truncated=False, row_tokens=1)
        assert len(rows) == SIZE
        lines = [bytes(tokens).decode().splitlines() for tokens in map(_tokens, rows)]
        assert {len(moves) - 1 for moves in lines} <= {7, 8}
    first, *further = streams.positions.turns(entries[0].id)
    assert len(first[0].traces) == SIZE
    assert [len(turn.traces) for turn, _ in further] == [1] * 2 * SIZE, "the last turns come with the group"
    how["settings"] = settings.model_copy(update={"style": "mover-squares"})  # what was begun keeps its own
    again = await _generated(streams, entries, app, **how)
    assert [group.traces for group in again] == [group.traces for group in groups], "from the stored turns"


async def test_games_are_played_against_engines_versions_and_oneself(
    streams: RunStreams, stockfish_path: str
) -> None:
    """In half of the games of a group, the policy has the colour that is not to move."""
    specs = [
        "stockfish,nodes=20,skill=1,colours=both",
        f"uci:{stockfish_path},depth=1",
        "policy,every=3",
        "self",
    ]
    played = [
        replace(numbered_position(n), episode=f"game,plies=6,opponent={spec}") for n, spec in enumerate(specs)
    ]
    streams.positions.add(played, cursor=0)
    entries = read(streams.positions, len(specs))
    settings = RolloutsSettings(run="test", style="game-uci", group_size=SIZE, seed=7)
    inference = Inference(version=5)
    how = {"settings": settings, "stockfish": stockfish_path}
    groups = await _generated(streams, entries, playing(inference), **how)
    engine, uci, policy, self_play = groups
    assert [[turn.role for turn in trace.turns] for trace in engine.traces] == [
        ["white"] * 3, ["black"] * 3,
    ] * 2  # fmt: skip
    assert [trace.turns[0].prompt is None for trace in engine.traces] == [True, False] * 2
    assert {len(trace.turns) for trace in (*uci.traces, *policy.traces)} == {3}
    assert inference.leased == [3]
    assert {body["model"] for body in inference.requests} == {"policy-v000005", "policy-v000003"}
    for trace in self_play.traces:
        assert [turn.role for turn in trace.turns] == ["white", "black"] * 3
        assert [turn.rewards for turn in trace.turns] == [{}] * 4 + [{"result": 0.5}] * 2
        assert [turn.continues for turn in trace.turns] == [False, *[True] * 5]
    inference.retired = {3}  # a lease that ended, with a game in progress
    (again,) = await _generated(streams, [entries[2]], playing(inference), **how)
    assert {len(trace.turns) for trace in again.traces} == {3}


def _tokens(row: Row) -> list[int]:
    return [*row.prompt_ids, *(t for c in row.completions for t in (*(c.context or ()), *c.token_ids))]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_rookworld_model(tmp_path / "model", n_layer=1)


async def test_a_line_is_asked_judged_by_its_answer_and_learned(
    streams: RunStreams, model: Path, tmp_path: Path, stockfish_path: str
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES))
    settings = FeedSettings(task="rookworld", sources=str(file), depth=len(LINES))
    with numbered_positions(settings) as position:
        Feed(streams, position, seed=0, depth=settings.depth).top_up()
    entries = read(streams.positions, len(LINES))
    app = answering(Inference(), lambda text: tokenizer(text)["input_ids"])
    settings = RolloutsSettings(run="test", style="rookworld", group_size=SIZE, max_tokens=144, seed=7)
    groups = await _generated(streams, entries, app, settings=settings, stockfish=stockfish_path)
    assert {group.position.task for group in groups} == {"P", "A"}
    for group in groups:
        _check(group)
    _learns(groups, model, tmp_path)


def _check(group: TraceGroup) -> None:
    assert group.position.target
    assert all(version.startswith("target-1/") for version in group.reward_versions)
    assert all(trace.verdict.engine.nodes == 0 for trace in group.traces)
    right, wrong, nonsense, again = group.rewards
    assert right == again == pytest.approx(1.0), "even where the engine would disagree with the label"
    assert nonsense == -0.3
    if group.position.task == "A":
        assert -0.3 < wrong < 1.0
        truth = state_answer(step(group.position.fen, group.position.move).answer)
        assert group.position.target == truth
    else:
        assert wrong == -0.3
        assert group.prompt.messages[0].content == policy_prompt(group.position.fen)


def _learns(groups: list[TraceGroup], model: Path, folder: Path) -> None:
    """After some steps, the right answers are likelier, and the others are not."""
    import torch

    from rookery.config.trainer import TrainerSettings
    from services.trainer.batches.micro_batches import collate
    from services.trainer.batches.rows import make_rows
    from services.trainer.model.policies import build_policy
    from services.trainer.training.step import RunningState, train_step

    settings = TrainerSettings(
        model=model, run_dir=folder, device="cpu", lora_rank=0, warmup_steps=0, kl_report_every=0
    )
    policy = build_policy(settings)

    def likelihoods() -> dict[int, float]:
        none = [[0.0] * SIZE] * len(groups)
        rows = make_rows(groups, none, version=0, mask_truncated=False, row_tokens=9999)
        found: dict[int, float] = {}
        for row in rows:
            batch = collate([row])
            with torch.no_grad():
                logprobs = policy.score(batch).logprobs_N
            for slot in range(SIZE):
                found[slot] = found.get(slot, 0.0) + logprobs[batch.completion_N == slot].mean().item()
        return found

    before = likelihoods()
    optimizer = torch.optim.AdamW(policy.parameters, lr=1e-3)
    for number in range(4):
        train_step(policy, optimizer, groups, step=number, settings=settings, state=RunningState())
    after = likelihoods()
    assert after[0] - before[0] > max(0.0, after[2] - before[2])

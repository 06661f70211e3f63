"""Each bridge against the published package of its trainer, and a real reward service.

`make trainers` installs the packages. verifiers runs its harnesses with uv, which is not among them.
"""

import asyncio
import gc
import json
import pickle
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from rookery.trace import Verdict
from rookery_bridges import Answer, RewardClient, RewardFault
from rookery_bridges.questions import read_questions
from tests.conftest import ROOT, TRAINERS
from tests.episodes import Played, highest, play
from tests.processes import serving
from tests.servers import serve_http

# Other projects' warnings are not ours to fix.
pytestmark = [pytest.mark.stockfish, pytest.mark.filterwarnings("ignore")]

PAGE = ROOT / "docs" / "bridges.md"
FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
BEST, ILLEGAL = "\\boxed{Nxg5}", "\\boxed{Ke5}"


@pytest.mark.trainers
async def test_verl() -> None:
    """verl's own reward manager, with the function that it loads from the settings on the page."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    settings = re.findall(r"reward\.custom_reward_function\.\S+=[\w:/.]+", PAGE.read_text())
    config = OmegaConf.from_dotlist(
        [*settings, "reward.reward_manager.source=register", "reward.reward_manager.name=naive"]
    )
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "rook-tiny")
    manager = load_reward_manager(config, tokenizer)
    best_by = json.dumps({"fen": FEN, "scheme": "best"})
    for answer, truth, expected in (("f3g5", FEN, 0.0), ("a1a1", FEN, -1.2), ("f3g5", best_by, 1.0)):
        ids = torch.tensor([tokenizer.encode(f"\\boxed{{{answer}}}", add_special_tokens=False)])
        tensors = TensorDict({"responses": ids, "attention_mask": torch.ones_like(ids)}, batch_size=1)
        told: dict[str, Any] = {"ground_truth": truth}
        row = {"data_source": "chess", "reward_model": told, "extra_info": {}}
        others = {name: np.array([value], dtype=object) for name, value in row.items()}
        result = await manager.run_single(DataProto(tensors, others))
        legal = float(answer == "f3g5")
        assert result == {"reward_score": expected, "reward_extra_info": {"score": expected, "legal": legal}}
        told["ground_truth"] = "no position"
        with pytest.raises(RewardFault, match="422"):
            await manager.run_single(DataProto(tensors, others))


@pytest.mark.trainers
@pytest.mark.vllm  # which TRL imports; no server starts
async def test_async_grpo(reward_url: str) -> None:
    """How `AsyncGRPOTrainer` asks for rewards: by its own code, with functions that were pickled."""
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_rollout_worker import (
        RolloutGroup,
        TrainingSequence,
        _AsyncRolloutLoop,
    )
    from trl.trainer.utils import get_callable_name

    from rookery_bridges.trl import components, reward

    texts = ["\\boxed{Nxg5}", "\\boxed{Ke5}"]
    group = RolloutGroup(
        prompts=[[{"role": "user", "content": "?"}]] * 2,
        reward_kwargs={"fen": [FEN] * 2, "id": ["a"] * 2},
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        completions_ids=[[1], [2]],
        completions_sequences=[[TrainingSequence([1, 2], [0, 1], [0.0, -1.0], "r")]] * 2,
        tool_call_counts=[0, 0], tool_failure_counts=[0, 0], model_version=0, group_id=0,
        env_rewards=[None] * 2, rollout_rewards=[None] * 2,
    )  # fmt: skip
    PartialState(cpu=True)  # as the worker's process does first, for TRL's logger
    loop = object.__new__(_AsyncRolloutLoop)  # without a tokenizer, a data set and queues
    loop._env_reward_types = []
    for functions in ([reward], components("delta+0.1*candidates")):
        loop.reward_funcs = pickle.loads(pickle.dumps(functions))  # as `AsyncRolloutWorker.start` does
        loop.reward_func_names = [get_callable_name(function) for function in functions]
        best, illegal = await loop._score_group(group)
        assert best.metrics["reward"] > illegal.metrics["reward"]
        assert best.advantage > 0 > illegal.advantage
    assert best.metrics.keys() >= {"rewards/delta", "rewards/candidates"}
    group.reward_kwargs["fen"] = ["no position"] * 2
    with pytest.raises(RewardFault, match="422"):
        await loop._score_group(group)


async def test_the_client_from_async_code() -> None:
    answers = [Answer(FEN, BEST), Answer(FEN, ILLEGAL)]
    together = await asyncio.gather(*(RewardClient().ascore(answers) for _ in range(3)))
    assert together == [RewardClient().score(answers)] * 3
    assert [verdict.legal for verdict in together[0]] == [True, False]


@pytest.mark.trainers
def test_skyrl() -> None:
    import skyrl_gym

    skyrl_gym.register(id="rookery", entry_point="rookery_bridges.skyrl:ChessEnv")
    for answer, scheme, expected in ((BEST, "", 0.0), (ILLEGAL, "", -1.2), (BEST, "best", 1.0)):
        extras = {"reward_spec": {"ground_truth": FEN}}
        env = skyrl_gym.make("rookery", env_config={"scheme": scheme}, extras=extras)
        prompt = [{"role": "user", "content": "?"}]
        assert env.init(prompt)[0] == prompt
        step = env.step(answer)
        assert (step["reward"], step["done"], step["observations"]) == (expected, True, [])
        assert env.get_metrics() == {"legal": float(answer == BEST)}


def _call(status: int) -> SimpleNamespace:
    """A call of the model that failed, as a trace of verifiers has it."""
    return SimpleNamespace(error=SimpleNamespace(status_code=status, message=f"status {status}"))


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Destroys what a test leaves behind, such as open streams: later tests would fail on their warnings."""
    yield
    gc.collect()


@pytest.mark.trainers
def test_openenv(questions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOKERY_QUESTIONS", str(questions))
    from fastapi.testclient import TestClient

    from rookery_bridges import openenv

    first = next(read_questions(questions))
    with TestClient(openenv.app).websocket_connect("/ws") as ws:

        def ask(kind: str, **data: object) -> dict[str, object]:
            ws.send_text(json.dumps({"type": kind, "data": data}))
            return json.loads(ws.receive_text())["data"]

        begun = ask("reset", seed=8)
        assert begun["observation"]["fen"] == first.fen
        assert begun["observation"]["prompt"] == first.prompt
        ended = ask("step", response="\\boxed{a1a1}")
        assert (ended["done"], ended["reward"], ended["observation"]["outcome"]) == (True, -1.2, "illegal")
        assert "call reset" in json.dumps(ask("step", response="\\boxed{e4}"))
        ws.send_text(json.dumps({"type": "state"}))
        assert json.loads(ws.receive_text())["data"]["step_count"] == 1


@pytest.mark.trainers
async def test_openenv_plays_episodes(reward_url: str) -> None:
    """By its own client, at its own server: the game of our environment, and tools."""
    from openenv import GenericEnvClient

    from rookery_bridges import openenv

    spec = "game,opponent=random,colours=both,plies=8"
    own = await play(spec, FEN, judge_at(reward_url), seed=3, slot=1)
    async with serve_http(openenv.app) as url, GenericEnvClient(base_url=url) as client:
        result = await client.reset(seed=3, slot=1, episode=spec, fen=FEN)
        turns = []
        while not result.done:
            shown = result.observation
            answer = highest(shown["fen"])
            result = await client.step({"response": answer})
            turns.append(
                Played(
                    shown["prompt"][-1]["content"],
                    answer,
                    result.observation["observation"],
                    result.reward,
                )
            )
        assert len(turns) == 4
        assert turns == own
        assert (await client.state())["step_count"] == 4
        with pytest.raises(RuntimeError, match="call reset"):
            await client.step({"response": BEST})
        await client.reset(episode="tools", fen=FEN)
        result = await client.step({"response": "<tool>after Nxg5</tool>"})
        assert "Black to move" in result.observation["prompt"][-1]["content"]
        result = await client.step({"response": BEST})
        assert (result.done, result.reward) == (True, 0.0)
        with pytest.raises(RuntimeError, match="opponent=self plays in rollouts alone"):
            await client.reset(episode="game,opponent=self", fen=FEN)


def judge_at(reward_url: str) -> Callable[[str, str], Awaitable[Verdict]]:
    async def judge(fen: str, response: str) -> Verdict:
        async with httpx.AsyncClient(base_url=reward_url) as http:
            answered = await http.post("/v1/score", json={"fen": fen, "response": response})
        return TypeAdapter(Verdict).validate_json(answered.content)

    return judge


@pytest.mark.trainers
async def test_tinker() -> None:
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.rl.types import Trajectory
    from transformers import AutoTokenizer

    from rookery_bridges.questions import Question
    from rookery_bridges.tinker import ChessGroup

    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "rook-tiny")
    renderer = get_renderer("role_colon", tokenizer)
    group = ChessGroup(Question("q", [{"role": "user", "content": "RN"}], FEN), renderer, size=2)
    envs = await group.make_envs()
    observation, stop = await envs[0].initial_observation()
    assert observation.length > 0
    assert stop
    # rook-tiny writes boxes token by token; the words of this answer are in its vocabulary.
    for env, answer in zip(envs, ("\\boxed{f3g5}", "\\boxed{a1a1}"), strict=True):
        result = await env.step(tokenizer.encode(answer, add_special_tokens=False))
        assert result.episode_done
    rewards = await group.compute_group_rewards([Trajectory([], observation)] * 2, envs)
    assert rewards == [(0.0, {"legal": 1.0}), (-1.2, {"legal": 0.0})]


@pytest.mark.trainers
async def test_tinker_keeps_the_reasoning_that_a_renderer_splits_off() -> None:
    from tinker_cookbook.renderers import get_renderer
    from tinker_cookbook.renderers.base import ParseTermination, TextPart, ThinkingPart
    from transformers import AutoTokenizer

    from rookery_bridges.questions import Question
    from rookery_bridges.tinker import ChessEnv

    renderer = get_renderer("role_colon", AutoTokenizer.from_pretrained(ROOT / "models" / "rook-tiny"))
    parts = [ThinkingPart(type="thinking", thinking="e4?"), TextPart(type="text", text=" \\boxed{e4}")]
    message = {"role": "assistant", "content": parts}
    renderer.parse_response = lambda tokens: (message, ParseTermination.STOP_SEQUENCE)
    env = ChessEnv(Question("q", [], FEN), renderer)
    await env.step([])
    assert env.answer == "<think>e4?</think> \\boxed{e4}"


@pytest.mark.trainers
@pytest.mark.uv
def test_verifiers(questions: Path, endpoint_url: str, answers: dict[str, str], tmp_path: Path) -> None:
    """verifiers' own evaluation: the taskset by its name, a harness, an endpoint, and the traces."""
    first, second = list(read_questions(questions))[:2]
    best = RewardClient().score([Answer(first.fen, f"\\boxed{{{_any_move(first.fen)}}}")])[0].best
    answers[first.prompt[-1]["content"]] = f"\\boxed{{{best}}}"
    assert _evaluate(questions, endpoint_url, "stub", tmp_path) == {first.id: 0.0, second.id: -1.5}


@pytest.mark.trainers
@pytest.mark.uv
def test_verifiers_plays_games(
    questions: Path, reward_url: str, endpoint_url: str, answers: dict[str, str], tmp_path: Path
) -> None:
    """With both colours, as our environment does."""
    expected, spec = {}, "game,opponent=random,colours=both,history=growing,plies=4"
    for number, question in enumerate(list(read_questions(questions))[:2]):
        own = asyncio.run(play(spec, question.fen, judge_at(reward_url), seed=number, slot=number % 2))
        answers |= {turn.asked: turn.answer for turn in own}
        assert len(own) == 2
        expected[question.id] = pytest.approx(sum(turn.reward for turn in own))
    played = _evaluate(questions, endpoint_url, "stub", tmp_path, "--env.taskset.episode", spec)
    assert played == expected


@pytest.mark.trainers
@pytest.mark.parametrize(
    ("history", "left", "fault"),
    [
        ("growing", {"stop_condition": "max_total_tokens"}, None),
        ("growing", {"calls": [_call(400)]}, None),
        ("growing", {"calls": [_call(503)]}, "without an answer: status 503"),
        ("growing", {"stop_condition": "agent_timeout", "is_timeout": True}, "an answer: agent_timeout"),
        ("growing", {"errors": [SimpleNamespace(message="died")]}, "an answer: died"),
        ("growing", {}, "an answer: the model was not asked"),
        ("afresh", {}, "needs history=growing"),
    ],
)
async def test_a_conversation_of_verifiers_that_ends_early_or_does_not_grow(
    history: str, left: dict[str, object], fault: str | None
) -> None:
    """A stand-in for the agent, which answers once. A limit ends the game, a fault is no reward."""
    from verifiers.v1 import AssistantMessage, Segment

    from rookery_bridges.questions import first_request
    from rookery_bridges.verifiers import ChessData, ChessEnv, ChessTask

    segments = [Segment([AssistantMessage(content=BEST)]), Segment([], terminated=True)]
    metrics: dict[str, float] = {}
    trace = SimpleNamespace(
        **{"info": {}, "errors": [], "calls": [], "stop_condition": None, "is_timeout": False} | left,
        record_metrics=metrics.update,
    )

    async def turn(news: list[dict[str, str]]) -> Segment:
        return segments.pop(0)

    agent = SimpleNamespace(interaction=lambda task: nullcontext(SimpleNamespace(turn=turn, trace=trace)))
    begin = first_request(f"game,opponent=random,history={history}", number=0, fen=FEN)
    running = ChessEnv.run(None, ChessTask(ChessData(fen=FEN, episode=begin)), SimpleNamespace(agent=agent))
    if fault:
        with pytest.raises(RewardFault, match=fault):
            await running
        assert trace.info == {}
    else:
        await running
        assert trace.info.pop("end").endswith("1/2-1/2, context limit")
        assert trace.info == {"reward": 0.5}
        assert metrics == {"turns": 1, "result": 0.5}


@pytest.mark.trainers
async def test_verifiers_judge_the_reasoning_that_prime_rl_splits_off() -> None:
    from verifiers.v1 import AssistantMessage

    from rookery_bridges.verifiers import ChessData, ChessTask, ChessTaskConfig

    message = AssistantMessage(content=BEST, reasoning_content="The queen hangs.")
    trace = SimpleNamespace(last_reply=BEST, assistant_messages=[message], record_metric=lambda *metric: None)
    task = ChessTask(ChessData(fen=FEN), ChessTaskConfig(scheme="delta+0.5*format"))
    assert await task.reward(trace) == 0.5


@pytest.mark.trainers
@pytest.mark.uv
@pytest.mark.vllm
def test_verifiers_with_our_server(questions: Path, tmp_path: Path) -> None:
    command = ("services.inference.server", "--no-follow", "--adapter-root", tmp_path)
    with serving(*command, log=tmp_path / "log") as url:
        rewards = _evaluate(questions, f"{url}/v1", "rook-tiny", tmp_path)
    assert len(rewards) == 2
    assert all(reward in (-1.2, -1.5) or -1.0 <= reward <= 0.0 for reward in rewards.values())


def _evaluate(questions: Path, endpoint_url: str, model: str, folder: Path, *flags: str) -> dict[str, float]:
    """The rewards of the first two questions by id, from the traces of verifiers' evaluation."""
    two = folder / "questions.jsonl"  # a process for each rollout
    two.write_text("".join(questions.read_text().splitlines(keepends=True)[:2]))
    command = [str(TRAINERS / "bin" / "vf-eval"), "rookery-chess", "-m", model, "--no-push"]
    command += ["--env.taskset.questions", str(two), "--env.agent.harness.id", "null", "--no-rich"]
    command += ["--env.agent.runtime.type", "subprocess", "--client.base-url", endpoint_url]
    command += ["--client.api-key-var", "PATH", "-o", str(folder / "out"), *flags]
    subprocess.run(command, check=True, cwd=folder, timeout=200, capture_output=True)
    [file] = (folder / "out").glob("*/traces.jsonl")
    traces = [json.loads(line)["traces"][0] for line in file.read_text().splitlines()]
    assert not any(trace["errors"] for trace in traces), traces
    return {trace["task"]["data"]["id"]: trace["rewards"]["reward"]["score"] for trace in traces}


def _any_move(fen: str) -> str:
    import chess

    return next(iter(chess.Board(fen).legal_moves)).uci()


@pytest.mark.trainers
def test_inspect(
    questions: Path,
    lines: Path,
    puzzles: Path,
    brittleness: Path,
    endpoint_url: str,
    answers: dict[str, str],
    tmp_path: Path,
) -> None:
    from inspect_ai import eval as evaluate

    from rookery_bridges import inspect_ai

    solved = list(read_questions(puzzles))
    for question in solved[:-1]:
        answers[question.prompt[-1]["content"]] = question.solution
    answers |= _right_lines(lines)
    tasks = [inspect_ai.legality(str(questions)), inspect_ai.lines(str(lines))]
    tasks.append(inspect_ai.puzzles(str(puzzles)))
    model = {"model": "openai-api/local/stub", "model_base_url": endpoint_url, "model_args": {"api_key": "-"}}
    tasks.append(inspect_ai.chessqa_task(str(chessqa_file(tmp_path, answers))))
    tasks.append(inspect_ai.brittleness(str(brittleness)))
    answers |= _unsteady(brittleness)
    legality, well_formed, right, qa, changed = evaluate(
        tasks, **model, log_dir=str(tmp_path), display="none"
    )
    assert qa.results.scores[0].metrics["mean"].value == 0.5
    for log in (legality, well_formed, right, qa, changed):
        assert log.status == "success", log.error
    metrics = {name: metric.value for name, metric in changed.results.scores[0].metrics.items()}
    assert [metrics[name] for name in ("mean", "legal_change", "same_move")] == pytest.approx(UNSTEADY)
    values = {score.name: score.metrics["mean"].value for score in legality.results.scores}
    assert values == {"reward": -1.5, "legal": 0.0}
    values = {score.name: score.metrics["mean"].value for score in well_formed.results.scores}
    assert values["legal"] == 0.5
    assert -0.15 < values["reward"] <= 0.35
    metrics = {name: metric.value for name, metric in right.results.scores[0].metrics.items()}
    assert metrics["mean"] == pytest.approx((len(solved) - 1) / len(solved))
    assert metrics["solved"] == pytest.approx(2 / 3)


@pytest.mark.trainers
def test_inspect_judges_the_reasoning_that_it_splits_off() -> None:
    from inspect_ai.model import ChatMessageAssistant, ContentReasoning, ContentText, ModelOutput

    from rookery_bridges import inspect_ai
    from rookery_bridges.questions import Question

    contents = {
        "<think>Why?</think>": [ContentReasoning(reasoning="Why?"), ContentText(text=BEST)],
        "<think></think>": [ContentReasoning(reasoning=""), ContentText(text=BEST)],
        "": BEST,
    }
    for before, content in contents.items():
        output = ModelOutput.from_message(ChatMessageAssistant(content=content))
        state = SimpleNamespace(output=output, metadata=asdict(Question("q", [], FEN)))
        assert inspect_ai._answer(state) == Answer(FEN, before + BEST)


@pytest.mark.trainers
def test_lm_eval(
    questions: Path,
    lines: Path,
    puzzles: Path,
    brittleness: Path,
    endpoint_url: str,
    answers: dict[str, str],
    tmp_path: Path,
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    solved = list(read_questions(puzzles))
    first = "\n\n".join(turn["content"] for turn in solved[0].prompt)
    answers[first] = solved[0].solution
    model = {"model": "stub", "base_url": f"{endpoint_url}/chat/completions", "tokenizer_backend": "none"}
    include = str(ROOT / "bridges" / "rookery_bridges" / "lm_eval_tasks")
    told = {}
    answers |= _right_lines(lines)
    sets = {"rookery_legality": questions, "rookery_lines": lines, "rookery_puzzles": puzzles}
    sets["rookery_chessqa"] = chessqa_file(tmp_path, answers)
    sets["rookery_brittleness"] = brittleness
    answers |= _unsteady(brittleness)
    for task, path in sets.items():
        manager = TaskManager(include_path=include, include_defaults=False, metadata={"questions": str(path)})
        chats = {
            "bootstrap_iters": 0,
            "model": "local-chat-completions",
            "model_args": model,
            "apply_chat_template": True,
        }
        told |= simple_evaluate(tasks=[task], task_manager=manager, **chats)["results"]
    assert told["rookery_legality"]["reward,none"] == -1.5
    assert told["rookery_legality"]["legal,none"] == 0.0
    assert told["rookery_lines"]["legal,none"] == 0.5
    assert -0.15 < told["rookery_lines"]["reward,none"] <= 0.35
    changed = told["rookery_brittleness"]
    assert [changed[f"{name},none"] for name in ("legal", "legal_change", "same_move")] == pytest.approx(
        UNSTEADY
    )
    assert told["rookery_chessqa"]["right,none"] == 0.5
    assert told["rookery_puzzles"]["right,none"] == pytest.approx(1 / len(solved))


def chessqa_file(folder: Path, answers: dict[str, str]) -> Path:
    """Two questions in the form of ChessQA, of which the first is answered right."""
    path, rows = folder / "chessqa.jsonl", []
    for number in range(2):
        text = f"Question {number}.\nCONTEXT_PLACEHOLDERAnswer as FORMAT_EXAMPLE_PLACEHOLDER."
        row = {
            "task_id": f"q{number}",
            "task_category": "Structural",
            "question": text,
            "format_examples": ["a1, b2"],
        }
        rows.append({**row, "correct_answer": "e2, d2", "answer_type": "multi"})
        answers[f"Question {number}.\nAnswer as a1, b2."] = f"FINAL ANSWER: **D2, e{2 + number}**"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


UNSTEADY = [6 / 9, -3 / 8, 4 / 7]
"""Of the answers below: the share of legal moves, its change, and how often the move stays the same."""


def _unsteady(brittleness: Path) -> dict[str, str]:
    """The same move for five forms and another for one, mirrored where the board is; none for the others."""
    moves = {
        "as it is": "e2e4", "colours swapped": "e7e5", "left and right swapped": "d2d4",
        "legal moves": "e2e4", "SAN demanded": "e4", "UCI demanded": "e2e3",
    }  # fmt: skip
    asked = list(read_questions(brittleness))
    assert len(asked) == 9 and sum(not question.same_move for question in asked) == 1
    return {
        "\n\n".join(turn["content"] for turn in question.prompt[at:]): f"\\boxed{{{moves[question.form]}}}"
        for question in asked
        if question.form in moves
        for at in range(len(question.prompt))  # lm-eval asks with one message
    }


def _right_lines(lines: Path) -> dict[str, str]:
    """The solutions of every other line: the rest of the answers is no `P:` or `A:` line."""
    asked = list(read_questions(lines))[::2]
    return {question.prompt[-1]["content"]: question.solution for question in asked}

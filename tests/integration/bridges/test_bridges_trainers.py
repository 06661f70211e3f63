"""Each bridge against the published package of its trainer, and a real reward service.

A package that is not installed skips its tests. Most want an environment of their own: see docs/bridges.md.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rookery_bridges import Answer, RewardClient, RewardFault
from rookery_bridges.questions import read_questions
from rookery_bridges.verl import compute_score, compute_scores
from tests.conftest import ROOT, free_port
from tests.waiting import wait_for

# Other projects' warnings are not ours to fix.
pytestmark = [pytest.mark.stockfish, pytest.mark.filterwarnings("ignore")]

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
BEST, ILLEGAL = "\\boxed{Nxg5}", "\\boxed{Ke5}"


def test_verl() -> None:
    assert compute_score("chess", BEST, FEN) == {"score": 0.0, "legal": 1.0}
    truths = [FEN, json.dumps({"fen": FEN, "scheme": "best"})]
    judged = compute_scores(["chess"] * 2, [ILLEGAL, BEST], truths, [None, {}])
    assert [one["score"] for one in judged] == [-1.2, 1.0]
    with pytest.raises(RewardFault, match="422"):
        compute_score("chess", BEST, "no position")


async def test_the_client_from_async_code() -> None:
    answers = [Answer(FEN, BEST), Answer(FEN, ILLEGAL)]
    together = await asyncio.gather(*(RewardClient().ascore(answers) for _ in range(3)))
    assert together == [RewardClient().score(answers)] * 3
    assert [verdict.legal for verdict in together[0]] == [True, False]


@pytest.mark.skyrl_gym
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


@pytest.mark.openenv
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


@pytest.mark.tinker_cookbook
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


@pytest.mark.verifiers
def test_verifiers(questions: Path, endpoint_url: str, answers: dict[str, str], tmp_path: Path) -> None:
    """verifiers' own evaluation: the taskset by its name, a harness, an endpoint, and the traces."""
    first, second = list(read_questions(questions))[:2]
    best = RewardClient().score([Answer(first.fen, f"\\boxed{{{_any_move(first.fen)}}}")])[0].best
    answers[first.prompt[-1]["content"]] = f"\\boxed{{{best}}}"
    assert _evaluate(questions, endpoint_url, "stub", tmp_path) == {first.id: 0.0, second.id: -1.5}


@pytest.mark.verifiers
@pytest.mark.vllm
def test_verifiers_with_our_server(questions: Path, tmp_path: Path) -> None:
    port = free_port()
    command = ["services.inference.server", "--no-follow", "--adapter-root", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--port", str(port)], cwd=ROOT, stdout=log, stderr=log
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", server, log=tmp_path / "log")
        rewards = _evaluate(questions, f"http://127.0.0.1:{port}/v1", "rook-tiny", tmp_path)
    finally:
        server.terminate()
        server.wait(60)
    assert len(rewards) == 2
    assert all(reward in (-1.2, -1.5) or -1.0 <= reward <= 0.0 for reward in rewards.values())


def _evaluate(questions: Path, endpoint_url: str, model: str, folder: Path) -> dict[str, float]:
    """The rewards of the first two questions by id, from the traces of verifiers' evaluation."""
    two = folder / "questions.jsonl"  # a process for each rollout
    two.write_text("".join(questions.read_text().splitlines(keepends=True)[:2]))
    command = [str(Path(sys.executable).parent / "vf-eval"), "rookery-chess", "-m", model, "--no-push"]
    command += ["--env.taskset.questions", str(two), "--env.agent.harness.id", "null", "--no-rich"]
    command += ["--env.agent.runtime.type", "subprocess", "--client.base-url", endpoint_url]
    command += ["--client.api-key-var", "PATH", "-o", str(folder / "out")]
    subprocess.run(command, check=True, cwd=folder, timeout=200, capture_output=True)
    [file] = (folder / "out").glob("*/traces.jsonl")
    traces = [json.loads(line)["traces"][0] for line in file.read_text().splitlines()]
    assert not any(trace["errors"] for trace in traces), traces
    return {trace["task"]["data"]["id"]: trace["rewards"]["reward"]["score"] for trace in traces}


def _any_move(fen: str) -> str:
    import chess

    return next(iter(chess.Board(fen).legal_moves)).uci()


@pytest.mark.inspect_ai
def test_inspect(
    questions: Path, puzzles: Path, endpoint_url: str, answers: dict[str, str], tmp_path: Path
) -> None:
    from inspect_ai import eval as evaluate

    from rookery_bridges import inspect_ai

    solved = list(read_questions(puzzles))
    for question in solved[:-1]:
        answers[question.prompt[-1]["content"]] = question.solution
    tasks = [inspect_ai.legality(str(questions)), inspect_ai.puzzles(str(puzzles))]
    model = {"model": "openai/stub", "model_base_url": endpoint_url, "model_args": {"api_key": "none"}}
    legality, right = evaluate(tasks, **model, log_dir=str(tmp_path), display="none")
    for log in (legality, right):
        assert log.status == "success", log.error
    values = {score.name: score.metrics["mean"].value for score in legality.results.scores}
    assert values == {"reward": -1.5, "legal": 0.0}
    metrics = {name: metric.value for name, metric in right.results.scores[0].metrics.items()}
    assert metrics["mean"] == pytest.approx((len(solved) - 1) / len(solved))
    assert metrics["solved"] == pytest.approx(2 / 3)


@pytest.mark.lm_eval
def test_lm_eval(
    questions: Path, puzzles: Path, endpoint_url: str, answers: dict[str, str], tmp_path: Path
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    solved = list(read_questions(puzzles))
    first = "\n\n".join(turn["content"] for turn in solved[0].prompt)
    answers[first] = solved[0].solution
    model = {"model": "stub", "base_url": f"{endpoint_url}/chat/completions", "tokenizer_backend": "none"}
    include = str(ROOT / "bridges" / "rookery_bridges" / "lm_eval_tasks")
    told = {}
    for task, path in (("rookery_legality", questions), ("rookery_puzzles", puzzles)):
        manager = TaskManager(include_path=include, metadata={"questions": str(path)})
        chats = {"model": "local-chat-completions", "model_args": model, "apply_chat_template": True}
        told |= simple_evaluate(tasks=[task], task_manager=manager, **chats)["results"]
    assert told["rookery_legality"]["reward,none"] == -1.5
    assert told["rookery_legality"]["legal,none"] == 0.0
    assert told["rookery_puzzles"]["right,none"] == pytest.approx(1 / len(solved))

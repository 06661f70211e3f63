"""Policies as players, served for the occasion by the real vLLM: rook-tiny and two adapters of it.

GPT-2s play in tests/e2e/test_pychess_pipeline.py and test_rookworld.py.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import chess
import chess.engine
import psutil
import pytest

from arena.players.model import ModelPlayer
from arena.players.spec import make_player
from bench.noise_adapter import write_adapter
from rookery.clients import InferenceClient
from rookery.engines.player import Reply
from rookery.errors import InvalidInput, NotFound, PeerFault
from rookery.games import position_of
from rookery.hub import identity
from rookery.prompt import render
from rookery.trace import Outcome, Sampling
from tests.conftest import ROOT

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(900)]

TINY = "models/rook-tiny"
GAME = "e2e4 e7e5 g1f3 b8c6 f1b5 a7a6 b5a4 g8f6"


@dataclass(frozen=True)
class Players:
    """A `rookery serve players` and its specs: the base model, and two versions of one run."""

    process: subprocess.Popen[str]
    base: str
    first: str
    last: str


def write_run(folder: Path) -> Path:
    for number in (0, 7):
        adapter = write_adapter(
            folder / "adapters" / f"policy-v{number:06d}", Path(TINY), version=number, scale=0.1
        )
        state = {"sha256": adapter.version.sha256, "fingerprint": {"model": identity(TINY)}}
        Path(adapter.path, "state.json").write_text(json.dumps(state))
    settings = {"task": "move", "style": "mover-squares", "max_tokens": 32}
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture(scope="module")
def players(run: Path) -> Iterator[Players]:
    specs = [f"model:{TINY}", f"run:{run}@0", f"run:{run}"]
    command = [sys.executable, "-m", "launcher", "serve", "players", *specs, "--device", "cpu"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout
        yield Players(process, *(process.stdout.readline().strip() for _ in specs))
        process.terminate()


async def replies(spec: str, boards: list[chess.Board], *, seed: int = 1) -> list[Reply]:
    player = make_player(spec)
    try:
        return await asyncio.gather(*(player.play(board, seed=seed) for board in boards))
    finally:
        await player.close()


def boards() -> list[chess.Board]:
    board, made = chess.Board(), [chess.Board()]
    for text in GAME.split():
        board.push_uci(text)
        made.append(board.copy())
    return made


async def test_greedy_answers_are_the_same_again_and_mostly_legal(players: Players) -> None:
    first, again = (
        await replies(players.base, boards(), seed=1),
        await replies(players.base, boards(), seed=2),
    )
    assert [reply.text for reply in first] == [reply.text for reply in again]
    assert sum(reply.outcome is Outcome.LEGAL for reply in first) >= 6
    for reply, board in zip(first, boards(), strict=True):
        assert (reply.move in board.legal_moves) is (reply.outcome is Outcome.LEGAL)
        assert 5 <= reply.tokens <= 32 and reply.seconds > 0 and reply.score is None


async def test_a_mirrored_position_has_the_mirrored_move(players: Players) -> None:
    asked = [chess.Board(board.fen()) for board in boards()]
    here = await replies(players.base, asked)
    there = await replies(players.base, [board.mirror() for board in asked])
    flip = chess.square_mirror
    mirrored = [
        reply.move
        and chess.Move(flip(reply.move.from_square), flip(reply.move.to_square), reply.move.promotion)
        for reply in there
    ]
    assert [reply.move for reply in here] == mirrored


async def test_log_probabilities_of_endings_are_those_of_a_plain_forward_pass(players: Players) -> None:
    """Of the base model, and other ones of an adapter; with endings that share tokens, and a lead."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    prompt = render(position_of(chess.Board()), style="mover-squares")
    beginnings, endings = ["<think>e2e4 d2d4</think>", "<think>e2e4</think>", ""], ["e2e4}", "e2e3}", "d2d4}"]
    rows = []
    for spec in (players.base, players.last):
        player = make_player(spec)
        assert isinstance(player, ModelPlayer)
        prompt_ids = await player.prompt_tokens(prompt)
        rows.append(
            await player.client.ending_logprobs(
                prompt_ids, beginnings, endings, lead="\\boxed{", model=player.model
            )
        )
        await player.close()

    tokenizer, model = (
        AutoTokenizer.from_pretrained(ROOT / TINY),
        AutoModelForCausalLM.from_pretrained(ROOT / TINY, dtype=torch.float32),
    )
    for beginning, row in zip(beginnings, rows[0], strict=True):
        before = list(prompt_ids) + tokenizer.encode(f"{beginning}\\boxed{{", add_special_tokens=False)
        for ending, logprob in zip(endings, row, strict=True):
            after = tokenizer.encode(ending, add_special_tokens=False)
            with torch.no_grad():
                logits = model(torch.tensor([before + after])).logits[0, len(before) - 1 : -1].float()
            expected = logits.log_softmax(-1)[range(len(after)), after].sum()
            assert logprob == pytest.approx(float(expected), abs=1e-4)
    assert all(a != b for a, b in zip(rows[0][0], rows[1][0], strict=True))


async def test_sampled_answers_depend_on_the_seed_alone(players: Players) -> None:
    spec = f"{players.base},temperature=1"
    texts = [[reply.text for reply in await replies(spec, boards(), seed=seed)] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


async def test_versions_are_other_players(players: Players, run: Path) -> None:
    texts = [
        [reply.text for reply in await replies(spec, boards())]
        for spec in (players.base, players.first, players.last)
    ]
    assert texts[0] != texts[1] != texts[2] != texts[0]
    last = make_player(players.last)
    assert last.name == "demo@7"
    assert str(last.describe()["source"]).startswith(f"run:{run}@7:")
    await last.close()


async def test_a_request_without_tokens_gets_the_same_answer(players: Players) -> None:
    player = make_player(players.base)
    assert isinstance(player, ModelPlayer)
    reply = await player.play(chess.Board(), seed=0)
    player.client._is_vllm = False
    plain = await player.play(chess.Board(), seed=0)
    await player.close()
    assert (plain.move, plain.outcome, plain.tokens) == (reply.move, reply.outcome, 0)


async def test_what_the_endpoint_refuses(players: Players) -> None:
    url = players.base.partition("#")[0]
    with pytest.raises(NotFound, match="nobody"):
        await replies(f"{url}#nobody", [chess.Board()])
    with pytest.raises(InvalidInput, match="max_tokens"):
        await replies(f"{url}#rook-tiny,max-tokens=100000", [chess.Board()])
    absent = ModelPlayer("x", InferenceClient("http://127.0.0.1:9"), "m", "fen", Sampling())
    with pytest.raises(PeerFault):
        await absent.play(chess.Board(), seed=0)
    await absent.close()


def test_serve_players_ends_with_its_input(players: Players) -> None:
    """Nothing below asks its players."""
    assert players.process.stdin
    servers = psutil.Process(players.process.pid).children(recursive=True)
    assert len(servers) >= 2
    players.process.stdin.close()
    assert players.process.wait(240) == 0
    assert not psutil.wait_procs(servers, timeout=60)[1]


def test_a_gui_plays_a_run_and_its_server_ends_with_it(run: Path) -> None:
    """`rookery uci` starts the server by itself, and nothing of it is left."""
    command = [sys.executable, "-m", "launcher", "uci", "--player", f"run:{run}@7,temperature=1"]
    command += ["--seed", "1"]
    with chess.engine.SimpleEngine.popen_uci(command, timeout=60, cwd=ROOT) as engine:
        assert engine.id["name"].endswith(" demo@7")
        deadline = time.monotonic() + 600
        while not (served := inference_servers(run)) and time.monotonic() < deadline:
            engine.ping()  # the first starts the server
        board, said = chess.Board(), ""
        while "boxed" not in said and time.monotonic() < deadline:
            result = engine.play(board, chess.engine.Limit(time=5), info=chess.engine.INFO_ALL)
            said = " ".join(reasoning(engine, board))
            assert result.move in board.legal_moves
        assert "boxed" in said, "what the model wrote"
        while board.ply() < 6:
            board.push(engine.play(board, chess.engine.Limit(white_clock=60, black_clock=60)).move)
    gone, alive = psutil.wait_procs(served, timeout=60)
    assert gone and not alive


def reasoning(engine: chess.engine.SimpleEngine, board: chess.Board) -> list[str]:
    with engine.analysis(board, chess.engine.Limit(time=5)) as analysis:
        return [info["string"] for info in analysis if "string" in info]


def inference_servers(run: Path) -> list[psutil.Process]:
    """What `rookery serve players` has started for `run`."""
    launchers = [
        child
        for child in psutil.Process().children(recursive=True)
        if {"launcher", "serve"} <= set(words(child)[:4]) and f"run:{run}@7,temperature=1" in words(child)
    ]
    servers = [server for launcher in launchers for server in launcher.children(recursive=True)]
    return [server for server in servers if "vllm" in " ".join(words(server))]


def words(process: psutil.Process) -> list[str]:
    """The command line of a process; nothing of one that has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []

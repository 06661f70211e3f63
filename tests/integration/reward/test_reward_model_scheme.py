"""The scheme `model`: a real reward model behind a real server, a real engine; and without the server."""

import hashlib
import json
import math
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import chess
import httpx
import pytest

from rookery.config.reward import RewardSettings
from rookery.errors import InvalidInput, PeerFault, SetupError
from rookery.prompt import render
from rookery.serving import Service
from rookery.trace import Outcome, ScoreItem, Verdict
from services.reward.app import create_app
from services.reward.scorer import Scorer
from tests.builders import position
from tests.conftest import free_port
from tests.processes import started
from tests.unit.rookery.running import running
from tests.unit.trainer.preferences import write_pairs

pytestmark = [pytest.mark.stockfish, pytest.mark.torch]

torch = pytest.importorskip("torch")

from rookery.config.finetune import RewardModelSettings  # noqa: E402
from services.trainer.reward_model import training  # noqa: E402
from services.trainer.reward_model.server import BatchQueue, RewardScorer  # noqa: E402
from services.trainer.reward_model.server import create_app as create_model_app  # noqa: E402

FEN = "rnb1kbnr/pppp1ppp/8/4p1q1/3PP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 0 4"
MOVES = ("a2a3", "b2b4", "f3g5", "h2h4", "g2g3")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """rook-tiny, trained on toy pairs."""
    place = tmp_path_factory.mktemp("reward_model")
    data = write_pairs(place / "pairs.jsonl", count=80)
    (place / "manifest.json").write_text(json.dumps({"terms": {"recipe": {"style": "mover-squares"}}}))
    settings = RewardModelSettings(
        model="models/rook-tiny", data=data, out=place / "out", steps=6, batch_size=16, lr=1e-3,
        warmup_steps=1, threads=1,
    )  # fmt: skip
    return training.run(settings)


@pytest.fixture
def other_model(model: Path, tmp_path: Path) -> Path:
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(model, tmp_path / "other")
    weights = load_file(folder / "model.safetensors")
    weights["score.weight"] *= 2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    card = json.loads((folder / "reward_model.json").read_text())
    card["files"]["model.safetensors"] = hashlib.sha256(
        (folder / "model.safetensors").read_bytes()
    ).hexdigest()
    (folder / "reward_model.json").write_text(json.dumps(card))
    return folder


@pytest.fixture(scope="module")
def served_port(model: Path) -> Iterator[int]:
    """The port of one server process for all tests that leave it as it is."""
    port, log = free_port(), model.parent / "server.log"
    command = ("services.trainer", "serve", "reward-model", "--threads", "1", "--model", model, "--rows", "4")
    with started(*command, "--port", port, log=log, ready=f"http://127.0.0.1:{port}/readyz") as process:
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=120) == 0


@asynccontextmanager
async def serving(model: Path, port: int) -> AsyncIterator[None]:
    """The same server in this event loop."""
    queue = BatchQueue(RewardScorer(model, rows=4, device=torch.device("cpu")), limit=100)
    app = create_model_app(queue)
    async with running(Service("model", app, "127.0.0.1", port, "PORT", background=(queue.run,))):
        yield


@pytest.fixture
def port() -> int:
    return free_port()


async def _scorer(stockfish_path: str, port: int) -> Scorer:
    url = f"http://127.0.0.1:{port}"
    return await Scorer.start(
        RewardSettings(engine_path=Path(stockfish_path), engines=1, model_url=url, scheme="model")
    )


@pytest.fixture
async def scorer(stockfish_path: str, port: int) -> AsyncIterator[Scorer]:
    """A scorer whose reward model is not started yet."""
    async with await _scorer(stockfish_path, port) as scorer:
        yield scorer


@pytest.fixture
async def served(stockfish_path: str, served_port: int) -> AsyncIterator[Scorer]:
    """A scorer with the reward model of `served_port`."""
    async with await _scorer(stockfish_path, served_port) as scorer:
        yield scorer


def _item(move: str, fen: str = FEN, scheme: str = "") -> ScoreItem:
    return ScoreItem(fen, f"<think>So many words about it.</think> \\boxed{{{move}}}", scheme=scheme)


async def _verdicts(scorer: Scorer, items: list[ScoreItem]) -> list[Verdict]:
    results = await scorer.score_batch(items)
    assert all(isinstance(result, Verdict) for result in results), results
    return [result for result in results if isinstance(result, Verdict)]


async def test_a_legal_move_earns_what_the_model_gives_it(served: Scorer, served_port: int) -> None:
    verdicts = await _verdicts(served, [_item(move) for move in MOVES])
    prompt = render(position(FEN), style="mover-squares")
    asked = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
    items = [{"prompt": asked, "response": f"\\boxed{{{move}}}"} for move in MOVES]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{served_port}") as http:
        told = (await http.post("/v1/rewards", json={"items": items})).json()
    expected = [1 / (1 + math.exp(-reward)) for reward in told["rewards"]]
    assert [v.reward for v in verdicts] == pytest.approx(expected, rel=1e-15)
    assert all(v.components == {"model": v.reward} for v in verdicts)
    assert all(v.reward_version.endswith(f"/model-{told['sha256']}") for v in verdicts)
    assert all(v.regret is not None and v.engine is not None for v in verdicts)
    assert len({v.reward for v in verdicts}) == len(MOVES)


async def test_colour_and_words_do_not_matter(served: Scorer) -> None:
    board = chess.Board(FEN)
    mirrored = [
        chess.Move(chess.square_mirror(move.from_square), chess.square_mirror(move.to_square)).uci()
        for move in map(chess.Move.from_uci, MOVES)
    ]
    ours = await _verdicts(served, [_item(move) for move in MOVES])
    theirs = await _verdicts(served, [_item(move, board.mirror().fen()) for move in mirrored])
    bare = await _verdicts(served, [ScoreItem(FEN, f"\\boxed{{{move}}}") for move in reversed(MOVES)])
    assert [v.reward for v in ours] == [v.reward for v in theirs] == [v.reward for v in reversed(bare)]


async def test_what_is_no_legal_move_is_strictly_below_all_that_are(served: Scorer) -> None:
    legal = [_item(move.uci()) for move in chess.Board(FEN).legal_moves]
    wrong = [_item("e1e8"), _item("--"), ScoreItem(FEN, "no box"), ScoreItem(FEN, "x", truncated=True)]
    least = min(v.reward for v in await _verdicts(served, legal))
    refused = await _verdicts(served, wrong)
    assert least > 0.0 > max(v.reward for v in refused)
    assert {v.outcome for v in refused} >= {Outcome.ILLEGAL, Outcome.NO_BOX, Outcome.TRUNCATED}
    assert len({v.reward_version for v in refused}) == 1


async def test_it_is_a_term_of_sums(served: Scorer) -> None:
    [alone] = await _verdicts(served, [_item("a2a3")])
    [added] = await _verdicts(served, [_item("a2a3", scheme="delta+0.5*model+0.1*format")])
    assert added.regret is not None
    assert added.components == {"delta": -added.regret, "model": 0.5 * alone.reward, "format": 0.1}
    assert added.reward_version.startswith("1*delta-1+0.5*model-1+0.1*format-1/")


async def test_a_model_that_is_away_is_a_fault_and_another_one_is_another_version(
    model: Path, other_model: Path, port: int, scorer: Scorer
) -> None:
    assert "does not" not in (await _verdicts(scorer, [_item("a2a3", scheme="delta")]))[0].reward_version
    for item in (_item("a2a3"), _item("e1e8")):  # not even the price of an illegal move: no version
        with pytest.raises(PeerFault, match="reward model does not answer"):
            await scorer.score(item)
    assert "/v1/model" in (await scorer.unavailable_reason() or "")
    async with serving(model, port):
        assert await scorer.unavailable_reason() is None
        [before] = await _verdicts(scorer, [_item("a2a3")])
    transport = httpx.ASGITransport(app=create_app(scorer))
    async with httpx.AsyncClient(transport=transport, base_url="http://reward") as http:
        answered = await http.post("/v1/score", json={"fen": FEN, "response": "\\boxed{a2a3}"})
        assert answered.status_code == 503
        assert answered.json()["type"] == "urn:rookery:problem:peer-fault"
        mixed = [{"fen": FEN, "response": "\\boxed{a2a3}", "scheme": name} for name in ("model", "delta")]
        slots = (await http.post("/v1/score/batch", json={"items": mixed})).json()["verdicts"]
    assert slots[0]["status"] == 503
    assert slots[1]["outcome"] == "legal"
    async with serving(model, port):
        assert (await _verdicts(scorer, [_item("a2a3")]))[0] == before
    async with serving(other_model, port):  # is another version
        with pytest.raises(PeerFault, match="is now"):
            await scorer.score(_item("a2a3"))
        [after] = await _verdicts(scorer, [_item("a2a3")])
    assert after.reward_version != before.reward_version
    assert after.reward != before.reward


async def test_without_a_model_the_scheme_is_refused(stockfish_path: str) -> None:
    settings = RewardSettings(engine_path=Path(stockfish_path), engines=1)
    async with await Scorer.start(settings) as scorer:
        with pytest.raises(InvalidInput, match="model_url"):
            await scorer.score(_item("a2a3", scheme="model"))
    with pytest.raises(SetupError, match="model_url"):
        RewardSettings.parse(["--scheme", "delta+model"], prog="reward")
